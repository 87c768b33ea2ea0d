"""Incremental decoding: whatever the tokens, the pieces join to what decoding everything at once gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helios.errors import InvalidValueError
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer

FAMILY = "é 中 😀 👩\u200d👩\u200d👧"


def byte_ids(tokenizer: Tokenizer) -> list[int]:
    """The id of the single-byte token of each byte value."""
    by_piece = {
        piece: token_id for token_id, piece in reversed(list(enumerate(tokenizer.byte_table(skip_special=True))))
    }
    return [by_piece[bytes([byte])] for byte in range(256)]


def fed(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    decoder = IncrementalDecoder(tokenizer, skip_special=skip_special)
    return [*map(decoder.push, ids), decoder.flush()]


@pytest.fixture(scope="module", params=["byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    chosen: Tokenizer = request.getfixturevalue(request.param)
    return chosen


def test_characters_spread_over_byte_tokens_arrive_whole(byte_level: Tokenizer) -> None:
    """Research item 1: one byte per token, no broken piece."""
    single = byte_ids(byte_level)
    pieces = fed(byte_level, [single[byte] for byte in FAMILY.encode()])
    assert "".join(pieces) == FAMILY
    assert not any("\ufffd" in piece for piece in pieces)
    assert [piece for piece in pieces if piece] == list(FAMILY)


def test_every_space_behind_a_prompt_is_the_models_own(sentencepiece: Tokenizer) -> None:
    """Research item 4: words keep their spaces when tokens come one at a time, the first word too."""
    ids = sentencepiece.encode("hello hello  w", allow_special=False)
    assert "".join(fed(sentencepiece, ids)) == " hello hello  w"
    end = sentencepiece.token_id("</s>")
    assert end is not None
    assert "".join(fed(sentencepiece, [end, *ids])) == " hello hello  w"
    assert "".join(fed(sentencepiece, [end, *ids], skip_special=False)) == "</s> hello hello  w"


def test_special_tokens_are_skipped_or_shown(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("hello<|end|> world", allow_special=True)
    assert "".join(fed(byte_level, ids)) == "hello world"
    assert "".join(fed(byte_level, ids, skip_special=False)) == "hello<|end|> world"


@given(data=st.data())
def test_pieces_join_to_the_whole_and_only_an_unfinished_character_is_held(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    """Fed one by one, and fed again after a flush, it gives what decoding adds to a prompt's text when everything follows that."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_size - 1), max_size=30))
    skip_special = data.draw(st.booleans())
    prompt = tokenizer.encode("hello", allow_special=False)

    def behind_prompt(n_tokens: int) -> str:
        return tokenizer.decode(prompt + ids[:n_tokens], skip_special=skip_special).removeprefix("hello")

    decoder = IncrementalDecoder(tokenizer, skip_special=skip_special)
    for _ in range(2):
        text = ""
        for n_fed, token_id in enumerate(ids, start=1):
            text += decoder.push(token_id)
            # What is held back is one unfinished character, on its own one U+FFFD, or two (half a surrogate, ED A0).
            assert behind_prompt(n_fed) in (text, text + "\ufffd", text + "\ufffd\ufffd")
        assert text + decoder.flush() == behind_prompt(len(ids))


@given(content=st.binary(max_size=24))
@example(content=b"\xf0\x9f\x98")
@example(content=b"\xed\xa0")
@example(content=b"\xf0\x9f\x98a\x80\xe4\xb8\xff\xed\xa0\x80")
def test_invalid_bytes_become_what_python_makes_of_the_whole(byte_level: Tokenizer, content: bytes) -> None:
    single = byte_ids(byte_level)
    assert "".join(fed(byte_level, [single[byte] for byte in content])) == content.decode("utf-8", errors="replace")


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), data=st.data())
def test_text_fed_whole_byte_by_byte_and_in_any_pieces_is_the_same(
    byte_level: Tokenizer, text: str, data: st.DataObject
) -> None:
    single = byte_ids(byte_level)
    content = text.encode()
    whole = byte_level.encode(text, allow_special=False)
    cut = data.draw(st.integers(0, len(content)))
    head = content[:cut].decode("utf-8", errors="ignore")
    pieces = byte_level.encode(head, allow_special=False) + [single[byte] for byte in content[len(head.encode()) :]]
    for ids in (whole, [single[byte] for byte in content], pieces):
        assert "".join(fed(byte_level, ids)) == text
        after = [*ids, single[0xE4]]
        assert "".join(fed(byte_level, after)) == text + "\ufffd"


def test_flush_gives_the_unfinished_tail_and_starts_over(byte_level: Tokenizer) -> None:
    single = byte_ids(byte_level)
    decoder = IncrementalDecoder(byte_level)
    assert [decoder.push(single[byte]) for byte in "😀".encode()[:3]] == ["", "", ""]
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
    assert decoder.push(single[ord("a")]) == "a"


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_an_id_out_of_range_is_an_error_and_changes_nothing(byte_level: Tokenizer, token_id: int) -> None:
    single = byte_ids(byte_level)
    decoder = IncrementalDecoder(byte_level)
    decoder.push(single[0xC3])
    with pytest.raises(InvalidValueError, match="is not in the vocabulary"):
        decoder.push(token_id)
    assert decoder.push(single[0xA9]) == "é"
