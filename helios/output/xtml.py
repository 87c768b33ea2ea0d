"""The table of XTML answers: elements between control tokens, one after another think, response and tools.

It knows element names and no tools. Only control tokens delimit, so prose may name any element; a later element ends an earlier
one that was left open; what stands between elements is noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from helios.contract.frontend import Frontend, Markers
from helios.errors import InternalError
from helios.output.markup import SURROGATES, Markup
from helios.output.pattern import Capture, Delimiter
from helios.output.states import Exit, Phase, Sink, State, StateTable, Step, ValueKind

_MOST_ATTRIBUTE_CHARACTERS = 1024
_ATTRIBUTE = re.compile(r'([^\s="]+)="([^"]*)"')


def xtml_table(frontend: Frontend, markup: Markup, *, has_tools: bool, is_structured: bool) -> StateTable:
    """The states of one answer. Without tools a tools element is content as it stands (T10)."""
    markers, reasoning = frontend.tool_markers, frontend.reasoning_markers
    if markers is None:
        raise InternalError("a contract with XTML was accepted without its markers")
    element = _Elements(markup)
    message_end = Exit(element.closer("message"), "between")
    response = Exit(element.opener("response"), "response")
    tools_opener, tools_closer = element.pair(markers.call)
    tools = Exit(tools_opener, "tools") if has_tools else Exit(tools_opener, "tools_text", (Step.ECHO,))
    think: tuple[Exit, ...] = ()
    think_end: tuple[Exit, ...] = ()
    if reasoning is not None and reasoning.reasoning is not None:
        think_opener, think_closer = element.pair(reasoning.reasoning)
        think, think_end = (Exit(think_opener, "think"),), (Exit(think_closer, "between"),)
    response_ends = (Exit(element.closer("response"), "between"), message_end)
    content = (response, *response_ends, tools)
    states = {
        "start": State(Sink.CONTENT, Phase.UNDECIDED, (*think, *think_end, response, tools, message_end)),
        "think": State(Sink.REASONING, Phase.REASONING, (*think_end, response, tools, message_end, *think)),
        "between": State(Sink.NOTHING, Phase.CONTENT, (*think_end, response, tools, message_end)),
        "response": State(Sink.CONTENT, Phase.CONTENT, content, "opaque" if is_structured else ""),
        "opaque": State(Sink.CONTENT, Phase.CONTENT, response_ends),
        "tools_text": State(Sink.CONTENT, Phase.CONTENT, (Exit(tools_closer, "between", (Step.ECHO,)), message_end)),
        **_call_states(element, tools_closer, message_end),
    }
    return StateTable(states, "start")


def _call_states(element: _Elements, tools_closer: Delimiter, message_end: Exit) -> dict[str, State]:
    call_end, argument_end = element.closer("call"), element.closer("argument")
    # Models leave closers out: an outer one closes what is inside, but a value that is cut off makes no call.
    breaks = tuple(Exit(each, "between", (Step.ABANDON_CALL,)) for each in (tools_closer, message_end.delimiter))
    tools = (
        Exit(element.opener_with_attributes("call"), "call", (Step.BEGIN_CALL,)),
        Exit(tools_closer, "between"),
        message_end,
    )
    call = (
        Exit(element.opener_with_attributes("argument"), "value", (Step.BEGIN_VALUE,), value_kind=ValueKind.JSON),
        Exit(element.opener_with_attributes("json"), "json"),
        Exit(call_end, "tools", (Step.END_CALL,)),
        Exit(tools_closer, "between", (Step.END_CALL,)),
        Exit(message_end.delimiter, "between", (Step.END_CALL,)),
    )
    value = (
        Exit(argument_end, "call", (Step.END_VALUE,)),
        Exit(call_end, "tools", (Step.END_VALUE, Step.END_CALL)),
        *breaks,
    )
    return {
        "tools": State(Sink.NOTHING, Phase.CALL, tools),
        "call": State(Sink.NOTHING, Phase.CALL, call),
        "value": State(Sink.VALUE, Phase.CALL, value, is_framing=True),
        "json": State(Sink.ARGUMENTS, Phase.CALL, (Exit(element.closer("json"), "call"), *breaks)),
    }


def attributes(text: str) -> Mapping[str, str]:
    """The attributes of an element, unescaped. Only attributes are escaped in XTML; bodies are as they stand."""
    found = {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _ATTRIBUTE.findall(text)}
    return found | ({"name": found["tool"]} if "tool" in found else {})


class _Elements:
    """Opening and closing tags by element name."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._separator = markup.control("<|sep|>")

    def pair(self, markers: Markers) -> tuple[Delimiter, Delimiter]:
        """The tags of an element that the contract names."""
        return Delimiter((self._markup.control(markers.opener),)), Delimiter((self._markup.control(markers.closer),))

    def opener(self, name: str) -> Delimiter:
        return Delimiter((self._markup.control(f"<|open|>{name}<|sep|>"),))

    def opener_with_attributes(self, name: str) -> Delimiter:
        attributes = Capture(
            "attributes", f"[^{SURROGATES}{re.escape(self._separator[0])}]", _MOST_ATTRIBUTE_CHARACTERS
        )
        return Delimiter((self._markup.control(f"<|open|>{name}"), attributes, self._separator))

    def closer(self, name: str) -> Delimiter:
        return Delimiter((self._markup.control(f"<|close|>{name}<|sep|>"),))
