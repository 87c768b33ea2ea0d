"""How byte-level BPE vocabularies cut text into words before merging, by the name that a GGUF gives (`tokenizer.ggml.pre`).

It is data: the tokenizer.json form of each, as the models' publishers wrote it (or, for "default", as llama.cpp defines it, for
files that name nothing better). A name that is not here is refused, because a near miss would silently change every prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helios.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`ignores_merges`: a word that is itself a token is taken whole. `adds_bos`: what holds when the GGUF does not say."""

    steps: tuple[dict[str, Any], ...]
    ignores_merges: bool = False
    adds_bos: bool = False

    def to_json(self) -> dict[str, Any]:
        return self.steps[0] if len(self.steps) == 1 else {"type": "Sequence", "pretokenizers": list(self.steps)}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _words(digits: str) -> str:
    """The pattern of Llama 3 and Qwen 2, which differ in how many digits make a word."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_GPT2 = PreTokenizer((_byte_level(use_regex=True),))
_SMOLLM = PreTokenizer(({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)))
_LLAMA3 = PreTokenizer(
    (_split(_words(r"\p{N}{1,3}")), _byte_level(use_regex=False)), ignores_merges=True, adds_bos=True
)
# Without the NFC normalisation of the publisher's file, as llama.cpp: text has to come back as it was.
_QWEN2 = PreTokenizer((_split(_words(r"\p{N}")), _byte_level(use_regex=False)))
_DEFAULT = PreTokenizer(
    (
        _split(r"[\p{P}\$\+<=>\^~\|]+"),
        _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
        _split(r"\p{N}+"),
        _split(r"[0-9][0-9][0-9]"),
        _byte_level(use_regex=False),
    )
)

_PRE_TOKENIZERS = {
    "default": _DEFAULT,
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; CheckpointError, naming it, when this build does not know it."""
    if name not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise CheckpointError(
            f"metadata 'tokenizer.ggml.pre' is {name[:100]!r}, which this build does not know", hint=f"it knows {known}"
        )
    return _PRE_TOKENIZERS[name]
