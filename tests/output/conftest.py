"""Each syntax in two vocabularies: one whose markers are tokens, one that spells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helios.output.opening import open_answer
from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import EXAMPLES, Answer, Example, marked, read, with_tokens
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of


@dataclass(frozen=True)
class Bound:
    """An example's syntax in a vocabulary. `opening` is what its prompt holds of the answer."""

    example: Example
    tokenizer: Tokenizer
    syntax: AnswerSyntax
    has_tokens: bool
    opening: str

    def said(self, text: str, **options: Any) -> Answer:
        """What is read of a text from the beginning of an answer, the same whole and character by character."""
        tape = self.marked(text)
        whole = read([tape], self.syntax, **options)
        assert whole == read(list(tape), self.syntax, **options)
        return whole

    def marked(self, text: str) -> str:
        """What the parser sees of a text in which markup is tokens where it can be."""
        return marked(text, self.tokenizer, self.syntax)


@pytest.fixture(scope="session")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """256 bytes and a few words; no marker is a token."""
    path = tmp_path_factory.mktemp("vocabulary") / "plain.gguf"
    return tokenizer_of(vocabularies.byte_level(path, user_defined=()))


@pytest.fixture(scope="session")
def default_tokenizer(default_gguf: Path) -> Tokenizer:
    return tokenizer_of(default_gguf)


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of(vocabularies.sentencepiece(tmp_path_factory.mktemp("vocabulary") / "sentencepiece.gguf"))


@pytest.fixture(scope="session")
def bound_by_name(plain_tokenizer: Tokenizer) -> dict[str, Bound]:
    return {
        f"{bound.example.name}-{'tokens' if bound.has_tokens else 'text'}": bound for bound in _bound(plain_tokenizer)
    }


def _bound(plain: Tokenizer) -> Iterator[Bound]:
    for example in EXAMPLES:
        for has_tokens in (True, False):
            tokenizer = with_tokens(plain, example.tokens) if has_tokens else plain
            syntax = AnswerSyntax(example.frontend, tokenizer)
            opening = open_answer(tokenizer.encode(example.prompt, allow_special=True), tokenizer, syntax)
            yield Bound(example, tokenizer, syntax, has_tokens, opening)


@pytest.fixture(params=[f"{example.name}-{kind}" for example in EXAMPLES for kind in ("tokens", "text")])
def bound(request: pytest.FixtureRequest, bound_by_name: dict[str, Bound]) -> Bound:
    return bound_by_name[request.param]
