"""What each value source supplies: how it may be indexed, and how wide its destination has to be (CON-6, CON-7).

It knows no program and no packing, only shapes: two tables, with one function that measures a program against them. A source or
an image tensor that is missing here cannot be bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from helios.contract.enums import ElementType, ImageLayout, Indexing, ValueSource
from helios.contract.schema import contract_pb2, execution_pb2

SAMPLING_ROW_NBYTES = 256  # HeliosSamplingRow of kernels.h
LOGIT_BIAS_NBYTES = 1024 * 8  # HELIOS_MAX_BIAS entries {int32 id, float value}
EOS_NBYTES = 16 * 4  # HELIOS_MAX_EOS ids
SUBMISSION_WORDS = 4  # {sequence low, sequence high, program index, frame index}
PATCH_CHANNELS = 3  # red, green, blue
POSITION_AXES = 3  # time, height, width

INTEGERS = (ElementType.I32, ElementType.U32)
_ROW_WORDS = (*INTEGERS, ElementType.F32, ElementType.U8)
_ROWS = (Indexing.SUBMISSION_ROW, Indexing.ACTIVE_ROW, Indexing.PHYSICAL_REQUEST_ROW)
_TOKENS = (Indexing.PACKED_TOKEN,)
_SCALAR = (Indexing.SCALAR,)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The extents that a destination is measured against."""

    vocabulary: int
    page_tokens: int
    n_slots: int
    image_layout: int  # ImageLayout
    patch_pixels: int
    program: execution_pb2.Program

    @classmethod
    def of(
        cls,
        model: contract_pb2.ModelContract,
        manifest: execution_pb2.ExecutionManifest,
        program: execution_pb2.Program,
    ) -> Geometry:
        return cls(
            model.vocabulary,
            model.cache.page_tokens,
            manifest.request_slots,
            model.frontend.image_layout,
            model.frontend.image_tokens.patch_pixels,
            program,
        )

    @property
    def mask_nbytes(self) -> int:
        """One bit for each token of the vocabulary, in words of 32."""
        return 4 * -(-self.vocabulary // 32)

    def n_indices(self, indexing: Indexing) -> int:
        """The most values that a round of this program has."""
        return {
            Indexing.SCALAR: 1,
            Indexing.SUBMISSION_ROW: self.program.batch_capacity,
            Indexing.ACTIVE_ROW: self.program.batch_capacity,
            Indexing.PHYSICAL_REQUEST_ROW: self.n_slots,
            Indexing.PACKED_TOKEN: self.program.packed_token_capacity,
        }[indexing]


@dataclass(frozen=True, slots=True)
class SourceShape:
    """`nbytes` is the width of one index; `n_indices`, where given, replaces the count that the indexing implies."""

    indexings: tuple[Indexing, ...]
    element_types: tuple[ElementType, ...] = INTEGERS
    nbytes: Callable[[Geometry], int] = lambda geometry: 4
    n_indices: Callable[[Geometry], int] | None = None


def _page_updates(geometry: Geometry) -> int:
    """A first page for each lane, and a new one whenever its tokens fill a page."""
    return geometry.program.batch_capacity + geometry.program.packed_token_capacity // geometry.page_tokens


_LANE = SourceShape(_ROWS)
_TOKEN = SourceShape(_TOKENS)
_ONE = SourceShape(_SCALAR)

SHAPES: dict[ValueSource, SourceShape] = {
    ValueSource.SLOT: _LANE,
    ValueSource.GENERATION: _LANE,
    ValueSource.LIVE_ROW_COUNT: _ONE,
    ValueSource.QUERY_LENGTH: _LANE,
    ValueSource.SPECULATIVE_PREFIX_LIMIT: _LANE,
    ValueSource.SAMPLING_DECISION: _LANE,
    ValueSource.MIXED_PREFILL_ROW: _LANE,
    ValueSource.PROMPT_TOKENS: _TOKEN,
    ValueSource.SCORED_TARGETS: _TOKEN,
    ValueSource.COMPLETED_PENDING_TOKEN: _LANE,
    ValueSource.PROMPT_POSITION: _LANE,
    ValueSource.IMAGE_FEATURE_INDEX: _TOKEN,
    ValueSource.IMAGE_CONTEXT_INDEX: _TOKEN,
    ValueSource.IMAGE_FEATURE_SLOT: _LANE,
    ValueSource.TOKEN_POSITION: _TOKEN,
    ValueSource.PAGE_TABLE_UPDATES: SourceShape(
        (Indexing.ACTIVE_ROW,), nbytes=lambda geometry: 8, n_indices=_page_updates
    ),
    ValueSource.PAGE_TABLE_UPDATE_COUNT: _ONE,
    ValueSource.LIVE_STATE_ROW: _LANE,
    ValueSource.RESTORE_SOURCE: _LANE,
    ValueSource.SNAPSHOT_DESTINATION: _LANE,
    ValueSource.CONSUMED_ENDPOINT: _LANE,
    ValueSource.SAMPLING_ROW: SourceShape(_ROWS, _ROW_WORDS, lambda geometry: SAMPLING_ROW_NBYTES),
    ValueSource.LOGIT_BIAS: SourceShape(_ROWS, _ROW_WORDS, lambda geometry: LOGIT_BIAS_NBYTES),
    ValueSource.PROMPT_HISTOGRAM: SourceShape(_ROWS, nbytes=lambda geometry: 4 * geometry.vocabulary),
    ValueSource.GRAMMAR_MASK: SourceShape(_ROWS, nbytes=lambda geometry: geometry.mask_nbytes),
    ValueSource.GRAMMAR_MASKED: _LANE,
    ValueSource.SEED_BITS: SourceShape(_ROWS, nbytes=lambda geometry: 8),
    ValueSource.OUTPUT_LIMIT: _LANE,
    ValueSource.EOS_TOKENS: SourceShape(_ROWS, nbytes=lambda geometry: EOS_NBYTES),
    ValueSource.PROPOSAL_TOKENS: SourceShape(_ROWS, nbytes=lambda geometry: 4 * geometry.program.draft_tokens),
    ValueSource.PROPOSAL_COUNT: _LANE,
    ValueSource.PROPOSAL_GENERATION: _LANE,
    ValueSource.PROPOSAL_CONSUMED: _LANE,
    ValueSource.PROPOSAL_GRAMMAR_MASKS: SourceShape(
        _ROWS, nbytes=lambda geometry: geometry.mask_nbytes * geometry.program.token_capacity
    ),
    ValueSource.CONSTANT: SourceShape((*_SCALAR, *_ROWS)),
    ValueSource.INACTIVE_PADDING: SourceShape((Indexing.SUBMISSION_ROW,)),
    ValueSource.SUBMISSION: SourceShape(_SCALAR, n_indices=lambda geometry: SUBMISSION_WORDS),
}

# The outputs of each image layout by name: pixels of a patch, channel by channel; {frames, rows, columns} of an image in
# patches; the position of a token on each axis.
_PATCHES = SourceShape(
    _TOKENS, (ElementType.F32,), lambda geometry: 4 * PATCH_CHANNELS * geometry.patch_pixels * geometry.patch_pixels
)
_GRID = SourceShape((Indexing.SUBMISSION_ROW, Indexing.ACTIVE_ROW), nbytes=lambda geometry: 4 * POSITION_AXES)
_AXIS_POSITIONS = SourceShape(_TOKENS, nbytes=lambda geometry: 4 * POSITION_AXES)

IMAGE_TENSORS: dict[int, dict[str, SourceShape]] = {
    ImageLayout.NONE: {},
    ImageLayout.SEQUENTIAL: {"patches": _PATCHES, "grid": _GRID},
    ImageLayout.AXES: {"patches": _PATCHES, "grid": _GRID, "axis_positions": _AXIS_POSITIONS},
}


def mismatches(
    binding: contract_pb2.ValueBinding, destination: execution_pb2.Destination, geometry: Geometry
) -> list[str]:
    """Why this destination cannot take this source, field by field; empty when it can."""
    source, indexing = ValueSource(binding.source), Indexing(binding.indexing)
    if source is ValueSource.IMAGE_TENSOR:
        shape = IMAGE_TENSORS[geometry.image_layout].get(binding.image_tensor)
        if shape is None:
            layout = ImageLayout(geometry.image_layout).name
            return [
                f"field 'image_tensor' is {binding.image_tensor!r}, which is no output of the image layout {layout}"
            ]
    else:
        shape = SHAPES[source]
    problems = []
    if indexing not in shape.indexings:
        accepted = ", ".join(entry.name for entry in shape.indexings)
        problems.append(f"field 'indexing' is {indexing.name}, {source.name} takes {accepted}")
    element_type = ElementType(destination.element_type)
    if element_type not in shape.element_types:
        accepted = ", ".join(entry.name for entry in shape.element_types)
        problems.append(f"field 'element_type' is {element_type.name}, {source.name} takes {accepted}")
    nbytes = destination.element_words * element_type.dtype.itemsize
    if nbytes != shape.nbytes(geometry):
        problems.append(
            f"field 'element_words' makes {nbytes:,} bytes of one index, {source.name} has {shape.nbytes(geometry):,}"
        )
    needed = shape.n_indices(geometry) if shape.n_indices else geometry.n_indices(indexing)
    held = destination.count // destination.element_words
    if held < needed:
        problems.append(f"field 'count' leaves room for {held:,} values, the program needs {needed:,}")
    return problems
