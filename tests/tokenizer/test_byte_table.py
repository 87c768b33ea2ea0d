"""A table of tokens' bytes is the list of them, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.tokenizer.byte_table import ByteTable


@given(groups=st.lists(st.lists(st.binary(max_size=5))), hidden=st.sets(st.integers(0, 9)))
def test_a_table_holds_what_it_was_made_of(groups: list[list[bytes]], hidden: set[int]) -> None:
    table = ByteTable(groups)
    pieces = [piece for group in groups for piece in group]
    shown = table.hiding(hidden)
    assert [table[token_id] for token_id in range(len(table))] == list(table) == pieces
    assert list(shown) == [b"" if token_id in hidden else piece for token_id, piece in enumerate(pieces)]
    for token_id in (-1, len(pieces)):
        with pytest.raises(IndexError):
            shown[token_id]
