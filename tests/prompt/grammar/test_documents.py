"""Documents of 40 schemas, whatever tokens are chosen: all of them are JSON that jsonschema accepts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from helios.prompt.grammar.grammars import Grammars
from helios.prompt.grammar.request import read_structured
from helios.tokenizer.tokenizer import Tokenizer
from tests.prompt.grammar.sampling import Choice, anyone, drawn, longest, strangest, text_of

NAMES = list(json.loads((Path(__file__).parent / "data" / "schemas.json").read_text(encoding="utf-8")))
N_MOST = 600  # no document of these schemas takes more tokens


def check(schema: Any, document: str) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(document))


def document(grammars: Grammars, tokenizer: Tokenizer, schema: Any, choose: Choice, seed: int = 0) -> str:
    compiled = grammars.compile(read_structured({"structured_outputs": {"json": schema}}))
    assert compiled is not None
    tokens, is_complete = drawn(compiled.start(), choose, (2,), n_most=N_MOST, seed=seed)
    assert is_complete
    return text_of(tokenizer, tokens)


def in_draft_2020(schema: dict[str, Any]) -> dict[str, Any]:
    """What the tuple of an older draft is called today."""
    if not isinstance(schema.get("items"), list):
        return schema
    new = {key: value for key, value in schema.items() if key not in ("$schema", "additionalItems")}
    return new | {"prefixItems": schema["items"], "items": schema["additionalItems"]}


def test_there_are_forty_schemas() -> None:
    assert len(NAMES) == 40


@pytest.mark.parametrize("name", NAMES)
def test_any_tokens_make_a_valid_document(
    name: str, schemas: dict[str, Any], grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """FE-7: whatever a model says under the masks is a document of the schema."""
    for seed in range(6):
        check(in_draft_2020(schemas[name]), document(grammars, tokenizer, schemas[name], anyone(seed), seed))


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_and_the_strangest_tokens_make_a_valid_document(
    name: str, schemas: dict[str, Any], grammars: Grammars, tokenizer: Tokenizer
) -> None:
    """FE-7: an adversary stays within the bounds of the schema, blanks included."""
    for choose in (longest(tokenizer), strangest(tokenizer)):
        check(in_draft_2020(schemas[name]), document(grammars, tokenizer, schemas[name], weary(choose)))


def weary(choose: Choice, n_tokens: int = 200) -> Choice:
    """`choose` for a while, then anybody: what a schema lets recur, an adversary would never end."""
    later, chosen = anyone(1), itertools.count()
    return lambda ids: choose(ids) if next(chosen) < n_tokens else later(ids)
