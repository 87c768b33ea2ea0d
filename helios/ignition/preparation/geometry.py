"""How large a prepared model is: slots, context, and the batch and chunk extents of its programs.

It knows no architecture. All programs of a core are made from one `ServingGeometry`, so the widths of inputs, state and
programs agree by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.contract.manifest_rules import distribution_nbytes
from helios.contract.schema import execution_pb2 as pb

# Sizes of kernels.h that layouts depend on; tests/ignition/preparation/test_contract.py compares them with the header.
PAGE_TOKENS = 16
SEGMENT_TOKENS = 256
MAX_EOS = 16
MAX_BIAS = 1024
SAMPLING_ROW_NBYTES = 256
REQUEST_ROW_NBYTES = 32
COMPLETION_HEADER_NBYTES = 32
COMPLETION_LANE_NBYTES = 224
SAMPLE_NBYTES = 176

MAX_CANDIDATES = 20
SAMPLING_DISTRIBUTION, SAMPLING_PROMPT_DISTRIBUTION = 8, 16  # flags of a sampling row

MAX_ADMISSIONS = 8  # slots that one INITIALIZE sets up
MAX_SCORED_TOKENS = 64  # of one scored prefill: each has its row of logits, 4 bytes a token of the vocabulary
MAX_DISTRIBUTIONS = 8  # lanes of a round whose whole rows of logits are reported, 4 bytes a token of the vocabulary
MAX_PROMPT_DISTRIBUTIONS = 16  # tokens of a scored prefill whose whole rows are reported, as long
STATE_ROWS_PER_REQUEST = 1
SNAPSHOT_ROWS_PER_SLOT = (
    4  # the ends of a prompt and of its answer, and those of the turn before; untouched ones stay virtual
)
MAX_CONCURRENCY = 256


@dataclass(frozen=True, slots=True)
class ServingGeometry:
    """The extents that a core is prepared for."""

    context_tokens: int
    concurrency: int
    prefill_tokens: int
    vocabulary: int

    @property
    def pages_per_slot(self) -> int:
        return -(-self.context_tokens // PAGE_TOKENS)

    @property
    def max_page_updates(self) -> int:
        """New page-table entries of one round: those that its rows can begin, or all at once for restored prefixes."""
        return self.concurrency + max(self.prefill_tokens // PAGE_TOKENS, self.concurrency * self.pages_per_slot)

    @property
    def max_segments(self) -> int:
        return -(-self.context_tokens // SEGMENT_TOKENS)

    @property
    def mask_words(self) -> int:
        return -(-self.vocabulary // 32)

    @property
    def admissions(self) -> int:
        return min(MAX_ADMISSIONS, self.concurrency)

    @property
    def scored_tokens(self) -> int:
        return min(MAX_SCORED_TOKENS, self.prefill_tokens)

    @property
    def max_distributions(self) -> int:
        return min(MAX_DISTRIBUTIONS, self.concurrency)

    @property
    def max_prompt_distributions(self) -> int:
        return min(MAX_PROMPT_DISTRIBUTIONS, self.scored_tokens)

    @property
    def distribution_nbytes(self) -> int:
        return distribution_nbytes(self.vocabulary)

    @property
    def n_snapshot_rows(self) -> int:
        return self.concurrency * SNAPSHOT_ROWS_PER_SLOT

    @property
    def n_state_rows(self) -> int:
        """Rows of continuation state: those of the slots, then those of snapshots (CON-11)."""
        return self.concurrency * STATE_ROWS_PER_REQUEST + self.n_snapshot_rows


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """One captured program: its operation, lanes B, tokens of one lane W and packed tokens P."""

    operation: pb.Operation
    batch: int
    tokens: int
    packed_tokens: int

    @property
    def name(self) -> str:
        operation = pb.Operation.Name(self.operation).removeprefix("OPERATION_").lower()
        rows = f".p{self.packed_tokens}" if self.tokens > 1 else ""
        return f"{operation}.b{self.batch}{rows}"


def program_shapes(geometry: ServingGeometry) -> list[ProgramShape]:
    """The one table of extents: batches double up to the concurrency, chunks grow fourfold up to the prefill extent."""
    lanes, chunk = geometry.concurrency, geometry.prefill_tokens
    batches = [batch for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256) if batch < lanes] + [lanes]
    chunks = [tokens for tokens in (64, 256, 1024) if tokens < chunk] + [chunk]
    shapes = [ProgramShape(pb.OPERATION_INITIALIZE, batch, 0, 0) for batch in sorted({1, geometry.admissions})]
    shapes.append(ProgramShape(pb.OPERATION_RESTORE, geometry.admissions, 0, 0))
    shapes.append(ProgramShape(pb.OPERATION_SNAPSHOT, lanes, 0, 0))
    shapes += [ProgramShape(pb.OPERATION_DECODE, batch, 1, batch) for batch in batches]
    shapes += [
        ProgramShape(pb.OPERATION_PREFILL, min(lanes, 4 if tokens == chunk else 1), tokens, tokens) for tokens in chunks
    ]
    scored = geometry.scored_tokens
    shapes.append(ProgramShape(pb.OPERATION_SCORED_PREFILL, min(lanes, 4), scored, scored))
    shapes += [ProgramShape(pb.OPERATION_MIXED, lanes, tokens, tokens) for tokens in chunks if tokens >= lanes]
    return shapes
