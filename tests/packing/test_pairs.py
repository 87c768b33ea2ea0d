"""Every value source under every indexing that the contract allows it, packed into a destination that the contract accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from helios.contract.enums import ElementType, ImageLayout, Indexing, Operation, ValueSource
from helios.contract.prepared import Binding, Destination, Graph
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.contract.sources import IMAGE_TENSORS, SHAPES, Geometry, SourceShape, mismatches
from helios.packing.packer import Packer
from helios.packing.values import Values

BATCH, DRAFTS, WIDTH, PACKED = 4, 2, 3, 8
N_REQUEST_SLOTS, VOCABULARY, PAGE_TOKENS = 6, 70, 4
SLOTS = (5, 2, 3)  # of three lanes; two of them neighbours
OFFSET, PADDING, CONSTANT = 1000, -7, 123_456
BEFORE, STALE, BEHIND = 32, 0xA5, 48  # bytes before the destination, what staging held, bytes behind it
BUFFER = 9

PROGRAM = execution.Program(
    operation=execution.OPERATION_SPECULATIVE,
    batch_capacity=BATCH,
    draft_tokens=DRAFTS,
    token_capacity=WIDTH,
    packed_token_capacity=PACKED,
)
MODEL = pb.ModelContract(
    vocabulary=VOCABULARY,
    cache=pb.CacheContract(page_tokens=PAGE_TOKENS),
    frontend=pb.FrontendContract(image_layout=pb.IMAGE_LAYOUT_AXES, image_tokens=pb.ImageTokens(patch_pixels=2)),
)
MANIFEST = execution.ExecutionManifest(request_slots=N_REQUEST_SLOTS)
GEOMETRY = Geometry.of(MODEL, MANIFEST, PROGRAM)
WITHOUT_VALUES = (ValueSource.CONSTANT, ValueSource.INACTIVE_PADDING)


@dataclass(frozen=True)
class Pair:
    """An allowed source and indexing, and an element type that the source may be stored as."""

    source: ValueSource
    image_tensor: str
    shape: SourceShape
    indexing: Indexing
    element_type: ElementType

    @property
    def key(self) -> ValueSource | str:
        return self.image_tensor or self.source

    def __str__(self) -> str:
        return f"{self.image_tensor or self.source.name}-{self.indexing.name}-{self.element_type.name}"


def allowed() -> Iterator[Pair]:
    shapes = [(source, "", shape) for source, shape in SHAPES.items()]
    shapes += [(ValueSource.IMAGE_TENSOR, *entry) for entry in IMAGE_TENSORS[ImageLayout.AXES].items()]
    for source, image_tensor, shape in shapes:
        for indexing in shape.indexings:
            for element_type in shape.element_types:
                yield Pair(source, image_tensor, shape, indexing, element_type)


def destination_of(shape: SourceShape, indexing: Indexing, element_type: ElementType) -> Destination:
    """The smallest destination that takes the source, behind other bytes of its buffer."""
    n_indices = shape.n_indices(GEOMETRY) if shape.n_indices else GEOMETRY.n_indices(indexing)
    words = shape.nbytes(GEOMETRY) // element_type.dtype.itemsize
    return Destination("place", BUFFER, BEFORE, element_type, n_indices * words, words)


def rows_of(indexing: Indexing, n_rows: int) -> list[int]:
    """Which row each value goes to."""
    return list(SLOTS) if indexing is Indexing.PHYSICAL_REQUEST_ROW else list(range(n_rows))


def number_of_values(source: ValueSource, indexing: Indexing) -> int:
    if source is ValueSource.SUBMISSION:
        return 4
    return {Indexing.SCALAR: 1, Indexing.PACKED_TOKEN: 5}.get(indexing, len(SLOTS))


def make_values(source: ValueSource, n_rows: int, n_words: int) -> np.ndarray:
    """int32 rows without two equal words; lanes' slots and the live count are what they are."""
    if source is ValueSource.SLOT:
        return np.array(SLOTS, np.int32)
    if source is ValueSource.LIVE_ROW_COUNT:
        return np.array([len(SLOTS)], np.int32)
    numbers = np.arange(1, n_rows * n_words + 1, dtype=np.int32) * 1_000_003
    return numbers if n_words == 1 else numbers.reshape(n_rows, n_words)


def expected_rows(
    source: ValueSource, indexing: Indexing, element_type: ElementType, supplied: np.ndarray, n_rows: int
) -> dict[int, bytes]:
    """Row to its bytes, said the slow way; every other row has to stay as it was."""
    row_nbytes = 4 * (supplied.shape[1] if supplied.ndim == 2 else 1)
    shifted = supplied + OFFSET if element_type.is_integer else supplied
    rows = {row: shifted[i].tobytes() for i, row in enumerate(rows_of(indexing, n_rows))}
    padding = np.full(row_nbytes // element_type.dtype.itemsize, PADDING, np.int64).astype(element_type.dtype).tobytes()
    if source is ValueSource.CONSTANT:
        number = np.full(row_nbytes // 4, CONSTANT + OFFSET, np.int32).tobytes()
        rows = dict.fromkeys(range(BATCH) if indexing is Indexing.SUBMISSION_ROW else rows, number)
    elif source is ValueSource.INACTIVE_PADDING:
        rows = dict.fromkeys(range(len(SLOTS), BATCH), padding)
    elif indexing is Indexing.SUBMISSION_ROW:
        rows |= dict.fromkeys(range(n_rows, BATCH), padding)
    return rows


@pytest.mark.parametrize("pair", list(allowed()), ids=str)
def test_a_source_is_packed_as_its_indexing_says(pair: Pair) -> None:
    """CON-6, CON-7: values, offset and padding land in the rows that the indexing names, and only these are transferred."""
    source, indexing, element_type = pair.source, pair.indexing, pair.element_type
    destination = destination_of(pair.shape, indexing, element_type)
    offset = OFFSET if element_type.is_integer else 0
    constant = CONSTANT if source is ValueSource.CONSTANT else 0
    check_accepted(pair, destination)
    staging = np.full(BEFORE + destination.nbytes + BEHIND, STALE, np.uint8)
    n_rows = number_of_values(source, indexing)
    supplied = make_values(source, n_rows, destination.nbytes // 4 // destination.n_indices)
    values: Values = {
        ValueSource.SLOT: np.array(SLOTS, np.int32),
        ValueSource.LIVE_ROW_COUNT: np.array([len(SLOTS)], np.int32),
    }
    if source not in WITHOUT_VALUES:
        values[pair.key] = supplied

    binding = Binding("place", source, indexing, offset, PADDING, constant, pair.image_tensor)
    graph = Graph("spec", 0, Operation.SPECULATIVE, BATCH, DRAFTS, WIDTH, PACKED, (binding,), (), None, None, 1)
    spans = Packer(graph, {"place": destination}, {BUFFER: staging}).pack(values)

    row_nbytes = destination.nbytes // destination.n_indices
    expected = np.full(len(staging), STALE, np.uint8)
    written = set()
    for row, content in expected_rows(source, indexing, element_type, supplied, n_rows).items():
        start = BEFORE + row * row_nbytes
        expected[start : start + row_nbytes] = np.frombuffer(content, np.uint8)
        written |= set(range(start, start + row_nbytes))
    np.testing.assert_array_equal(staging, expected)
    assert {byte for span in spans for byte in range(span.start, span.end)} == written
    assert {span.buffer_id for span in spans} == {BUFFER}


def test_every_source_is_tested() -> None:
    """CON-6: a source that the contract knows can be packed."""
    assert {pair.source for pair in allowed()} == set(ValueSource)
    assert {pair.image_tensor for pair in allowed()} == {"", *(n for names in IMAGE_TENSORS.values() for n in names)}


def check_accepted(pair: Pair, destination: Destination) -> None:
    """The contract's own rule takes the destination, so what is tested here is what can be served."""
    binding = pb.ValueBinding(
        destination="place", source=pair.source, indexing=pair.indexing, image_tensor=pair.image_tensor
    )
    message = execution.Destination(
        name="place",
        buffer=BUFFER,
        offset=destination.offset,
        element_type=destination.element_type,
        count=destination.count,
        element_words=destination.element_words,
    )
    assert mismatches(binding, message, GEOMETRY) == []
