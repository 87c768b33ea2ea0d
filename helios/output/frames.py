"""The table of answers in frames that are addressed to a recipient: reasoning, content, or one call each.

It knows headers and no tools. Header controls count only as their tokens, so headers that are spelled out are text; a frame ends
at its end marker or at the next header; a frame whose call is not allowed is content as it stands (FE-6).
"""

from __future__ import annotations

from helios.contract.frontend import Frontend
from helios.errors import InternalError
from helios.output.calls import ATEM_KINDS, PARAMETERS, invocations, section_prefix
from helios.output.markup import SURROGATES, Markup
from helios.output.pattern import GAP, INLINE_GAP, Capture, Delimiter
from helios.output.states import Exit, Phase, Sink, State, StateTable, Step

_RECIPIENT = Capture("recipient", rf"[^\s<>{SURROGATES}]", 256)


def frames_table(frontend: Frontend, markup: Markup, *, has_tools: bool) -> StateTable:
    """The states of one answer. Without tools the frame of a call is content (T10)."""
    assistant, markers = frontend.assistant, frontend.tool_markers
    if assistant is None or markers is None:
        raise InternalError("a contract with recipient frames was accepted without their data")
    opener, header_end = markup.control(assistant.opener), markup.control(assistant.header_end)
    ends = tuple(markup.control(each) for each in (assistant.internal_end, assistant.message_end) if each)
    boundaries = {opener: "header", **dict.fromkeys(ends, "idle")}
    breaks = tuple(Exit(Delimiter((each,)), target) for each, target in boundaries.items())
    between = tuple(Exit(Delimiter((GAP, each)), target) for each, target in boundaries.items())
    call_breaks = tuple(Exit(each.delimiter, each.target, (Step.ABANDON_CALL,)) for each in breaks)
    prefix = section_prefix(markers.call.opener)
    call = invocations(markup, prefix, ATEM_KINDS, ("called", call_breaks))
    begin = Exit(
        Delimiter((GAP, markup.tag(markers.call.opener), GAP, *call.opener)),
        PARAMETERS,
        (Step.BEGIN_CALL,),
        needs_registered=True,
    )
    recipient = Exit(Delimiter((INLINE_GAP, "to=", _RECIPIENT, INLINE_GAP, header_end)), "content", (Step.ROUTE,))
    bare = Exit(Delimiter((INLINE_GAP, header_end)), "content")
    # Some models go from reasoning straight to a tool with half a header; its end is a control token all the same.
    switch = Exit(Delimiter((" to=", _RECIPIENT, header_end)), "content", (Step.ROUTE,), needs_registered=True)
    states = {
        "idle": State(Sink.CONTENT, Phase.UNDECIDED, between, "content", is_framing=True),
        "header": State(Sink.CONTENT, Phase.UNDECIDED, (recipient, bare, *breaks), "content", is_framing=True),
        "reasoning": State(Sink.REASONING, Phase.REASONING, (*breaks, *([switch] if has_tools else []))),
        "content": State(Sink.CONTENT, Phase.CONTENT, breaks),
        "frame": State(Sink.CONTENT, Phase.CALL, (begin, *breaks), "content", is_framing=True),
        "called": State(Sink.NOTHING, Phase.CALL, breaks),
        **call.states,
    }
    return StateTable(
        states,
        "idle",
        routes={"self": "reasoning", "user": "content", "commentary": "content", "": "content"},
        tool_route="frame" if has_tools else "",
        generic_recipient=markers.generic_recipient,
    )
