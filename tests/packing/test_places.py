"""A row of one number in each element, whatever the elements are."""

from __future__ import annotations

import numpy as np
import pytest

from helios.contract.enums import ElementType
from helios.contract.prepared import Destination
from helios.packing.writes import Place

N_ROWS = 2


@pytest.mark.parametrize("element_words", [1, 3])
@pytest.mark.parametrize("element_type", [ElementType.I32, ElementType.U32, ElementType.F32, ElementType.U8])
@pytest.mark.parametrize("number", [0, 7, -1])
def test_a_row_of_a_number_fills_a_destination(element_type: ElementType, element_words: int, number: int) -> None:
    destination = Destination("place", 0, 0, element_type, N_ROWS * element_words, element_words)
    staging = np.full(destination.nbytes, 0xAA, np.uint8)
    place = Place.of(destination, staging, "graph")
    place.rows[:] = place.row_of(number, destination)
    expected = np.full(N_ROWS * element_words, number, np.int64).astype(destination.dtype)
    assert staging.tobytes() == expected.tobytes()


def test_a_wide_row_of_integers_takes_no_memory() -> None:
    """One for each program and frame would take megabytes where a row is as wide as the vocabulary."""
    destination = Destination("histogram", 0, 0, ElementType.U32, 49_152, 49_152)
    place = Place.of(destination, np.zeros(destination.nbytes, np.uint8), "graph")
    assert place.row_of(0, destination).strides == (0,)
