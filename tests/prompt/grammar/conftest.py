"""The default model's vocabulary, as it is and with tags that are tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helios.prompt.grammar.grammars import Grammars
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import with_tokens
from tests.prompt.grammar.sampling import HERMES, THINK, frontend
from tests.tokenizer.conftest import tokenizer_of

TAGS = {"<tool_call>": False, "</tool_call>": False, "<think>": False, "</think>": False}


@pytest.fixture(scope="session")
def tokenizer(default_gguf: Path) -> Tokenizer:
    return tokenizer_of(default_gguf)


@pytest.fixture(scope="session")
def tagged_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Think and call tags are single tokens that are not special, as they are in the vocabularies that have them."""
    return with_tokens(tokenizer, TAGS)


@pytest.fixture(scope="session")
def grammars(tokenizer: Tokenizer) -> Grammars:
    """Calls as JSON in tags, which are text to this vocabulary."""
    return Grammars(tokenizer, frontend(tool_markers=HERMES), tokenizer.vocabulary_size)


@pytest.fixture(scope="session")
def thinking_grammars(tokenizer: Tokenizer) -> Grammars:
    """Reasoning and calls between tags that are text."""
    return Grammars(tokenizer, frontend(tool_markers=HERMES, reasoning_markers=THINK), tokenizer.vocabulary_size)


@pytest.fixture(scope="session")
def tagged_grammars(tagged_tokenizer: Tokenizer) -> Grammars:
    """Reasoning and calls between tags that are tokens."""
    markers = frontend(tool_markers=HERMES, reasoning_markers=THINK)
    return Grammars(tagged_tokenizer, markers, tagged_tokenizer.vocabulary_size)


@pytest.fixture(scope="session")
def schemas() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "schemas.json"
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table
