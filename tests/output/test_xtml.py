"""XTML answers: elements between control tokens, and what is lost or left open."""

from __future__ import annotations

import json

import pytest

from helios.output.events import Ending
from tests.output.answers import Answer, read
from tests.output.conftest import Bound

MESSAGE_END = "<|close|>message<|sep|>"


@pytest.fixture(params=["tokens", "text"])
def xtml(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"xtml-{request.param}"]


def element(name: str, body: str = "", **attributes: str) -> str:
    written = "".join(
        f' {key}="{value.replace("&", "&amp;").replace(chr(34), "&quot;")}"' for key, value in attributes.items()
    )
    return f"<|open|>{name}{written}<|sep|>{body}<|close|>{name}<|sep|>"


def calls(*bodies: str) -> str:
    return element("tools", "".join(bodies))


def test_attributes_are_unescaped_and_bodies_are_not(xtml: Bound) -> None:
    """X1: the value is as it stands, the key is read as it was meant."""
    body = element("argument", "&amp; &quot; <b>", key='a&b "c" &quot;', type="string")
    answer = xtml.said(calls(element("call", body, tool="noargs", index="1")))
    ((_, arguments),) = answer.made
    assert json.loads(arguments) == {'a&b "c" &quot;': "&amp; &quot; <b>"}


def test_a_json_block_is_passed_on_as_it_stands(xtml: Bound) -> None:
    """X2."""
    text = '{"city": "San",\n "days": 1e0}'
    body = element("json", text, type="object")
    assert xtml.said(calls(element("call", body, tool="get_weather", index="1"))).made == [("get_weather", text)]
    empty = element("json", "", type="object")
    assert xtml.said(calls(element("call", empty, tool="noargs", index="1"))).made == [("noargs", "{}")]


@pytest.mark.parametrize("text", ["{", "no json", " ", "[NaN]", '{"a": 1} {}'])
def test_a_json_block_that_is_no_json_makes_no_complete_call(xtml: Bound, text: str) -> None:
    """T8: what was given out stays open."""
    answer = xtml.said(calls(element("call", element("json", text, type="object"), tool="noargs", index="1")))
    assert [(call.arguments, call.is_complete) for call in answer.calls] == [(text, False)]


def test_prose_may_name_elements(xtml: Bound) -> None:
    """X3: only control tokens delimit."""
    text = 'think response message tools call tool="x" argument'
    answer = xtml.said(element("think", text) + element("response", text) + MESSAGE_END)
    assert answer == Answer(reasoning=text, content=text)


def test_an_empty_response_and_no_response_say_nothing(xtml: Bound) -> None:
    """X5."""
    tools = calls(element("call", tool="noargs", index="1"))
    for response in (element("response"), ""):
        answer = xtml.said(element("think", "a") + response + tools + MESSAGE_END)
        assert (answer.reasoning, answer.content, answer.made) == ("a", "", [("noargs", "{}")])


def test_indices_of_the_wire_do_not_count(xtml: Bound) -> None:
    """X6: gaps and continued counts; calls are counted as they come. A call without a tool is none."""
    bodies = [element("call", tool="noargs", index=index) for index in ("7", "9")]
    answer = xtml.said(calls(bodies[0], element("call", index="8"), element("call", tool="", index="8"), bodies[1]))
    assert answer.made == [("noargs", "{}"), ("noargs", "{}")]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "3", '"3"'),
        ("number", "3", "3"),
        ("number", "1.50", "1.50"),
        ("boolean", "true", "true"),
        ("null", "null", "null"),
        ("object", '{"a": [1]}', '{"a":[1]}'),
        ("array", "[1, 2", '"[1, 2"'),
        ("number", "many", '"many"'),
    ],
)
def test_types_of_the_wire_count_where_the_schema_is_silent(xtml: Bound, kind: str, text: str, expected: str) -> None:
    """T14: a malformed value is a string."""
    body = element("argument", text, key="x", type=kind)
    answer = xtml.said(calls(element("call", body, tool="noargs", index="1")))
    assert answer.made == [("noargs", f'{{"x":{expected}}}')]


def test_a_later_element_ends_an_open_one(xtml: Bound) -> None:
    """R7: think without its closer, response without its closer."""
    tools = calls(element("call", tool="noargs", index="1"))
    answer = xtml.said(f"<|open|>think<|sep|>a<|open|>response<|sep|>b{tools}")
    assert (answer.reasoning, answer.content, answer.made) == ("a", "b", [("noargs", "{}")])
    assert xtml.said(f"<|open|>think<|sep|>a{MESSAGE_END}").reasoning == "a"
    assert xtml.said(f"<|open|>think<|sep|>a{tools}").made == [("noargs", "{}")]


def test_inner_closers_may_be_missing(xtml: Bound) -> None:
    """T7: an outer closer ends what is inside; a value that was cut off by the message's end makes no call."""
    opened = '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    value = '<|open|>argument key="city" type="string"<|sep|>x'
    assert xtml.said(f"{opened}<|close|>tools<|sep|>").made == [("get_weather", "{}")]
    assert xtml.said(f"{opened}{value}<|close|>call<|sep|>").made == [("get_weather", '{"city":"x"}')]
    cut_off = xtml.said(f"{opened}{value}{MESSAGE_END}")
    assert (cut_off.made, [call.arguments for call in cut_off.calls]) == ([], ['{"city":"x'])


def test_what_stands_between_elements_is_noise(xtml: Bound) -> None:
    answer = xtml.said(element("think", "a") + "noise" + element("response", "b") + "noise" + MESSAGE_END + "noise")
    assert answer == Answer(reasoning="a", content="b")


def test_without_tools_a_tools_element_is_content(xtml: Bound) -> None:
    """T10, T11."""
    tools = calls(element("call", tool="noargs", index="1"))
    answer = xtml.said(element("response", "b") + tools + MESSAGE_END, tools=None)
    if xtml.has_tokens:
        assert answer.content.startswith("b<|open|>tools<|sep|>call tool=")
    else:
        assert answer.content == f"b{tools}"


def test_structured_content_is_opaque_up_to_the_end_of_its_element(xtml: Bound) -> None:
    """FE-3: the schema binds the response alone, and spelled elements in it are answer text."""
    document = '{"a": "<think> <|open|>tools<|sep|><|open|>response<|sep|>"}'
    opened = xtml.marked(element("think", "x") + "<|open|>response<|sep|>")
    closed = xtml.marked("<|close|>response<|sep|>" + MESSAGE_END)
    for pieces in ([opened, document, closed], [*opened, *document, *closed]):
        assert read(pieces, xtml.syntax, is_structured=True) == Answer(reasoning="x", content=document)


def test_markers_spelled_with_ordinary_tokens_are_text(bound_by_name: dict[str, Bound]) -> None:
    """FE-3, R3."""
    bound = bound_by_name["xtml-tokens"]
    opened = bound.marked("<|open|>response<|sep|>")
    spelled = "a<|close|>response<|sep|><|open|>tools<|sep|>b"
    assert read([opened, spelled], bound.syntax).content == spelled


def test_a_stray_control_token_is_not_shown(bound_by_name: dict[str, Bound]) -> None:
    answer = bound_by_name["xtml-tokens"].said("<|open|>response<|sep|>a<|sep|>b<|open|>", ending=Ending.LIMIT)
    assert answer.content == "ab"
