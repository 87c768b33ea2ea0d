"""Tokenizers for the tests of this folder: the default model's and a small one of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.tokenizer import prepare_tokenizer
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies


def tokenizer_of(path: Path) -> Tokenizer:
    with open_gguf(path) as file:
        return Tokenizer.from_bytes(prepare_tokenizer(file)[0])


@pytest.fixture(scope="session")
def default_tokenizer(default_gguf: Path) -> Tokenizer:
    return tokenizer_of(default_gguf)


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of(vocabularies.byte_level(tmp_path_factory.mktemp("vocabulary") / "byte_level.gguf"))


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of(vocabularies.sentencepiece(tmp_path_factory.mktemp("vocabulary") / "sentencepiece.gguf"))
