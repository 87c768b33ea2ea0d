"""Bounds of numbers: nothing beyond them is let through, and what lies well inside is."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import InvalidValueError
from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.numbers import BOUNDS, bounded, is_countable
from helios.tokenizer.tokenizer import Tokenizer
from tests.prompt.grammar.test_schema import accepts

bounds = st.floats(-1e17, 1e17) | st.integers(-(2**64), 2**64) | st.decimals(-1000, 1000, places=4).map(float)
nodes = st.dictionaries(st.sampled_from(BOUNDS), bounds, min_size=1)


@given(nodes, st.booleans(), st.booleans())
def test_what_is_held_is_within_what_was_asked(node: dict[str, float], whole: bool, alone: bool) -> None:
    """A number at the very edge of the held bounds, read as a double, fits the schema that was given."""
    try:
        held = bounded(node, is_integer=whole, is_alone=alone)
    except ValueError:
        return
    step = Decimal(1) if whole else Decimal(repr(held.get("multipleOf", 1e-9)))
    for side, direction in (("inimum", 1), ("aximum", -1)):
        edges = [
            Decimal(repr(held[name])) * direction + (step if name.startswith("ex") else 0)
            for name in held
            if side in name
        ]
        asked = {name: bound for name, bound in node.items() if side in name}
        assert bool(edges) == bool(asked)
        if edges:
            value = json.loads(format(max(edges) * direction, "f"))
            assert jsonschema.Draft202012Validator(asked).is_valid(value)


def near(source: random.Random, schema: dict[str, Any]) -> str:
    """A number in decimal digits about one of the bounds of a schema."""
    bound = Decimal(repr(source.choice([schema[name] for name in BOUNDS if name in schema])))
    digits = source.choice([0, 0, 1, 2, 5, 9, 12, 16, 22])
    return format(bound + source.choice([-1, 0, 1]) * Decimal(source.randint(0, 12)).scaleb(-digits), "f")


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(BOUNDS), st.decimals(-1000, 1000, places=3).map(float), min_size=1, max_size=2),
    st.sampled_from(["number", "integer"]),
    st.integers(0, 1 << 30),
)
def test_nothing_beyond_the_bounds_is_let_through(
    grammars: Grammars, tokenizer: Tokenizer, node: dict[str, float], kind: str, seed: int
) -> None:
    schema: dict[str, Any] = {"type": kind, **node}
    source = random.Random(seed)
    validator = jsonschema.Draft202012Validator(schema)
    for text in {near(source, schema) for _ in range(12)}:
        try:
            is_accepted = accepts(grammars, tokenizer, schema, text)
        except InvalidValueError:  # nothing lies between the bounds
            return
        assert not is_accepted or validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize("text", ["0", "0.9", "0.5", "0.25", "0.999999999", "0.000000001"])
def test_a_fraction_may_have_any_number_of_digits_up_to_nine(
    text: str, grammars: Grammars, tokenizer: Tokenizer
) -> None:
    assert accepts(grammars, tokenizer, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, text)


def test_numbers_without_bounds_have_exponents(grammars: Grammars, tokenizer: Tokenizer) -> None:
    for text in ("6.02e23", "-0.0", "1E-7", "12345678901234567890"):
        assert accepts(grammars, tokenizer, {"type": "number"}, text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, True), (0.01, True), (1e-9, True), (65_536, True), (65_537, False), (1e-10, False), (-1, False)],
)
def test_steps_are_bounded(value: float, expected: bool) -> None:
    """The library keeps a state for each remainder: 100 million of them never end."""
    assert is_countable(value) is expected
