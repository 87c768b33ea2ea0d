"""Words gathered in one go: the same bytes and the same transfers as writing one value after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import ElementType, Indexing, Operation, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.errors import InternalError
from helios.packing.packer import MAX_TAIL_NBYTES, Packer
from helios.packing.values import WORD_SOURCES, RoundWords

BUFFER, N_LANES = 1, 5
SCALARS = (ValueSource.LIVE_ROW_COUNT, ValueSource.PAGE_TABLE_UPDATE_COUNT, ValueSource.SUBMISSION)
OTHERS = (ValueSource.PROMPT_TOKENS, ValueSource.PAGE_TABLE_UPDATES)


class Numbers(NamedTuple):
    """A lane."""

    slot: int
    generation: int
    is_prompt: bool
    position: int
    query_length: int
    is_sampled: bool
    mask: None = None


numbers = st.integers(0, 2**31 - 1)
lanes = st.lists(
    st.builds(Numbers, numbers, numbers, st.booleans(), numbers, numbers, st.booleans()), min_size=1, max_size=N_LANES
)
submissions = st.tuples(st.integers(0, 2**64 - 1), numbers, st.integers(0, 1))
# (source, rows of room, gap behind it in words, (indexing of what counts lanes, offset))
LIVE, PADDED = Indexing.ACTIVE_ROW, Indexing.SUBMISSION_ROW
Layout = tuple[tuple[ValueSource, int, int, tuple[Indexing, int]], ...]
layouts = st.permutations(sorted(WORD_SOURCES) + list(OTHERS)).flatmap(
    lambda sources: st.tuples(
        *(
            st.tuples(
                st.just(source),
                st.integers(N_LANES, N_LANES + 3) | st.just(MAX_TAIL_NBYTES),
                st.integers(0, 4),
                st.sampled_from([(LIVE, 0), (LIVE, 0), (LIVE, 0), (LIVE, 1), (PADDED, 0)]),
            )
            for source in sources
        )
    )
)


def make(layout: Layout) -> tuple[Graph, dict[str, Destination], int]:
    places: dict[str, Destination] = {}
    bindings, end = [], 8
    for source, n_rows, n_gap_words, (rows, offset) in layout:
        places[source.name] = Destination(source.name, BUFFER, end, ElementType.I32, n_rows, 1)
        indexing = Indexing.SCALAR if source in SCALARS else rows
        bindings.append(Binding(source.name, source, indexing, offset, -1, 0, ""))
        end += 4 * (n_rows + n_gap_words)
    graph = Graph("decode.b5", 0, Operation.DECODE, N_LANES, 0, 1, N_LANES, tuple(bindings), (), None, None, 1)
    return graph, places, end


@given(layouts, st.lists(st.tuples(lanes, submissions, st.booleans()), min_size=1, max_size=3))
def test_gathered_words_are_those_that_are_written_one_by_one(
    layout: Layout,
    rounds: list[tuple[list[Numbers], tuple[int, int, int], bool]],
) -> None:
    """CON-7: whatever the order of destinations, and what lies between them; what is not supplied stays as it is."""
    graph, places, nbytes = make(layout)
    gathered, written = np.full(nbytes, 0xEE, np.uint8), np.full(nbytes, 0xEE, np.uint8)
    packers = Packer(graph, places, {BUFFER: gathered}), Packer(graph, places, {BUFFER: written})
    padded = {binding.source for binding in graph.bindings if binding.indexing is PADDED}
    words = RoundWords(N_LANES)
    for round_lanes, submission, has_others in rounds:
        values = words.of(round_lanes, 3, submission)
        if has_others:
            values |= {source: np.arange(2, dtype=np.int32) for source in OTHERS}
        spans = packers[0].pack(values, words)
        assert spans == packers[1].pack(values)
        for source, value in values.items():
            place = places[ValueSource(source).name]
            n_rows = N_LANES if source in padded else len(value)
            rows = slice(place.offset, place.offset + 4 * n_rows)
            assert gathered[rows].tolist() == written[rows].tolist()
        for place in (place for name, place in places.items() if ValueSource[name] not in values):
            rows = slice(place.offset, place.offset + place.nbytes)
            assert gathered[rows].tolist() == written[rows].tolist()


def test_more_lanes_than_a_destination_has_rows_are_refused_and_nothing_is_written() -> None:
    place = Destination("SLOT", BUFFER, 0, ElementType.I32, 2, 1)
    binding = Binding("SLOT", ValueSource.SLOT, Indexing.ACTIVE_ROW, 0, 0, 0, "")
    graph = Graph("decode.b5", 0, Operation.DECODE, 2, 0, 1, 2, (binding,), (), None, None, 1)
    staging, words = np.full(8, 7, np.uint8), RoundWords(N_LANES)
    packer = Packer(graph, {"SLOT": place}, {BUFFER: staging})
    values = words.of([Numbers(1, 1, False, 1, 1, True)] * 3)
    with pytest.raises(InternalError, match="SLOT"):
        packer.pack(values, words)
    assert staging.tolist() == [7] * 8
