"""Calls in tags: prose about them, values that spell them, closers that are missing, and what is left when a call breaks off."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.output.events import Ending
from helios.output.parser import AnswerParser
from tests.output.answers import ARGUMENTS, BAR, TOOLS, Answer, call_ids
from tests.output.conftest import Bound

KINDS = ("tokens", "text")
TAGGED = ("function_tags", "argument_tags", "compact_argument_tags", "dsml", "dsml_tool_calls", "json_tags")


def call(syntax: str, name: str, **values: str) -> str:
    """One call in a syntax, each value as the model writes it."""
    if syntax == "function_tags":
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"
    if syntax.endswith("argument_tags"):
        inner = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in values.items())
        return f"<tool_call>{name}{inner}</tool_call>"
    if syntax == "json_tags":
        return f"<tool_call>{json.dumps({'name': name, 'arguments': values}, ensure_ascii=False)}</tool_call>"
    if syntax == "xtml":
        inner = "".join(
            f'<|open|>argument key="{key}" type="string"<|sep|>{value}<|close|>argument<|sep|>'
            for key, value in values.items()
        )
        opened = f'<|open|>tools<|sep|><|open|>call tool="{name}" index="1"<|sep|>'
        return f"{opened}{inner}<|close|>call<|sep|><|close|>tools<|sep|>"
    prefix = "atem:" if syntax == "frames" else f"{BAR}DSML{BAR}"
    block = "tool_calls" if syntax == "dsml_tool_calls" else "function_calls"
    attribute = "" if syntax == "frames" else ' string="true"'
    inner = "".join(
        f'<{prefix}parameter name="{key}"{attribute}>{value}</{prefix}parameter>\n' for key, value in values.items()
    )
    section = f'<{prefix}{block}>\n<{prefix}invoke name="{name}">\n{inner}</{prefix}invoke>\n</{prefix}{block}>'
    return f"<|start|>assistant to={name}<|message|>{section}<|eom|>" if syntax == "frames" else section


@pytest.fixture(params=[f"{name}-{kind}" for name in TAGGED for kind in KINDS])
def tagged(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[request.param]


@pytest.fixture(params=KINDS)
def qwen(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"function_tags-{request.param}"]


@pytest.fixture(params=KINDS)
def glm(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[f"argument_tags-{request.param}"]


def opener_of(bound: Bound) -> str:
    assert bound.example.frontend.tool_markers is not None
    return bound.example.frontend.tool_markers.call.opener


def city(answer: Answer) -> str:
    (arguments,) = (arguments for _, arguments in answer.made)
    found: str = json.loads(arguments)["city"]
    return found


def test_prose_about_an_opener_stays_prose(tagged: Bound) -> None:
    """T2: an opener counts with the name of a call behind it; its halves are text as soon as they cannot become one."""
    opener = opener_of(tagged)
    text = f"the {opener} tag, half a {opener[:5]} tag, {opener}\n\nand {opener} <b> end"
    assert tagged.said(text) == Answer(content=text)


def test_an_opener_is_held_no_longer_than_it_can_become_one(bound_by_name: dict[str, Bound]) -> None:
    """T2: a literal opener in prose does not silence the stream."""
    bound = bound_by_name["function_tags-text"]
    parser = AnswerParser(bound.syntax, TOOLS, call_ids())
    answer = Answer()
    for character in "a <tool_call> is":
        answer.add(parser.push(character))
    assert answer.content == "a <tool_call> is"


def test_values_may_spell_closers(bound: Bound) -> None:
    """T3: a closer counts only before something that may follow it; only control tokens cannot be spelled."""
    closers = {
        "function_tags": "a </parameter> b </function> c </tool_call> d",
        "dsml": f"a </{BAR}DSML{BAR}parameter> b </{BAR}DSML{BAR}invoke> c",
        "dsml_tool_calls": f"a </{BAR}DSML{BAR}parameter> b",
        "frames": "a </atem:parameter> b </atem:invoke> c",
        "argument_tags": "a </arg_value> b <arg_key> c </tool_call> d",
        "compact_argument_tags": "a </arg_value> b",
        "json_tags": "a </tool_call> b <tool_call> {}",
        "xtml": "argument call tools",
    }
    value = closers[bound.example.name]
    answer = bound.said(call(bound.example.name, "get_weather", city=value), opening=bound.opening)
    assert city(answer) == value
    assert answer.content == ""


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(
    lambda text: text.replace("<", "</ \"'\\😀\n")
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_any_text_value_arrives_as_it_is(bound: Bound, value: str) -> None:
    """T4, T13: quotes, backslashes, newlines, emoji, blanks at both ends; nothing is decoded, nothing stripped."""
    answer = bound.said(call(bound.example.name, "get_weather", city=value), opening=bound.opening)
    assert city(answer) == value


def test_blanks_around_a_value_belong_to_it_but_for_the_tags_own_newlines(bound: Bound) -> None:
    """T13."""
    for value in ("  x  ", "\n\nx\n\n", "", " ", "\n", "&lt;/parameter&gt;"):
        assert city(bound.said(call(bound.example.name, "get_weather", city=value), opening=bound.opening)) == value


def test_a_call_without_parameters_has_an_empty_object(bound: Bound) -> None:
    """T5."""
    answer = bound.said(call(bound.example.name, "noargs"), opening=bound.opening)
    assert answer.made == [("noargs", "{}")]


def test_two_calls_in_one_delta_have_their_own_index_and_id(bound: Bound) -> None:
    """T6, A4."""
    text = call(bound.example.name, "get_weather", city="a") + call(bound.example.name, "get_weather", city="b")
    answer = bound.said(text, opening=bound.opening)
    assert answer.made == [("get_weather", '{"city":"a"}'), ("get_weather", '{"city":"b"}')] or (
        bound.example.name == "json_tags" and [json.loads(each)["city"] for _, each in answer.made] == ["a", "b"]
    )
    assert len({each.call_id for each in answer.calls}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n3\n</function>\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n3\n</parameter>\n</tool_call>",
        "<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>",
    ],
)
def test_function_tags_may_lack_an_inner_or_outer_tag(qwen: Bound, text: str) -> None:
    """T7, T8."""
    for ending in (Ending.EOS, Ending.LIMIT):
        answer = qwen.said(text, ending=ending)
        assert answer == qwen.said(text + "\n", ending=ending)
        assert answer.made == [("get_weather", '{"city":"x","days":3}')]
        assert answer.content == ""


def test_a_bare_function_tag_is_believed_of_a_registered_name_only(qwen: Bound) -> None:
    """T2, T9."""
    text = "write <function=other>\n<parameter=city>\nx\n</parameter>\n</function>"
    assert qwen.said(text) == Answer(content=text)


def test_the_outer_closer_of_an_argument_call_may_be_missing_at_eos_only(glm: Bound) -> None:
    """T8: at the limit the call was cut off; no brace is made up."""
    text = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n"
    assert glm.said(text, ending=Ending.EOS).made == [("get_weather", '{"city":"x"}')]
    cut_off = glm.said(text, ending=Ending.LIMIT)
    assert cut_off.made == []
    assert [each.arguments for each in cut_off.calls] == ['{"city":"x']


def test_an_unknown_name_is_passed_on_as_it_is(tagged: Bound) -> None:
    """T9: never matched by its ending or in part; its parameters are strings."""
    for unknown in ("other.get_weather", "get_weather.get_weather", "get_weathe"):
        answer = tagged.said(call(tagged.example.name, unknown, days="3"))
        ((name, arguments),) = answer.made
        assert name == unknown
        assert json.loads(arguments) == {"days": "3"}


def test_without_tools_markup_is_content(tagged: Bound) -> None:
    """T10, T11: tools absent, or `tool_choice` none, which the caller says as no tools."""
    text = "see " + call(tagged.example.name, "get_weather", city="x")
    for tools in (None, {}):
        assert tagged.said(text, tools=tools) == Answer(content=text)


def test_text_after_calls_is_content_and_blanks_are_not(tagged: Bound) -> None:
    """T12."""
    text = call(tagged.example.name, "noargs")
    assert tagged.said(text + "\n\n").content == ""
    answer = tagged.said(f"a{text}\n\n{text}\nDone. <b>\n")
    assert answer.content.replace("\n", "") == "aDone. <b>"
    assert answer.content.endswith("Done. <b>\n")
    assert [name for name, _ in answer.made] == ["noargs", "noargs"]


def test_the_first_of_two_values_of_a_parameter_stands(bound_by_name: dict[str, Bound]) -> None:
    """T15: it has been given out. T16: the model's order is kept."""
    bound = bound_by_name["function_tags-tokens"]
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in [("days", "1"), ("city", "a"), ("days", "2")]
    )
    answer = bound.said(f"<tool_call>\n<function=get_weather>\n{parameters}</function>\n</tool_call>")
    assert answer.made == [("get_weather", '{"days":1,"city":"a"}')]


def test_text_parameters_stream_and_a_name_comes_whole(qwen: Bound) -> None:
    """T17, FE-7: fragments come while the value is being written."""
    parser = AnswerParser(qwen.syntax, TOOLS, call_ids())
    answer, seen = Answer(), []
    text = qwen.marked("<tool_call>\n<function=get_weather>\n<parameter=city>\nLong text")
    for character in text:
        answer.add(parser.push(character))
        seen.append(answer.calls[0].arguments if answer.calls else None)
    assert seen[-9:] == ['{"city":"' + "Long text"[:length] for length in range(1, 10)]
    assert {each.name for each in answer.calls} == {"get_weather"}


def test_a_name_that_is_no_name_makes_no_call(tagged: Bound) -> None:
    """T2: blanks or tags where the name should be."""
    text = call(tagged.example.name, "get weather", city="x")
    if tagged.example.name == "json_tags":
        assert [name for name, _ in tagged.said(text).made] == ["get weather"]
    else:
        assert tagged.said(text).calls == []
        assert tagged.said(text).content.startswith(opener_of(tagged))


def test_dsml_says_which_values_are_strings(bound_by_name: dict[str, Bound]) -> None:
    """T14: `string` decides where the schema is silent; an empty section is nothing."""
    for kind in KINDS:
        bound, tag = bound_by_name[f"dsml-{kind}"], f"{BAR}DSML{BAR}"

        def parameter(key: str, flag: str, value: str, tag: str = tag) -> str:
            return f'<{tag}parameter name="{key}"{flag}>{value}</{tag}parameter>\n'

        parameters = (
            parameter("x", ' string="false"', "3")
            + parameter("y", ' string="true"', "3")
            + parameter("z", "", "3")
            + parameter("w", ' string="false"', "no json")
            + parameter("city", ' string="false"', "3")
        )
        invoke = f'<{tag}invoke name="get_weather">\n{parameters}</{tag}invoke>\n'
        answer = bound.said(f"<{tag}function_calls>\n{invoke}</{tag}function_calls>")
        assert answer.made == [("get_weather", '{"x":3,"y":"3","z":"3","w":"no json","city":"3"}')]
        assert bound.said(f"a<{tag}function_calls>\n</{tag}function_calls>") == Answer(content="a")
        # A section without its end, and calls without a section.
        assert len(bound.said(f"<{tag}function_calls>\n{invoke}{invoke}").made) == 2


def test_the_whole_example_has_the_arguments_of_its_schema(qwen: Bound) -> None:
    """T14: `True` and `None` as Python writes them."""
    assert qwen.said(qwen.example.answer).made[0] == ("get_weather", ARGUMENTS)
