"""Frames of streamed texts: the bytes that whole encoding gives, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import InternalError
from helios.server.exchange import to_json
from helios.server.text_frame import MARK, TextFrame


def document(text: str, **others: object) -> dict[str, object]:
    return {"id": "x-1", "choices": [{"index": 0, "delta": {"content": text}}], "usage": None, **others}


@given(st.text() | st.just('\ud800 "\\/\x00\x1f\u2028é😀'))
def test_a_framed_text_is_the_encoded_document(text: str) -> None:
    """FE-7: quotes, controls, characters of every length, and surrogates that nobody can encode."""
    assert TextFrame(document(MARK)).data(text) == to_json(document(text))


def test_texts_do_not_stick() -> None:
    frame = TextFrame(document(MARK))
    assert [frame.data(text) for text in ("a", "", "b")] == [to_json(document(text)) for text in ("a", "", "b")]


@pytest.mark.parametrize("other", [{}, {"again": MARK}])
def test_a_document_without_its_text_or_with_it_twice_is_ours_to_answer_for(other: dict[str, object]) -> None:
    with pytest.raises(InternalError):
        TextFrame(document(MARK, **other) if other else document("text"))
