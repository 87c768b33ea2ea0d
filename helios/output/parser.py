"""The one machine that reads answers: marked text in, events out, by a table of states.

It knows no syntax and no tokens. It takes in all that is certain at once and holds back no more than what may still become a
delimiter, so the events of an answer, joined, never depend on how its text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from helios.output.arguments import CallWriter
from helios.output.events import ContentDelta, Ending, OutputEvent, ReasoningDelta, ToolArgumentsDelta
from helios.output.json_calls import JsonCalls
from helios.output.markup import is_markup
from helios.output.pattern import Found
from helios.output.states import Exit, Phase, Sink, Step, ValueKind
from helios.output.syntax import AnswerSyntax
from helios.output.xtml import attributes

Tools = Mapping[str, Mapping[str, Any]]  # registered names, each with the JSON Schema of its parameters
_NOT_BLANK = re.compile(r"\S")


class AnswerParser:
    """One answer. `opening` is what the prompt already holds of it, as `open_answer` gives it.

    Without `tools` the markup of calls is content; with `is_structured` a grammar constrains the content, which is then taken as
    it stands from its first character that is not blank.
    """

    def __init__(
        self,
        syntax: AnswerSyntax,
        tools: Tools | None,
        ids: Callable[[], str],
        *,
        opening: str = "",
        is_structured: bool = False,
    ) -> None:
        self._markup = syntax.markup
        self._table = syntax.table(has_tools=bool(tools), is_structured=is_structured)
        self._tools = tools or {}
        self._events: list[OutputEvent] = []
        self._calls = CallWriter(self._tools, ids, self._emit)
        self._json: JsonCalls | None = None
        self._recipient = ""
        self._has_reasoned = False
        self._held = ""
        self._n_newlines = 0
        self._n_opening = 0
        self._enter(self._table.initial)
        self._open(opening)

    @property
    def phase(self) -> Phase:
        return self._state.phase

    def push(self, marked: str) -> list[OutputEvent]:
        """The events that more text makes certain."""
        self._held = self._run(self._held + marked)
        return self._taken()

    def close(self, text: str, ending: Ending) -> list[OutputEvent]:
        """The last text of the answer, and its end.

        What is held back is text after all, unless it is a piece of markup. EOS stands for closers that are missing.
        """
        if ending is Ending.FAULT:
            return []
        held, closers = self._run(self._held + text), self._table.eos_closers
        self._held = ""
        if ending is Ending.EOS and self._state.sink is Sink.VALUE and closers:
            found = self._scanner.find(held + closers)
            if found is not None and found.index is not None and found.end == len(held + closers):
                held = self._run(held + closers)
        bare = held.lstrip()
        if not self._state.is_framing and len(bare) <= 1 and not (bare and is_markup(bare)):
            self._sink(held)
        self._calls.abandon()
        return self._taken()

    def _open(self, opening: str) -> None:
        """Take in what the prompt holds of the answer. Of its events only those of a call that is still open are this answer's."""
        self._held = self._run(opening)
        self._n_opening = len(self._held)
        self._events = self._calls.reopened(self._taken())

    def _run(self, text: str) -> str:
        """Take in text until all that is left may still become a delimiter."""
        while text:
            if self._n_newlines:
                text = self._without_newlines(text)
            elif self._json is not None:
                text = self._run_json(self._json, text)
            else:
                found = self._scanner.find(text)
                n_taken, is_settled = self._take_plain(text if found is None else text[: found.start])
                if found is None or not is_settled:
                    text = text[n_taken:]
                elif found.index is None:
                    return text[found.start :]
                else:
                    text = self._take_delimiter(text, found, self._state.exits[found.index])
        return ""

    def _without_newlines(self, text: str) -> str:
        """Text behind a delimiter without the newlines that belong to the delimiter."""
        n_newlines = 0
        while n_newlines < min(self._n_newlines, len(text)) and text[n_newlines] == "\n":
            n_newlines += 1
        self._n_newlines = self._n_newlines - n_newlines if n_newlines == len(text) else 0
        return text[n_newlines:]

    def _take_plain(self, text: str) -> tuple[int, bool]:
        """Text without delimiters: how much of it was taken in, and whether the state is still the same."""
        target = self._state.after_text
        first = _NOT_BLANK.search(text) if target else None
        if first is None:
            self._sink(text)
            return len(text), True
        self._sink(text[: first.end()])
        self._enter(target)
        return first.end(), False

    def _take_delimiter(self, text: str, found: Found, taken: Exit) -> str:
        """What follows the delimiter. One that names what it may not is text, though another may begin inside of it."""
        captures = dict(found.captures)
        if "attributes" in captures:
            captures |= attributes(captures["attributes"])
        if taken.needs_registered and not self._is_registered(captures):
            self._take_plain(text[found.start])
            return text[found.start + 1 :]
        self._n_opening = max(self._n_opening - (found.end - found.start), 0)
        self._n_newlines = taken.newlines_after
        self._enter(taken.target)
        for step in taken.steps:
            self._do(step, taken, captures, text[found.start : found.end])
        return text[found.end :]

    def _do(self, step: Step, taken: Exit, captures: Mapping[str, str], delimiter: str) -> None:
        match step:
            case Step.BEGIN_CALL:
                name = captures.get("name", "")
                self._calls.begin(self._registered(name) or name)
            case Step.BEGIN_VALUE:
                kind = ValueKind.TEXT if captures.get("type") == "string" else taken.value_kind
                self._calls.begin_value(captures.get("key", "").strip(), kind)
            case Step.END_VALUE:
                self._calls.end_value()
            case Step.END_CALL:
                self._calls.end()
            case Step.ABANDON_CALL:
                self._calls.abandon()
            case Step.BEGIN_JSON:
                self._json = JsonCalls(self._calls, self._markup.spelled, delimiter)
            case Step.ROUTE:
                self._route(captures["recipient"])
            case Step.ECHO:
                self._emit(ContentDelta(self._markup.spelled(delimiter)))

    def _run_json(self, calls: JsonCalls, text: str) -> str:
        text = text[calls.push(text) :]
        if not calls.is_done and not calls.is_broken:
            return text
        self._json = None
        state = self._state
        self._enter(state.after_text if calls.is_done else state.after_failure)
        if calls.refused_text:
            self._emit(ContentDelta(self._markup.shown(calls.refused_text)))
            self._enter(self._table.states[state.after_text].after_text)
        return text

    def _route(self, recipient: str) -> None:
        """The state of a frame by the recipient in its header; a frame for nobody known is content."""
        name = self._registered(recipient)
        is_generic = recipient == self._table.generic_recipient
        self._recipient = "" if is_generic else name or ""
        if recipient not in self._table.routes and self._table.tool_route and (is_generic or name is not None):
            self._enter(self._table.tool_route)
        else:
            self._enter(self._table.routes.get(recipient, self._table.routes[""]))
        if self._state.sink is Sink.REASONING and self._has_reasoned:
            self._emit(ReasoningDelta("\n"))

    def _is_registered(self, captures: Mapping[str, str]) -> bool:
        """Whether a delimiter names a tool of the request, in a frame of a named recipient that one."""
        if "recipient" in captures:
            recipient = captures["recipient"]
            return recipient == self._table.generic_recipient or self._registered(recipient) is not None
        name = self._registered(captures["name"])
        return name is not None and self._recipient in ("", name)

    def _registered(self, name: str) -> str | None:
        """The tool that is named. A recipient without a namespace may be named as its own: `f.f` for `f`."""
        head, _, tail = name.partition(".")
        is_doubled = head == tail and bool(self._table.tool_route)
        return name if name in self._tools else head if is_doubled and head in self._tools else None

    def _sink(self, text: str) -> None:
        """Plain text to what it is in this state. What the prompt holds of the answer is not said again."""
        sink = self._state.sink
        n_said = min(self._n_opening, len(text))
        self._n_opening -= n_said
        if sink is Sink.VALUE:
            self._calls.text(self._markup.shown(text))
        elif sink is Sink.ARGUMENTS:
            self._calls.arguments(self._markup.shown(text))
        elif sink is not Sink.NOTHING:
            shown = self._markup.shown(text[n_said:])
            self._has_reasoned |= sink is Sink.REASONING and bool(shown)
            self._emit(ReasoningDelta(shown) if sink is Sink.REASONING else ContentDelta(shown))

    def _enter(self, name: str) -> None:
        self._state = self._table.states[name]
        self._scanner = self._table.scanners[name]

    def _emit(self, event: OutputEvent) -> None:
        """Add an event; text and fragments that directly follow their like become one."""
        last = self._events[-1] if self._events else None
        if isinstance(event, (ContentDelta, ReasoningDelta)):
            if type(last) is type(event):
                self._events[-1] = replace(event, text=last.text + event.text)
            elif event.text:
                self._events.append(event)
        elif (
            isinstance(event, ToolArgumentsDelta) and isinstance(last, ToolArgumentsDelta) and last.index == event.index
        ):
            self._events[-1] = replace(last, fragment=last.fragment + event.fragment)
        else:
            self._events.append(event)

    def _taken(self) -> list[OutputEvent]:
        events, self._events = self._events, []
        return events
