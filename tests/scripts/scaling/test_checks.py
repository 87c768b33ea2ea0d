"""What the checks of scripts/scale-out conclude from what they saw."""

from __future__ import annotations

import pytest

from scripts.scaling.checks import losses, prefix, stickiness


def test_a_stream_that_never_began_is_lost_and_one_that_broke_off_is_counted() -> None:
    assert losses([(9, ""), (0, ""), (3, "broken"), (1, "broken")]) == "none lost, 2 broken that had begun to stream"
    with pytest.raises(AssertionError, match="1 lost: refused"):
        losses([(9, ""), (0, "refused")])


def test_repeats_have_to_reach_the_worker_that_has_their_prefix() -> None:
    stickiness([[5, 0], [0, 5], [5, 0], [0, 5]])
    for wrong in ([[0, 5], [5, 0]], [[4, 1], [0, 5]], [[5, 0], [0, 4]]):
        with pytest.raises(AssertionError, match="repeats went"):
            stickiness(wrong)


def test_prefixes_differ_from_their_first_words_on() -> None:
    """Two that shared their first page would be one to a cache."""
    starts = [tuple(prefix(number).split()[:2]) for number in range(100)]
    assert len(set(starts)) == len(starts)
