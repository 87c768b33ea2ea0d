"""Syntaxes, vocabularies and ways of feeding for the tests of this folder: what a model would say, and what should come of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from helios.contract.enums import ImageLayout, ImagePreparation, ReasoningSyntax, ToolSyntax
from helios.contract.frontend import AssistantBoundary, Frontend, Markers, ReasoningMarkers, ToolMarkers
from helios.output.events import (
    ContentDelta,
    Ending,
    OutputEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from helios.output.parser import AnswerParser, Tools
from helios.output.syntax import AnswerSyntax
from helios.output.text_stream import TextStream
from helios.tokenizer.tokenizer import Tokenizer

BAR = "\uff5c"  # the fullwidth bar of DSML and its relatives


def with_tokens(tokenizer: Tokenizer, tokens: Mapping[str, bool]) -> Tokenizer:
    """The vocabulary with more added tokens, each special or not."""
    asset = json.loads(tokenizer._open.to_str())  # the only way to the asset
    first = tokenizer.vocabulary_size
    for token_id, (content, is_special) in enumerate(tokens.items(), start=first):
        asset["added_tokens"].append(
            {
                "id": token_id,
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": is_special,
            }
        )
    return Tokenizer.from_bytes(json.dumps(asset).encode())


def markers(opener: str, closer: str, *newlines: int) -> Markers:
    """Newlines before and after the opener, before and after the closer."""
    return Markers(opener, closer, *newlines, *[0] * (4 - len(newlines)))


THINK = ReasoningMarkers(markers("<think>", "</think>", 0, 1, 1, 2), ("<tool_call>",))
CHAT = AssistantBoundary("<|im_start|>assistant\n", "<|im_end|>", "", "")


def frontend(
    tools: ToolSyntax,
    tool_markers: ToolMarkers | None,
    reasoning: ReasoningSyntax,
    reasoning_markers: ReasoningMarkers | None,
    assistant: AssistantBoundary | None = CHAT,
) -> Frontend:
    return Frontend(
        tool_syntax=tools,
        reasoning_syntax=reasoning,
        image_preparation=ImagePreparation.NONE,
        image_layout=ImageLayout.NONE,
        eos_tokens=(2,),
        bos_text="",
        eos_text="",
        adds_bos=False,
        tool_markers=tool_markers,
        reasoning_markers=reasoning_markers,
        assistant=assistant,
        prefix_boundaries=(),
        image_tokens=None,
    )


@dataclass(frozen=True)
class Example:
    """A syntax with the answer that its public template renders: reasoning "Need it.", content "Checking.", and two calls."""

    name: str
    frontend: Frontend
    tokens: Mapping[str, bool]
    answer: str
    prompt: str  # up to where the answer begins


TOOLS: Tools = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "ok": {"type": "boolean"},
            "n": {"type": ["string", "null"]},
            "o": {"type": "object"},
        },
    },
    "noargs": {"type": "object", "properties": {}},
}
ARGUMENTS = '{"city":"San \\"F\\" <b>","days":3,"ok":true,"n":null,"o":{"a":[1,2]}}'

_CALL = markers("<tool_call>", "</tool_call>", 2, 1, 1, 1)
_TAG_TOKENS = {"<tool_call>": False, "</tool_call>": False, "<think>": False, "</think>": False}
_CHAT_TOKENS = {"<|im_start|>": True, "<|im_end|>": True}
_GLM_TOKENS = _TAG_TOKENS | {"<arg_key>": False, "</arg_key>": False, "<arg_value>": False, "</arg_value>": False}
_VALUES = {"city": 'San "F" <b>', "days": "3", "ok": "true", "n": "null", "o": '{"a": [1, 2]}'}


def _function_tags() -> str:
    values = _VALUES | {"ok": "True", "n": "None"}
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return (
        f"<tool_call>\n<function=get_weather>\n{parameters}</function>\n</tool_call>\n"
        "<tool_call>\n<function=noargs>\n</function>\n</tool_call>"
    )


def _argument_tags(newline: str) -> str:
    arguments = "".join(
        f"<arg_key>{key}</arg_key>{newline}<arg_value>{value}</arg_value>{newline}" for key, value in _VALUES.items()
    )
    calls = f"<tool_call>get_weather{newline}{arguments}</tool_call>{newline}<tool_call>noargs{newline}</tool_call>"
    return newline + calls


def _dsml(block: str, between: str) -> str:
    tag = f"{BAR}DSML{BAR}"
    parameters = "".join(
        f'<{tag}parameter name="{key}" string="{str(key == "city").lower()}">{value}</{tag}parameter>\n'
        for key, value in _VALUES.items()
    )
    return (
        f'\n\n<{tag}{block}>\n<{tag}invoke name="get_weather">\n{parameters}</{tag}invoke>\n'
        f'<{tag}invoke name="noargs">\n{between}</{tag}invoke>\n</{tag}{block}>'
    )


def _xtml() -> str:
    types = {"city": "string", "days": "number", "ok": "boolean", "n": "null", "o": "object"}
    arguments = "".join(
        f'<|open|>argument key="{key}" type="{types[key]}"<|sep|>{value}<|close|>argument<|sep|>'
        for key, value in _VALUES.items()
    )
    return (
        "<|open|>think<|sep|>Need it.<|close|>think<|sep|><|open|>response<|sep|>Checking.<|close|>response<|sep|>"
        f'<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>{arguments}<|close|>call<|sep|>'
        '<|open|>call tool="noargs" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>'
    )


def _atem() -> str:
    parameters = "".join(f'<atem:parameter name="{key}">{value}</atem:parameter>\n' for key, value in _VALUES.items())
    return (
        " to=self<|message|>Need it.<|eom|><|start|>assistant to=user<|message|>Checking.<|eom|>"
        '<|start|>assistant to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
        f"{parameters}</atem:invoke>\n</atem:function_calls><|eom|>"
        '<|start|>assistant to=noargs<|message|><atem:function_calls>\n<atem:invoke name="noargs">\n'
        "</atem:invoke>\n</atem:function_calls>"
    )


_DSML_BOUNDARY = AssistantBoundary(f"<{BAR}Assistant{BAR}>", f"<{BAR}end{BAR}>", "", "")
_DSML_TOKENS = {
    f"{BAR}DSML{BAR}": False, "<think>": False, "</think>": False, f"<{BAR}Assistant{BAR}>": True, f"<{BAR}end{BAR}>": True
}  # fmt: skip
_CALLS_JSON = (
    '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>\n"
    '<tool_call>\n{"name": "noargs", "arguments": {}}\n</tool_call>'
)
_THOUGHT = "<think>\nNeed it.\n</think>\n\nChecking."


def _dsml_frontend(block: str) -> Frontend:
    section = markers(f"<{BAR}DSML{BAR}{block}>", f"</{BAR}DSML{BAR}{block}>", 2)
    reasoning = ReasoningMarkers(markers("<think>", "</think>"), (section.opener,))
    return frontend(
        ToolSyntax.DSML, ToolMarkers(section, "\n", "\n", ""), ReasoningSyntax.THINK_TAGS, reasoning, _DSML_BOUNDARY
    )


EXAMPLES = (
    Example(
        "function_tags",
        frontend(ToolSyntax.FUNCTION_TAGS, ToolMarkers(_CALL, "\n", "\n", ""), ReasoningSyntax.THINK_TAGS, THINK),
        _TAG_TOKENS | _CHAT_TOKENS,
        f"{_THOUGHT}\n\n{_function_tags()}",
        "<|im_start|>user\nW?<|im_end|>\n<|im_start|>assistant\n",
    ),
    Example(
        "argument_tags",
        frontend(
            ToolSyntax.ARGUMENT_TAGS,
            ToolMarkers(markers("<tool_call>", "</tool_call>", 1, 0, 1, 1), "\n", "\n", ""),
            ReasoningSyntax.THINK_TAGS,
            ReasoningMarkers(markers("<think>", "</think>", 1, 0, 0, 1), ("<tool_call>",)),
            AssistantBoundary("<|assistant|>", "", "", ""),
        ),
        _GLM_TOKENS | {"<|user|>": True, "<|assistant|>": True},
        "\n<think>Need it.</think>\nChecking." + _argument_tags("\n"),
        "<|user|>\nW?<|assistant|>",
    ),
    Example(
        "compact_argument_tags",
        frontend(
            ToolSyntax.ARGUMENT_TAGS,
            ToolMarkers(markers("<tool_call>", "</tool_call>"), "", "", ""),
            ReasoningSyntax.THINK_TAGS,
            ReasoningMarkers(markers("<think>", "</think>"), ("<tool_call>",)),
            AssistantBoundary("<|assistant|>", "", "", ""),
        ),
        _GLM_TOKENS | {"<|user|>": True, "<|assistant|>": True},
        "<think>Need it.</think>Checking." + _argument_tags(""),
        "<|user|>W?<|assistant|>",
    ),
    Example(
        "dsml",
        _dsml_frontend("function_calls"),
        _DSML_TOKENS,
        "<think>Need it.</think>Checking." + _dsml("function_calls", ""),
        f"W?<{BAR}Assistant{BAR}>",
    ),
    Example(
        "dsml_tool_calls",
        _dsml_frontend("tool_calls"),
        _DSML_TOKENS,
        "<think>Need it.</think>Checking." + _dsml("tool_calls", "\n"),
        f"W?<{BAR}Assistant{BAR}>",
    ),
    Example(
        "json_tags",
        frontend(ToolSyntax.JSON_TAGS, ToolMarkers(_CALL, "\n", "\n", ""), ReasoningSyntax.THINK_TAGS, THINK),
        _TAG_TOKENS | _CHAT_TOKENS,
        f"{_THOUGHT}\n{_CALLS_JSON}",
        "<|im_start|>user\nW?<|im_end|>\n<|im_start|>assistant\n",
    ),
    Example(
        "xtml",
        frontend(
            ToolSyntax.XTML,
            ToolMarkers(markers("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"), "", "", ""),
            ReasoningSyntax.XTML_THINK,
            ReasoningMarkers(markers("<|open|>think<|sep|>", "<|close|>think<|sep|>"), ("<|open|>tools<|sep|>",)),
            AssistantBoundary('<|open|>message role="assistant"<|sep|>', "<|end_of_msg|>", "", ""),
        ),
        {"<|open|>": True, "<|close|>": True, "<|sep|>": True, "<|end_of_msg|>": True},
        _xtml(),
        '<|open|>message role="user"<|sep|>W?<|close|>message<|sep|><|end_of_msg|><|open|>message role="assistant"<|sep|>',
    ),
    Example(
        "frames",
        frontend(
            ToolSyntax.RECIPIENT_FRAMES,
            ToolMarkers(markers("<atem:function_calls>", "</atem:function_calls>"), "\n", "", "functions"),
            ReasoningSyntax.RECIPIENT_HEADERS,
            ReasoningMarkers(None, ()),
            AssistantBoundary("<|start|>assistant", "<|eot|>", "<|message|>", "<|eom|>"),
        ),
        {"<|start|>": True, "<|message|>": True, "<|eom|>": True, "<|eot|>": True},
        _atem(),
        "<|start|>user<|message|>W?<|eot|><|start|>assistant",
    ),
)  # fmt: skip


@dataclass
class Call:
    """A call as a client puts it together."""

    call_id: str
    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass
class Answer:
    """An answer as a client puts it together from events."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: Iterable[OutputEvent]) -> None:
        for event in events:
            match event:
                case ReasoningDelta(text):
                    assert text
                    self.reasoning += text
                case ContentDelta(text):
                    assert text
                    self.content += text
                case ToolCallStart(index, call_id, name):
                    assert index == len(self.calls)
                    self.calls.append(Call(call_id, name))
                case ToolArgumentsDelta(index, fragment):
                    assert index == len(self.calls) - 1
                    assert fragment
                    assert not self.calls[index].is_complete
                    self.calls[index].arguments += fragment
                case ToolCallEnd(index):
                    assert index == len(self.calls) - 1
                    self.calls[index].is_complete = True
                    json.loads(self.calls[index].arguments)

    @property
    def made(self) -> list[tuple[str, str]]:
        """The calls that were completed."""
        return [(call.name, call.arguments) for call in self.calls if call.is_complete]


def call_ids() -> Callable[[], str]:
    counter = itertools.count()
    return lambda: f"call_{next(counter)}"


def marked(text: str, tokenizer: Tokenizer, syntax: AnswerSyntax) -> str:
    """What the parser sees of a text in which markup is tokens where it can be."""
    stream = TextStream(tokenizer, (), (), syntax.markup)
    return "".join(map(stream.push, tokenizer.encode(text, allow_special=True))) + stream.finish()


def read(
    pieces: Sequence[str],
    syntax: AnswerSyntax,
    *,
    tools: Tools | None = TOOLS,
    opening: str = "",
    ending: Ending = Ending.EOS,
    is_structured: bool = False,
) -> Answer:
    """The answer that a parser makes of marked text in pieces."""
    parser = AnswerParser(syntax, tools, call_ids(), opening=opening, is_structured=is_structured)
    answer = Answer()
    for piece in pieces:
        answer.add(parser.push(piece))
    answer.add(parser.close("", ending))
    return answer


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    edges = sorted({0, len(text), *(each % (len(text) + 1) for each in cuts)})
    return [text[start:end] for start, end in pairwise(edges)]
