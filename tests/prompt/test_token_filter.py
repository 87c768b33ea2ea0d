"""Masks of allowed tokens and least lengths, alone and around a grammar's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helios.errors import ConstraintError
from helios.prompt.token_filter import FilteredAnswer, TokenFilter

VOCABULARY = 70


class Fixed:
    """A grammar that allows the same tokens every time; None: all of them."""

    def __init__(self, *allowed: int) -> None:
        self.row = np.zeros(3, "<u4")
        for token_id in allowed:
            self.row[token_id >> 5] |= np.uint32(1 << (token_id & 31))
        self.advanced: list[int] = []

    def mask(self) -> Any:
        return self.row

    def advance(self, token_id: int) -> None:
        self.advanced.append(token_id)


def allowed_by(filter_: FilteredAnswer) -> set[int]:
    row = filter_.mask()
    if row is None:
        return set(range(VOCABULARY))
    assert row.dtype == np.uint32
    assert len(row) == 3
    return {i for i in range(96) if row[i >> 5] >> (i & 31) & 1}


def test_only_allowed_tokens_and_no_others() -> None:
    """GRPC-2: allowed_token_ids."""
    assert allowed_by(TokenFilter(VOCABULARY, [0, 31, 32, 69], [], 0).start()) == {0, 31, 32, 69}


def test_no_ending_among_the_first_tokens() -> None:
    """GRPC-2: min_new_tokens; bits beyond the vocabulary are never set."""
    filter_ = TokenFilter(VOCABULARY, [], [5, 64], 2).start()
    assert allowed_by(filter_) == set(range(VOCABULARY)) - {5, 64}
    filter_.advance(1)
    assert allowed_by(filter_) == set(range(VOCABULARY)) - {5, 64}
    filter_.advance(1)
    assert filter_.mask() is None


def test_a_grammar_and_a_list_allow_what_both_do() -> None:
    grammar = Fixed(1, 2, 3)
    filter_ = TokenFilter(VOCABULARY, [2, 3, 4], [], 0).start(grammar)
    assert allowed_by(filter_) == {2, 3}
    filter_.advance(2)
    assert grammar.advanced == [2]
    assert list(grammar.row) == [0b1110, 0, 0], "the grammar's own row is not written"


def test_a_form_that_is_complete_ends_before_the_least_length() -> None:
    assert allowed_by(TokenFilter(VOCABULARY, [], [5], 4).start(Fixed(5, 6))) == {6}
    assert allowed_by(TokenFilter(VOCABULARY, [], [5], 4).start(Fixed(5))) == {5}


def test_a_form_that_is_complete_ends_although_no_ending_is_allowed() -> None:
    """GRPC-2: and one that could go on does, for as long as tokens of it are allowed."""
    for n_least in (0, 4):
        assert allowed_by(TokenFilter(VOCABULARY, [6], [5, 7], n_least).start(Fixed(5, 6))) == {6}
        assert allowed_by(TokenFilter(VOCABULARY, [6], [5, 7], n_least).start(Fixed(5, 7))) == {5, 7}
        assert allowed_by(TokenFilter(VOCABULARY, [6, 7], [5, 7], n_least).start(Fixed(5, 7))) == {7}
        with pytest.raises(ConstraintError):
            TokenFilter(VOCABULARY, [6], [5, 7], n_least).start(Fixed(5, 8)).mask()


def test_a_mask_that_allows_nothing_is_an_error() -> None:
    for filter_ in (
        TokenFilter(VOCABULARY, [1], [], 0).start(Fixed(2)),
        TokenFilter(VOCABULARY, [1], [1], 1).start(),
    ):
        with pytest.raises(ConstraintError):
            filter_.mask()


def test_answers_count_their_tokens_apart() -> None:
    """One request, several sequences."""
    rules = TokenFilter(VOCABULARY, [1, 5], [5], 1)
    first, second = rules.start(), rules.start()
    first.advance(1)
    assert allowed_by(first) == {1, 5}
    assert allowed_by(second) == {1}
