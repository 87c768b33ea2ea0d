"""The whole answer as a grammar: reasoning, then what was asked for, then or instead the calls, as the model's syntax has them.

It knows the order of an answer's parts; forms, tools and tags are written elsewhere. Reasoning stays free text that ends where the
syntax ends it, and an answer that must be a document or a call cannot end before it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.contract.enums import ReasoningSyntax, ToolSyntax
from helios.contract.frontend import AssistantBoundary, Frontend, Markers, ReasoningMarkers, ToolMarkers
from helios.errors import InternalError
from helios.prompt.grammar.calls import CallableTool, calls_behind_opener, invocation
from helios.prompt.grammar.lark import LarkText, any_of, quoted
from helios.prompt.grammar.opening import Opening


@dataclass(frozen=True, slots=True)
class Content:
    """What the answer may hold. `form` is the expression of a document, None for free text. `must_call`: the answer is calls;
    `is_parallel`: there may be several."""

    form: str | None
    tools: Sequence[CallableTool]
    must_call: bool
    is_parallel: bool


def envelope(lark: LarkText, frontend: Frontend, content: Content, opening: Opening) -> str:
    """The start expression of an answer."""
    if opening is Opening.PLAIN:
        return content.form or lark.text()
    if frontend.reasoning_syntax is ReasoningSyntax.RECIPIENT_HEADERS:
        return _Frames(lark, frontend, content).start(opening)
    if frontend.tool_syntax is ToolSyntax.XTML:
        return _Elements(lark, frontend, content).start(opening)
    return _tagged(lark, frontend, content, opening)


def markers_of(frontend: Frontend) -> list[str]:
    """The delimiters of an answer's parts, of which those that are one token count only as that token."""
    pairs = [frontend.tool_markers.call] if frontend.tool_markers else []
    if frontend.reasoning_markers and frontend.reasoning_markers.reasoning:
        pairs.append(frontend.reasoning_markers.reasoning)
    texts = [text for pair in pairs for text in (pair.opener, pair.closer)]
    texts += _INNER_MARKERS.get(frontend.tool_syntax, ())
    if frontend.assistant is not None:
        boundary = frontend.assistant
        texts += [boundary.opener, boundary.message_end, boundary.header_end, boundary.internal_end]
    return [text for text in texts if text]


_INNER_MARKERS: dict[ToolSyntax, tuple[str, ...]] = {
    ToolSyntax.ARGUMENT_TAGS: ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ToolSyntax.XTML: ("<|open|>", "<|close|>", "<|sep|>"),
}


def _tagged(lark: LarkText, frontend: Frontend, content: Content, opening: Opening) -> str:
    """Think tags or no reasoning, calls in tags of their own."""
    rest, opener = "", ""
    if content.tools:
        markers = _markers(frontend)
        opener = markers.call.opener
        rest = calls_behind_opener(lark, frontend.tool_syntax, markers, content.tools, is_parallel=content.is_parallel)
    answer = lark.rule(any_of(_tagged_answers(lark, frontend, content, opener, rest)))
    reasoning = frontend.reasoning_markers.reasoning if frontend.reasoning_markers else None
    if reasoning is None or opening is Opening.ANSWER:
        return answer
    ends_by_call = (
        bool(rest) and frontend.reasoning_markers is not None and opener in frontend.reasoning_markers.terminal_markers
    )
    after = lark.newlines(max(reasoning.newlines_after_closer, 2))
    thoughts = [f"{lark.until(reasoning.closer, exclude=[opener] if ends_by_call else [])} {after} {answer}"]
    if ends_by_call:
        thoughts.append(f"{lark.until(opener, exclude=[reasoning.closer])} {rest}")
    thinking = lark.rule(any_of(thoughts))
    if opening is Opening.REASONING:
        return thinking
    return f"{_newlines_and_opener(lark, reasoning)} {thinking} | {answer}"


def _tagged_answers(lark: LarkText, frontend: Frontend, content: Content, opener: str, rest: str) -> list[str]:
    answers = []
    if content.form is not None:
        answers.append(content.form)
    elif not content.must_call:
        answers.append(lark.text([opener] if opener else []))
        if rest:
            answers.append(f"{lark.until(opener)} {rest}")
    if rest and (content.must_call or content.form is not None):
        answers.append(f"{_newlines_and_opener(lark, _markers(frontend).call)} {rest}")
    return answers


def _newlines_and_opener(lark: LarkText, pair: Markers) -> str:
    return f"{lark.newlines(pair.newlines_before_opener)} {lark.markup(pair.opener)}"


def _markers(frontend: Frontend) -> ToolMarkers:
    if frontend.tool_markers is None:
        raise InternalError("calls are constrained for a model without a tool syntax")
    return frontend.tool_markers


class _Elements:
    """XTML: think, response and tools elements, one after another."""

    def __init__(self, lark: LarkText, frontend: Frontend, content: Content) -> None:
        self._lark = lark
        self._content = content
        self._reasoning: ReasoningMarkers | None = frontend.reasoning_markers
        self._end = f"({self._closer('message')})?"
        self._tools = ""
        if content.tools:
            markers = _markers(frontend)
            rest = calls_behind_opener(lark, ToolSyntax.XTML, markers, content.tools, is_parallel=content.is_parallel)
            self._tools = f"{lark.markup(markers.call.opener)} {rest}"

    def start(self, opening: Opening) -> str:
        if opening is Opening.ANSWER:
            return f"{self._inside_response()} {self._end}"
        body = self._lark.rule(f"{self._body()} {self._end}")
        if self._reasoning is None:
            return body
        thinking = f"{self._lark.until('<|close|>think<|sep|>')} {body}"
        if opening is Opening.REASONING:
            return thinking
        return f"{self._opener('think')} {thinking} | {body}"

    def _body(self) -> str:
        content = self._content
        response = f"{self._opener('response')} {self._said()}"
        if content.must_call:
            return f"({self._opener('response')} {self._closer('response')})? {self._tools}"
        if content.form is not None:
            return any_of([response, self._tools]) if self._tools else response
        return f"({response} ({self._tools})? | {self._tools})" if self._tools else response

    def _inside_response(self) -> str:
        content = self._content
        if content.must_call:
            return f"{self._closer('response')} {self._tools}"
        if not self._tools:
            return self._said()
        if content.form is not None:
            return f"({self._said()} | {self._closer('response')} {self._tools})"
        return f"{self._said()} ({self._tools})?"

    def _said(self) -> str:
        """What is in a response element, and its end."""
        if self._content.form is None:
            return self._lark.until("<|close|>response<|sep|>")
        return f"{self._content.form} {self._closer('response')}"

    def _opener(self, name: str) -> str:
        return self._lark.markup(f"<|open|>{name}<|sep|>")

    def _closer(self, name: str) -> str:
        return self._lark.markup(f"<|close|>{name}<|sep|>")


class _Frames:
    """Recipient headers: frames to self, to the user and to tools, the last one perhaps without its end."""

    def __init__(self, lark: LarkText, frontend: Frontend, content: Content) -> None:
        boundary = frontend.assistant
        if boundary is None:
            raise InternalError("recipient headers without an assistant's boundary")
        self._lark = lark
        self._content = content
        self._boundary: AssistantBoundary = boundary
        self._end = lark.markup(boundary.internal_end)
        self._next = f"{self._end} {lark.markup(boundary.opener)}"
        self._calls = [self._call(_markers(frontend), tool) for tool in content.tools]

    def start(self, opening: Opening) -> str:
        frames = self._lark.rule(f"{self._frames()} ({self._end})?")
        if opening is Opening.REASONING:
            return f"{self._lark.text()} {self._next} {frames}"
        if opening is Opening.ANSWER:
            return self._inside_answer(frames)
        return frames

    def _frames(self) -> str:
        reason = self._lark.rule(f"{self._header('self')} {self._lark.text()}")
        content = self._content
        calls = any_of(self._calls) if self._calls else ""
        more = f"({self._next} {calls})*" if content.is_parallel else ""
        if content.must_call:
            return f"({reason} {self._next})* {calls} {more}"
        if content.form is not None:
            document = f"{self._header('user')} {content.form}"
            last = f"({calls} {more} | {document})" if calls else document
            return f"({reason} {self._next})* {last}"
        said = any_of([f"{self._header(name)} {self._lark.text()}" for name in ("user", "commentary")])
        other = self._lark.rule(any_of([reason, said]))
        if not calls:
            return f"({other} {self._next})* {other}"
        frame = self._lark.rule(any_of([other, calls]))
        return f"({frame if content.is_parallel else other} {self._next})* {frame}"

    def _inside_answer(self, frames: str) -> str:
        content = self._content
        if content.must_call:
            return f"{self._next} {frames}"
        if content.form is not None:
            return f"{content.form} ({self._end})?"
        return f"{self._lark.text()} ({self._next} {frames} | ({self._end})?)"

    def _header(self, recipient: str) -> str:
        return f"{quoted(f' to={recipient}')} {self._lark.markup(self._boundary.header_end)}"

    def _call(self, markers: ToolMarkers, tool: CallableTool) -> str:
        pair, line = markers.call, markers.tag_separator
        lead = pair.opener + ("\n" * pair.newlines_after_opener or line)
        closer = self._lark.markup(("\n" * pair.newlines_before_closer or line) + pair.closer)
        return self._lark.rule(f"{self._header(tool.name)} {invocation(self._lark, markers, tool, lead)} {closer}")
