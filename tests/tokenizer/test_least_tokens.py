"""The lower bound of a text's tokens: never above them, and high enough for what is far too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import ContextLengthError
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.tokenizer import prepare_tokenizer
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies
from tests.tokenizer.test_tokenizer import TEXTS

# Runs of one class, and of what tokens are long in.
RUNS = st.builds(
    lambda text, n: text * n,
    st.one_of(
        TEXTS,
        st.sampled_from(["a", "0", " ", "\n", "#", "=", "é", "中", "─", "😀", "hello", " world", "\u2581", "\xf1"]),
    ),
    st.integers(1, 40),
)


def bound(tokenizer: Tokenizer, text: str) -> int:
    """The number of tokens that `text` is refused for where none are allowed, 0 if it is not."""
    try:
        tokenizer.check_length(text, 0)
    except ContextLengthError as error:
        return int(str(error).split()[2].replace(",", ""))
    return 0


@given(text=RUNS)
def test_it_is_never_above_the_tokens(
    default_tokenizer: Tokenizer, byte_level: Tokenizer, sentencepiece: Tokenizer, text: str
) -> None:
    for tokenizer in (default_tokenizer, byte_level, sentencepiece):
        for allow_special in (False, True):
            assert bound(tokenizer, text) <= len(tokenizer.encode(text, allow_special=allow_special))


@pytest.mark.parametrize("text", ["hello world ", "a", "é", "中", "x1 ", "{}", "<|im_end|>", " ", "\n\t"])
def test_a_text_of_a_mebibyte_has_more_tokens_than_a_context(default_tokenizer: Tokenizer, text: str) -> None:
    long = text * ((1 << 20) // len(text.encode()))
    with pytest.raises(ContextLengthError, match=r"^prompt has [\d,]+ tokens or more, the limit is 8,191;"):
        default_tokenizer.check_length(long, 8191)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ""}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": False}},
        {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "a"}},
    ],
)
def test_where_characters_may_vanish_nothing_is_sure(tmp_path: Path, change: dict[str, object]) -> None:
    with open_gguf(vocabularies.byte_level(tmp_path / "model.gguf")) as file:
        settings = json.loads(prepare_tokenizer(file)[0])
    for made, is_sure in ((settings, True), (settings | change, False)):
        tokenizer = Tokenizer.from_bytes(json.dumps(made).encode())
        assert (bound(tokenizer, "a" * 1000) > 0) == is_sure


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_blanks_that_a_token_swallows_are_not_counted(tmp_path: Path, side: str) -> None:
    with open_gguf(vocabularies.byte_level(tmp_path / "model.gguf")) as file:
        settings = json.loads(prepare_tokenizer(file)[0])
    for swallows in (False, True):
        settings["added_tokens"][0][side] = swallows
        tokenizer = Tokenizer.from_bytes(json.dumps(settings).encode())
        text = " " * 1000 + settings["added_tokens"][0]["content"] + " " * 1000
        assert (bound(tokenizer, text) > 500) != swallows
        assert bound(tokenizer, text) <= len(tokenizer.encode(text, allow_special=True))
