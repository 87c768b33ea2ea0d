"""The table of answers whose reasoning stands between think tags, or that have none, with calls in tags or without.

It knows the order of an answer's parts and no tags of its own. Reasoning opens at most once; a declared tool opener ends it as
its closer does; where the content is constrained by a grammar nothing in it is markup (FE-3).
"""

from __future__ import annotations

from dataclasses import replace

from helios.contract.frontend import Frontend, Markers
from helios.output.calls import AFTER_CALL, BY_SYNTAX, CallSyntax
from helios.output.markup import Markup, is_markup
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
    said = OPAQUE if is_structured else ""
    after_call = (*_behind_blanks(calls.openers), *calls.followers)
    states = {
        CONTENT: State(Sink.CONTENT, Phase.CONTENT, openers, said),
        OPAQUE: State(Sink.CONTENT, Phase.CONTENT),
        AFTER_CALL: State(Sink.CONTENT, Phase.CONTENT, after_call, said or CONTENT, is_framing=True),
        **calls.states,
    }
    markers = frontend.reasoning_markers
    if markers is None or markers.reasoning is None:
        return StateTable(states, CONTENT, eos_closers=calls.eos_closers)
    is_ended_by_call = (
        frontend.tool_markers is not None and frontend.tool_markers.call.opener in markers.terminal_markers
    )
    _add_reasoning(states, markup, markers.reasoning, openers if is_ended_by_call else ())
    return StateTable(states, START, eos_closers=calls.eos_closers)


def _add_reasoning(states: dict[str, State], markup: Markup, pair: Markers, ends: tuple[Exit, ...]) -> None:
    """The states in front of the content, and the closer where it may still come: `ends` are the calls that end reasoning."""
    opener, closer = markup.marker(pair.opener), markup.marker(pair.closer)
    opening = Exit(
        Delimiter((opener,), pair.newlines_before_opener), REASONING, newlines_after=pair.newlines_after_opener
    )
    closing = Exit(
        Delimiter((closer,), pair.newlines_before_closer), CONTENT, newlines_after=pair.newlines_after_closer
    )
    # A closer that is no token may be somebody's text once the answer has begun (FE-3).
    late = (closing,) if len(closer) == 1 and is_markup(closer) else ()
    content, after_call = states[CONTENT], states[AFTER_CALL]
    states |= {
        START: State(Sink.CONTENT, Phase.UNDECIDED, (opening, closing, *content.exits), content.after_text or LEAD),
        LEAD: State(Sink.CONTENT, Phase.CONTENT, (opening, *late, *content.exits)),
        REASONING: State(Sink.REASONING, Phase.REASONING, (opening, closing, *ends), REASONING_BODY),
        REASONING_BODY: State(Sink.REASONING, Phase.REASONING, (closing, *ends)),
        CONTENT: replace(content, exits=(*late, *content.exits)),
        # A call that ended reasoning may have come where the closer still follows.
        AFTER_CALL: replace(after_call, exits=(*after_call.exits, *_behind_blanks((closing,)))),
    }


def _behind_newlines(exits: tuple[Exit, ...], n_newlines: int) -> tuple[Exit, ...]:
    return tuple(replace(each, delimiter=Delimiter(each.delimiter.elements, n_newlines)) for each in exits)


def _behind_blanks(exits: tuple[Exit, ...]) -> tuple[Exit, ...]:
    return tuple(replace(each, delimiter=Delimiter((GAP, *each.delimiter.elements))) for each in exits)
