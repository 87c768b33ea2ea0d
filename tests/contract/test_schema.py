"""The schema says what every message, field and number means."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.repo.sources import ROOT

SCHEMA = ROOT / "helios" / "contract" / "schema"
ENTRY = re.compile(r"= \d+;")


@pytest.mark.parametrize("name", ["contract.proto", "execution.proto"])
def test_every_message_and_every_field_is_documented(name: str) -> None:
    """Units and shapes stand beside the field, and what a message is for above it."""
    lines = (SCHEMA / name).read_text().splitlines()
    missing = []
    for before, line in itertools.pairwise(lines):
        is_head = line.startswith(("message ", "enum "))
        is_entry = ENTRY.search(line) and "_UNSPECIFIED = 0;" not in line
        if (is_head and not before.startswith("//")) or (is_entry and "//" not in line):
            missing.append(line.strip())
    assert not missing


@pytest.mark.parametrize("name", ["contract.proto", "execution.proto"])
def test_every_enum_has_an_unspecified_zero_and_the_rest_has_one_meaning_each(name: str) -> None:
    """CON-4."""
    text = (SCHEMA / name).read_text()
    for enum, body in re.findall(r"^enum (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        numbers = [int(number) for number in re.findall(r"^  \w+ = (\d+);", body, re.MULTILINE)]
        assert re.search(r"^  \w+_UNSPECIFIED = 0;", body, re.MULTILINE), enum
        assert len(set(numbers)) == len(numbers), enum
        assert "allow_alias" not in body
