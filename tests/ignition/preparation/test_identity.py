"""Served names and digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from helios.ignition.preparation.identity import _READ_NBYTES, digest, file_digest, name_of_file, slug


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


@pytest.mark.parametrize("nbytes", [1, _READ_NBYTES, _READ_NBYTES + 1])
def test_a_file_is_known_by_all_of_its_bytes(tmp_path: Path, nbytes: int) -> None:
    """CORE-1: what a core is found again by."""
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(nbytes - 1) + b"x")
    assert file_digest(path) == hashlib.sha256(path.read_bytes()).digest()
