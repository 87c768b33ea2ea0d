"""No part that serves knows which model it serves: its sources name no model and no architecture (RT-1, FE-1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.sources import ROOT

SERVING_PARTS = ["contract", "packing", "scheduler", "runtime", "cache", "prompt", "output", "server"]
_FAMILIES = [
    "llama",
    "smol",
    "qwen",
    "qwq",
    "glm",
    "deepseek",
    "kimi",
    "moonshot",
    "mi[sx]tral",
    "ministral",
    "codestral",
    "gemma",
    "gemini",
    "phi-?[1-9]",
    "gpt",
    "hermes",
    "claude",
    "falcon",
    "granite",
    "command-?r",
    "cohere",
    "nemotron",
    "olmo",
    "mamba",
    "minimax",
    "muse(?!um)",
    "internlm",
    "baichuan",
    "starcoder",
    "rwkv",
    "bert",
    "ernie",
    "hunyuan",
    "jamba",
    "grok",
    "exaone",
    "yi-[0-9]",
]
MODEL_NAME = re.compile(rf"(?<![a-z])({'|'.join(_FAMILIES)})", re.IGNORECASE)


def sources_of(part: str) -> list[Path]:
    """Everything written in a package, the schema and its generated messages included."""
    return sorted(path for path in (ROOT / "helios" / part).rglob("*") if path.suffix in {".py", ".pyi", ".proto"})


@pytest.mark.parametrize("part", SERVING_PARTS)
def test_a_serving_part_names_no_model(part: str) -> None:
    """RT-1: no branch on a model's name, nor the name that one could branch on."""
    sources = sources_of(part)
    assert sources, f"helios/{part} has no sources"
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MODEL_NAME.search(line)
    ]
    assert not named


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("if name == 'llama':", True),
        ("TOOL_SYNTAX_QWEN_CODER = 2;", True),
        ("the GLM tags", True),
        ("hermes_json", True),
        ("class Phi3Parser", True),
        ("muse_frames", True),
        ("philosophy and algorithms", False),
        ("museum", False),
        ("amuse", False),
        ("liberty", False),
    ],
)
def test_the_search_finds_names_and_not_words_that_contain_them(text: str, is_name: bool) -> None:
    """A search that finds nothing may have looked for nothing."""
    assert bool(MODEL_NAME.search(text)) == is_name
