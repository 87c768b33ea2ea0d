"""Templates that want too much: each ends soon, with an error, and without the memory it asked for."""

from __future__ import annotations

from datetime import datetime

import pytest

from helios.errors import ContractError, InvalidValueError
from helios.prompt.budget import (
    BASE_CHARACTERS,
    CHARACTERS_FOR_EACH,
    STEP_CHARACTERS,
    TIMEOUT_S,
    BudgetError,
    RenderingBudget,
)
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.controls import ControlTokens
from helios.prompt.conversation import Conversation, Message
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of(vocabularies.byte_level(tmp_path_factory.mktemp("vocabulary") / "sandbox.gguf"))


def run(tokenizer: Tokenizer, source: str, content: str = "abc") -> str:
    controls = ControlTokens(tokenizer)
    template = ChatTemplate(source, controls, bos_text="", eos_text="", clock=lambda: datetime(2031, 2, 3))
    return tokenizer.decode(template.encode(Conversation((Message("user", content),))))


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1], [1]]) }}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ 10 ** 12 * 'x' }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%1000000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 11, 1) }}",
        "{{ '%1000000000000d' | format(1) }}",
        "{{ '{:1000000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 11) }}",
        "{{ '{a:{w}}'.format_map({'a': 1, 'w': 10 ** 11}) }}",
        "{{ messages[0].content | center(10 ** 12) }}",
        "{{ messages[0].content.ljust(10 ** 12) }}",
        "{{ messages[0].content | indent(10 ** 12, true) }}",
        "{{ {} | tojson(indent=10 ** 12) }}",
        "{{ ([messages[0].content * 9999] * 999999) | join }}",
        "{{ (messages[0].content * 99999).replace('', 'x' * 99999) }}",
        "{{ (messages[0].content * 99999) | replace('a', 'x' * 99999) }}",
        "{{ ('x' * 999999).join(range(99999) | map('string') | list) }}",
        "{{ range(99999) | map('string') | join('x' * 99999) }}",
        "{% set ns = namespace(x='x') %}{% for i in range(80) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(80) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(80) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(80) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(80) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x ~ 1 }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(80) %}{% set ns.x = {1: ns.x, 2: ns.x} %}{% endfor %}{{ ns.x | string }}",
        "{% set x %}{% for i in range(99999) %}" + 9999 * "x" + "{% endfor %}{% endset %}",
        "{% macro f() %}" + 9999 * "x" + "{% endmacro %}{% for i in range(99999) %}{% set y = f() %}{% endfor %}",
    ],
    ids=range(32),
)
def test_a_template_that_wants_too_much_is_stopped(tokenizer: Tokenizer, source: str) -> None:
    """Research 1.13 and FE: bounded in steps, time and output, whatever makes it grow."""
    with pytest.raises((ContractError, InvalidValueError)):
        run(tokenizer, source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}", "1True1"),
        ("{% for x in [3, 1, 2] | sort if x > 1 %}{{ x }}{% else %}no{% endfor %}", "23"),
        ("{% for x in [[1, [[2, []]]]] recursive %}{{ x[0] }}{{ loop(x[1]) }}{% endfor %}", "12"),
        ("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"),
        ("{{ messages[0].content ~ 1 ~ none }}", "abc1None"),
        ("{{ '%s-%s' % (1, 'x') }} {{ '%d' | format(7) }} {{ '{}{a}'.format(1, a=2) }}", "1-x 7 12"),
        ("{{ 'a-b'.replace('-', '+') }}{{ 'ab' | replace('a', 'c') }}{{ '-'.join(['x', 'y']) }}", "a+bcbx-y"),
        ("{{ [1, 2] | join(',') }}{{ [1, 2] | map('string') | join }}", "1,212"),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ '[1, {\"a\": null}]' | from_json }}", "[1, {'a': None}]"),
        ("{{ [1, 2] | sum }}{{ {'b': 1, 'a': 2} | dictsort }}", "3[('a', 2), ('b', 1)]"),
        ("{{ 'x' | indent(2, true) }}{{ 'x' | center(3) }}", "  x x "),
        ("{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ 2 ** 10 + 3 * 4 }}{{ 'ab' * 2 }}", "1036abab"),
        ("{{ namespace(a=1).a }}{{ dict(a=1) }}{{ joiner(',')() }}", "1{'a': 1}"),
        ("a" * 99 + "{% if true %}" + "b" * 99 + "\n{% endif %}\n" + "c" * 99, "a" * 99 + "b" * 99 + "\n" + "c" * 99),
        ("{{ 'abc'[1:] }}{{ messages[::-1] | length }}", "bc1"),
    ],
)
def test_what_templates_do_costs_little_and_changes_nothing(tokenizer: Tokenizer, source: str, text: str) -> None:
    assert run(tokenizer, source) == text


def test_the_work_may_grow_with_the_conversation(tokenizer: Tokenizer) -> None:
    """A long prompt is no attack: ten passes over a megabyte are paid for by the megabyte."""
    content = "x" * (1 << 20)
    source = "{% set ns = namespace(t='') %}"
    source += "{% for i in range(10) %}{% set ns.t = messages[0].content + 'a' %}{% endfor %}{{ ns.t[-1] }}"
    assert run(tokenizer, source, content) == "a"


def test_the_budget_counts_and_the_deadline_stands_behind_it() -> None:
    now_s = 5.0
    budget = RenderingBudget(10, lambda: now_s)
    budget.characters(BASE_CHARACTERS + 10 * CHARACTERS_FOR_EACH - STEP_CHARACTERS)
    budget.steps(1)
    with pytest.raises(BudgetError, match="too many steps"):
        budget.steps(1)
    slow = RenderingBudget(0, lambda: now_s)
    now_s += TIMEOUT_S
    slow.steps()
    now_s += 0.1
    with pytest.raises(BudgetError, match="more than 10 seconds"):
        slow.steps()


@pytest.mark.parametrize(
    "source", ["{{ 'x'.__class__ }}{{ 'x'.__class__.__mro__ }}", "{{ range(10 ** 9) }}", "{% include 'secret' %}"]
)
def test_what_the_sandbox_forbids_is_no_callers_fault(tokenizer: Tokenizer, source: str) -> None:
    """A refusal by the template is a 400, a template that breaks out of its bounds is the server's to answer for."""
    with pytest.raises(ContractError, match="may not do this"):
        run(tokenizer, source)


def test_a_filter_that_does_not_exist_stops_the_start(tokenizer: Tokenizer) -> None:
    with pytest.raises(ContractError, match="line 1"):
        run(tokenizer, "{{ 1 | no_such_filter }}")
