"""The table of answers whose reasoning stands between think tags, or that have none, with calls in tags or without.

It knows the order of an answer's parts and no tags of its own. Reasoning opens at most once; a declared tool opener ends it as
its closer does; where the content is constrained by a grammar nothing in it is markup (FE-3).
"""

from __future__ import annotations

from dataclasses import replace

from helios.contract.frontend import Frontend, Markers
from helios.output.calls import AFTER_CALL, BY_SYNTAX, CallSyntax
from helios.output.markup import Markup
from helios.output.pattern import GAP, Delimiter
from helios.output.states import Exit, Phase, Sink, State, StateTable

START, LEAD, REASONING, REASONING_BODY, CONTENT = "start", "lead", "reasoning", "reasoning_body", "content"
OPAQUE = "opaque"
_NO_CALLS = CallSyntax((), (), {})


def tagged_table(frontend: Frontend, markup: Markup, *, has_tools: bool, is_structured: bool) -> StateTable:
    """The states of one answer. Without tools the markup of calls is text (T10)."""
    calls = _NO_CALLS
    openers: tuple[Exit, ...] = ()
    if has_tools and frontend.tool_markers is not None:
        calls = BY_SYNTAX[frontend.tool_syntax](markup, frontend.tool_markers)
        openers = _behind_newlines(calls.openers, frontend.tool_markers.call.newlines_before_opener)
    said = OPAQUE if is_structured else CONTENT
    states = {
        CONTENT: State(Sink.CONTENT, Phase.CONTENT, openers, OPAQUE if is_structured else ""),
        OPAQUE: State(Sink.CONTENT, Phase.CONTENT),
        AFTER_CALL: State(
            Sink.CONTENT, Phase.CONTENT, (*_behind_blanks(calls.openers), *calls.followers), said, is_framing=True
        ),
        **calls.states,
    }
    markers = frontend.reasoning_markers
    if markers is None or markers.reasoning is None:
        return StateTable(states, CONTENT, eos_closers=calls.eos_closers)
    is_ended_by_call = (
        frontend.tool_markers is not None and frontend.tool_markers.call.opener in markers.terminal_markers
    )
    ends = openers if is_ended_by_call else ()
    states |= _reasoning_states(markup, markers.reasoning, openers, ends, is_structured=is_structured)
    return StateTable(states, START, eos_closers=calls.eos_closers)


def _reasoning_states(
    markup: Markup, pair: Markers, openers: tuple[Exit, ...], ends: tuple[Exit, ...], *, is_structured: bool
) -> dict[str, State]:
    opener, closer = markup.marker(pair.opener), markup.marker(pair.closer)
    opening = Exit(
        Delimiter((opener,), pair.newlines_before_opener), REASONING, newlines_after=pair.newlines_after_opener
    )
    closing = Exit(
        Delimiter((closer,), pair.newlines_before_closer), CONTENT, newlines_after=pair.newlines_after_closer
    )
    # A closer that is no token may be somebody's text once the answer has begun (FE-3).
    late = (closing,) if len(closer) == 1 else ()
    content = State(Sink.CONTENT, Phase.CONTENT, (*late, *openers), OPAQUE if is_structured else "")
    return {
        START: State(Sink.CONTENT, Phase.UNDECIDED, (opening, closing, *openers), OPAQUE if is_structured else LEAD),
        LEAD: State(Sink.CONTENT, Phase.CONTENT, (opening, *late, *openers)),
        REASONING: State(Sink.REASONING, Phase.REASONING, (replace(opening), closing, *ends), REASONING_BODY),
        REASONING_BODY: State(Sink.REASONING, Phase.REASONING, (closing, *ends)),
        CONTENT: content,
    }


def _behind_newlines(exits: tuple[Exit, ...], n_newlines: int) -> tuple[Exit, ...]:
    return tuple(replace(each, delimiter=Delimiter(each.delimiter.elements, n_newlines)) for each in exits)


def _behind_blanks(exits: tuple[Exit, ...]) -> tuple[Exit, ...]:
    return tuple(replace(each, delimiter=Delimiter((GAP, *each.delimiter.elements))) for each in exits)
