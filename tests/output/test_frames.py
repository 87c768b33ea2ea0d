"""Answers in recipient frames: headers, who reads what, and which calls are allowed (FE-6)."""

from __future__ import annotations

import pytest

from helios.output.events import Ending
from tests.output.answers import TOOLS, Answer, read
from tests.output.conftest import Bound

START = "<|start|>assistant"


@pytest.fixture(params=["tokens", "text"])
def frames(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"frames-{request.param}"]


def frame(recipient: str, body: str, end: str = "<|eom|>") -> str:
    return f"{START} to={recipient}<|message|>{body}{end}"


def invoke(name: str, **values: str) -> str:
    parameters = "".join(f'<atem:parameter name="{key}">{value}</atem:parameter>\n' for key, value in values.items())
    return f'<atem:function_calls>\n<atem:invoke name="{name}">\n{parameters}</atem:invoke>\n</atem:function_calls>'


def test_an_open_header_takes_the_recipient_that_is_generated(frames: Bound) -> None:
    """A1, FE-6: the first header is bare, with a leading space."""
    assert frames.said(" to=self<|message|>a<|eom|>", opening=frames.opening) == Answer(reasoning="a")
    assert frames.said("<|message|>a", opening=frames.opening) == Answer(content="a")
    assert frames.said(" to=user<|message|>a", opening=frames.opening) == Answer(content="a")


def test_inform_then_act(frames: Bound) -> None:
    """A2, A3: frames in any order; contents join as they are, stretches of reasoning line by line."""
    answer = frames.said(
        frame("self", "a")
        + frame("user", "b")
        + frame("self", "c")
        + frame("noargs", invoke("noargs"))
        + frame("user", "d")
    )
    assert (answer.reasoning, answer.content, answer.made) == ("a\nc", "bd", [("noargs", "{}")])


def test_two_tool_frames_are_two_calls(frames: Bound) -> None:
    """A4, FE-6: parallel calls are consecutive frames, and a frame carries one invocation."""
    twice = frame("get_weather", invoke("get_weather", city="a") + invoke("get_weather", city="b"))
    answer = frames.said(twice + frame("noargs", invoke("noargs")))
    assert answer.made == [("get_weather", '{"city":"a"}'), ("noargs", "{}")]
    assert answer.content == ""


def test_calls_in_frames_for_people_are_text(frames: Bound) -> None:
    """A5."""
    text = invoke("noargs")
    answer = frames.said(frame("self", text) + frame("user", text))
    assert answer == Answer(reasoning=text, content=text)


@pytest.mark.parametrize("ending", [Ending.EOS, Ending.LIMIT])
def test_a_frame_end_without_a_next_header_is_an_end(frames: Bound, ending: Ending) -> None:
    """A6."""
    assert frames.said(frame("self", "a"), ending=ending) == Answer(reasoning="a")
    assert frames.said(frame("self", "a") + "\n", ending=ending) == Answer(reasoning="a")


@pytest.mark.parametrize("end", ["<|eot|>", "<|eom|>", ""])
def test_a_call_that_its_frame_cuts_off_stays_incomplete(frames: Bound, end: str) -> None:
    """A7: and the next call is not merged into it."""
    half = frame("get_weather", invoke("get_weather", city="x").partition("</atem:parameter>")[0], end)
    answer = frames.said(half + frame("noargs", invoke("noargs")))
    assert [(call.name, call.arguments, call.is_complete) for call in answer.calls] == [
        ("get_weather", '{"city":"x', False),
        ("noargs", "{}", True),
    ]


def test_the_generic_recipient_takes_registered_names(frames: Bound) -> None:
    """A8, FE-6: a frame with another name is no call, and nothing of it is lost."""
    assert frames.said(frame("functions", invoke("noargs"))).made == [("noargs", "{}")]
    answer = frames.said(frame("functions", invoke("other")) + frame("user", "b"))
    assert answer == Answer(content=invoke("other") + "b")


def test_a_named_recipient_takes_its_own_name_only(frames: Bound) -> None:
    """A9, FE-6: not another registered one, not a part of it."""
    for name in ("get_weather", "args", "noargs.x"):
        assert frames.said(frame("noargs", invoke(name))) == Answer(content=invoke(name))
    assert frames.said(frame("other", invoke("other"))) == Answer(content=invoke("other"))
    assert frames.said(frame("ns.noargs", invoke("noargs"))).calls == []


def test_a_tool_without_namespace_may_be_named_as_its_own(frames: Bound) -> None:
    """FE-6: the template lists `noargs.*`, so models say `noargs.noargs`."""
    for recipient, name in (("noargs.noargs", "noargs"), ("noargs", "noargs.noargs"), ("functions", "noargs.noargs")):
        assert frames.said(frame(recipient, invoke(name))).made == [("noargs", "{}")]


def test_people_keep_their_names(frames: Bound) -> None:
    """FE-6: a tool that is called like a fixed recipient can be called by the generic one alone."""
    tools = {"user": {}, **TOOLS}
    assert frames.said(frame("user", invoke("user")), tools=tools) == Answer(content=invoke("user"))
    assert frames.said(frame("functions", invoke("user")), tools=tools).made == [("user", "{}")]


def test_empty_reasoning_is_no_reasoning(frames: Bound) -> None:
    assert frames.said(frame("self", "") + frame("self", "a") + frame("self", "b")) == Answer(reasoning="a\nb")


def test_headers_that_are_spelled_out_are_text(bound_by_name: dict[str, Bound]) -> None:
    """A10, FE-6: header controls delimit only as their tokens."""
    bound = bound_by_name["frames-tokens"]
    spelled = f" to=self<|message|>a<|eom|>{START} to=user<|message|>b"
    assert read([spelled], bound.syntax, opening=bound.opening) == Answer(content=spelled)
    assert read(list(spelled), bound.syntax, opening=bound.opening) == Answer(content=spelled)
    body = bound.marked(" to=user<|message|>")
    assert read([body, spelled], bound.syntax, opening=bound.opening) == Answer(content=spelled)


def test_commentary_is_visible(frames: Bound) -> None:
    """A12."""
    assert frames.said(frame("commentary", "a") + frame("user", "b")) == Answer(content="ab")


def test_reasoning_may_pass_to_a_tool_with_half_a_header(frames: Bound) -> None:
    """FE-6: its end is a control token; a name that is not registered is prose."""
    answer = frames.said(f"{START} to=self<|message|>a to=noargs<|message|>{invoke('noargs')}<|eom|>")
    assert (answer.reasoning, answer.made) == ("a", [("noargs", "{}")])
    prose = frames.said(f"{START} to=self<|message|>a to=user b")
    assert prose == Answer(reasoning="a to=user b")


def test_without_tools_a_call_is_content(frames: Bound) -> None:
    """T10, T11."""
    for recipient in ("noargs", "functions"):
        assert frames.said(frame(recipient, invoke("noargs")), tools=None) == Answer(content=invoke("noargs"))


def test_structured_content_ends_with_its_frame(frames: Bound) -> None:
    """FE-6: the grammar binds the answer to the user alone, and registered calls stay allowed."""
    document = '{"a": "<atem:function_calls>"}'
    answer = frames.said(
        frame("self", "x") + frame("noargs", invoke("noargs")) + frame("user", document), is_structured=True
    )
    assert (answer.reasoning, answer.content, answer.made) == ("x", document, [("noargs", "{}")])


def test_values_are_typed_by_the_schema(frames: Bound) -> None:
    """T14, FE-6: JSON text in a string parameter stays a string; blanks in it are kept."""
    answer = frames.said(frame("get_weather", invoke("get_weather", city=' {"a": 1}\n', days=" 3 ", ok="true")))
    assert answer.made == [("get_weather", '{"city":" {\\"a\\": 1}\\n","days":3,"ok":true}')]
    assert TOOLS["get_weather"]["properties"]["city"] == {"type": "string"}
