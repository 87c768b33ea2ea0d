"""Served names and digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from helios.errors import MissingFileError
from helios.ignition.preparation.identity import digest, file_digest, name_of_file, slug


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("qwen2.5-0.5b-instruct-q8_0.gguf", "qwen2.5-0.5b-instruct"),
        ("Llama-3.2-1B.BF16.gguf", "llama-3.2-1b"),
        ("model-f16.gguf", "model"),
        ("../models/Été 1.gguf", "t-1"),
        ("---.gguf", "model"),
    ],
)
def test_a_file_name_becomes_a_served_name(file: str, name: str) -> None:
    assert name_of_file(Path(file)) == name


def test_a_slug_is_bounded() -> None:
    assert len(slug("a" * 1000)) == 100


def test_no_two_lists_of_parts_share_a_digest() -> None:
    lists = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], []]
    assert len({digest(parts) for parts in lists}) == len(lists)


@pytest.mark.parametrize("nbytes", [0, 1, 1_000_000])
def test_a_file_is_known_by_all_of_its_bytes(tmp_path: Path, nbytes: int) -> None:
    """What a core is found again by."""
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(range(250)) * (nbytes // 250) + bytes(nbytes % 250))
    assert file_digest(path) == hashlib.sha256(path.read_bytes()).digest()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="gone cannot be read: No such file"):
        file_digest(tmp_path / "gone")
