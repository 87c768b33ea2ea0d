"""What is transferred: neighbours in one span, and never a byte of what a round leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract.enums import ElementType, Indexing, Operation, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.errors import ContractError, InternalError
from helios.packing.packer import MAX_TAIL_NBYTES, Packer

LANES = 4
SLOT, LENGTH, TOKENS = ValueSource.SLOT, ValueSource.QUERY_LENGTH, ValueSource.PROMPT_TOKENS


def bind(source: ValueSource, indexing: Indexing = Indexing.ACTIVE_ROW, constant: int = 0) -> Binding:
    return Binding(source.name, source, indexing, 0, 0, constant, "")


def graph_of(*bindings: Binding) -> Graph:
    return Graph("decode.b4", 0, Operation.DECODE, LANES, 0, 1, LANES, bindings, (), None, None, 1)


def lay_out(*counts: tuple[ValueSource, int], gap: int = 0) -> dict[str, Destination]:
    """int32 destinations one behind the other in buffer 1, `gap` bytes between them."""
    places, offset = {}, 0
    for source, count in counts:
        places[source.name] = Destination(source.name, 1, offset, ElementType.I32, count, 1)
        offset += 4 * count + gap
    return places


def pack(graph: Graph, places: dict[str, Destination], **values: list[int]) -> list[tuple[int, int, int]]:
    staging: dict[int, np.ndarray] = {}
    for place in places.values():
        end = place.offset + place.nbytes
        if end > len(staging.get(place.buffer_id, ())):
            staging[place.buffer_id] = np.zeros(end, np.uint8)
    supplied = {ValueSource[name]: np.array(value, np.int32) for name, value in values.items()}
    return [(s.buffer_id, s.start, s.end) for s in Packer(graph, places, staging).pack(supplied)]


def test_neighbours_go_in_one_transfer_with_the_short_tails_between_them() -> None:
    """CON-9: a round of a few lanes is one copy."""
    places = lay_out((SLOT, LANES), (LENGTH, LANES), gap=8)
    assert pack(graph_of(bind(SLOT), bind(LENGTH)), places, SLOT=[1, 2], QUERY_LENGTH=[3, 4]) == [(1, 0, 24 + 8)]


def test_the_order_of_bindings_does_not_matter() -> None:
    """Transfers follow the places, whatever order the contract has."""
    places = lay_out((SLOT, LANES), (LENGTH, LANES))
    assert pack(graph_of(bind(LENGTH), bind(SLOT)), places, SLOT=[1], QUERY_LENGTH=[3]) == [(1, 0, 20)]


def test_a_long_tail_is_not_carried() -> None:
    """CON-7: active rows omit inactive tails; beyond a kilobyte two transfers are cheaper."""
    short, long = 1 + MAX_TAIL_NBYTES // 4, 2 + MAX_TAIL_NBYTES // 4
    graph = graph_of(bind(SLOT), bind(LENGTH))
    for n_rows, expected in ((short, [(1, 0, 4 * short + 8)]), (long, [(1, 0, 4), (1, 4 * long, 4 * long + 8)])):
        assert pack(graph, lay_out((SLOT, n_rows), (LENGTH, LANES)), SLOT=[1], QUERY_LENGTH=[3, 4]) == expected


def test_an_omitted_transfer_between_two_others_is_left_out() -> None:
    """CON-7: the device keeps the bytes of what a round does not supply, although its neighbours are transferred."""
    places = lay_out((SLOT, LANES), (TOKENS, LANES), (LENGTH, LANES))
    graph = graph_of(bind(SLOT), bind(TOKENS, Indexing.PACKED_TOKEN), bind(LENGTH))
    whole = pack(graph, places, SLOT=[1] * 4, PROMPT_TOKENS=[5] * 4, QUERY_LENGTH=[3] * 4)
    assert whole == [(1, 0, 48)]
    assert pack(graph, places, SLOT=[1] * 4, QUERY_LENGTH=[3] * 4) == [(1, 0, 16), (1, 32, 48)]
    assert pack(graph, places, SLOT=[1] * 4, PROMPT_TOKENS=[], QUERY_LENGTH=[3] * 4) == [(1, 0, 16), (1, 32, 48)]


def test_a_destination_that_this_graph_does_not_bind_is_left_out() -> None:
    """CON-7: another program's values may lie between."""
    places = lay_out((SLOT, LANES), (TOKENS, LANES), (LENGTH, LANES))
    assert pack(graph_of(bind(SLOT), bind(LENGTH)), places, SLOT=[1] * 4, QUERY_LENGTH=[3]) == [(1, 0, 16), (1, 32, 36)]


def test_rows_by_slot_never_carry_another_slots_row() -> None:
    """CON-7: physical request rows; the rows between belong to requests that this round leaves alone."""
    places = lay_out((SLOT, LANES), (LENGTH, 8))
    graph = graph_of(bind(SLOT), bind(LENGTH, Indexing.PHYSICAL_REQUEST_ROW))
    assert pack(graph, places, SLOT=[5, 2, 6], QUERY_LENGTH=[1, 2, 3]) == [(1, 0, 12), (1, 24, 28), (1, 36, 44)]
    behind = lay_out((LENGTH, 8), (SLOT, LANES))
    assert pack(graph, behind, SLOT=[1], QUERY_LENGTH=[2]) == [(1, 4, 8), (1, 32, 36)]


def test_buffers_are_transferred_one_by_one() -> None:
    """A span lies in one buffer."""
    places = lay_out((SLOT, LANES)) | {"QUERY_LENGTH": Destination("QUERY_LENGTH", 2, 0, ElementType.I32, LANES, 1)}
    assert pack(graph_of(bind(SLOT), bind(LENGTH)), places, SLOT=[1], QUERY_LENGTH=[3]) == [(1, 0, 4), (2, 0, 4)]


def test_programs_may_share_a_place_with_different_constants() -> None:
    """CON-6: a constant is the program's, not the staging's."""
    place = {"CONSTANT": Destination("CONSTANT", 1, 0, ElementType.I32, 1, 1)}
    staging = {1: np.zeros(4, np.uint8)}
    packers = [Packer(graph_of(bind(ValueSource.CONSTANT, Indexing.SCALAR, n)), place, staging) for n in (3, 4)]
    for packer, number in zip(packers, (3, 4), strict=True):
        packer.pack({})
        assert staging[1].view(np.int32).tolist() == [number]


@pytest.mark.parametrize(
    ("source", "indexing", "values", "message"),
    [
        (LENGTH, Indexing.ACTIVE_ROW, {"QUERY_LENGTH": [1] * 9}, "9 values for QUERY_LENGTH, its destination holds 8"),
        (LENGTH, Indexing.ACTIVE_ROW, {"QUERY_LENGTH": [[1, 2]]}, "8 bytes for 1 of QUERY_LENGTH, one has 4"),
        (LENGTH, Indexing.PHYSICAL_REQUEST_ROW, {"QUERY_LENGTH": [1]}, "the round names no slots"),
        (LENGTH, Indexing.PHYSICAL_REQUEST_ROW, {"QUERY_LENGTH": [1], "SLOT": [8]}, "slots 8 to 8"),
        (LENGTH, Indexing.PHYSICAL_REQUEST_ROW, {"QUERY_LENGTH": [1, 2], "SLOT": [0, -1]}, "slots -1 to 0"),
        (
            LENGTH,
            Indexing.PHYSICAL_REQUEST_ROW,
            {"QUERY_LENGTH": [1, 2], "SLOT": [3]},
            "2 values of QUERY_LENGTH for 1",
        ),
        (ValueSource.CONSTANT, Indexing.ACTIVE_ROW, {}, "count of live ones is None"),
        (ValueSource.INACTIVE_PADDING, Indexing.SUBMISSION_ROW, {"LIVE_ROW_COUNT": [9]}, r"live ones is \[9\]"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_written(
    source: ValueSource, indexing: Indexing, values: dict[str, list[int]], message: str
) -> None:
    """CON-9: staging is bounded."""
    staging = {1: np.zeros(40, np.uint8)}
    packer = Packer(graph_of(bind(source, indexing)), lay_out((source, 8)), staging)
    with pytest.raises(InternalError, match=message):
        packer.pack({ValueSource[name]: np.array(value, np.int32) for name, value in values.items()})
    assert not staging[1].any()


def test_padding_beyond_the_destination_is_refused_at_start_up() -> None:
    """CON-9: extents are resolved once."""
    with pytest.raises(ContractError, match="has 3 rows, 4 are padded"):
        Packer(graph_of(bind(SLOT, Indexing.SUBMISSION_ROW)), lay_out((SLOT, 3)), {1: np.zeros(64, np.uint8)})


@given(st.lists(st.dictionaries(st.sampled_from([SLOT, TOKENS, LENGTH]), st.integers(0, LANES)), max_size=12))
def test_two_frames_never_overwrite_what_a_round_leaves_out(rounds: list[dict[ValueSource, int]]) -> None:
    """CON-7: an omitted transfer retains device bytes, although the other frame's staging still holds older numbers there."""
    places = lay_out((SLOT, LANES), (TOKENS, LANES), (LENGTH, LANES))
    graph = graph_of(bind(SLOT), bind(TOKENS, Indexing.PACKED_TOKEN), bind(LENGTH))
    staging = [np.zeros(48, np.uint8) for _ in range(2)]
    packers = [Packer(graph, places, {1: memory}) for memory in staging]
    device = np.full(48, 0xDD, np.uint8)
    for number, counts in enumerate(rounds):
        before = device.view(np.int32).reshape(3, LANES).copy()
        values = {source: np.arange(n, dtype=np.int32) + 100 * (number + 1) for source, n in counts.items()}
        for span in packers[number % 2].pack({**values}):
            device[span.start : span.end] = staging[number % 2][span.start : span.end]
        after = device.view(np.int32).reshape(3, LANES)
        for row, source in enumerate((SLOT, TOKENS, LENGTH)):
            n_supplied = counts.get(source, 0)
            assert after[row, :n_supplied].tolist() == values.get(source, np.empty(0)).tolist()
            if not n_supplied:
                assert after[row].tolist() == before[row].tolist()
