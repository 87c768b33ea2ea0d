"""The enumerations of the contract as Python enums, so that no other package handles Protobuf numbers.

They know nothing of the wire. Members and numbers equal the schema's, less the unspecified zero, which selects nothing
(CON-4); `tests/contract/test_enums.py` keeps them equal.
"""

from __future__ import annotations

import enum

import numpy as np


class Operation(enum.IntEnum):
    """What a captured program does for its lanes."""

    INITIALIZE = 1
    PREFILL = 2
    DECODE = 3
    MIXED = 4
    SCORED_PREFILL = 5
    RESUME = 6
    RESTORE = 7
    SNAPSHOT = 8
    SPECULATIVE = 9
    TUNE = 10
    ENCODE_IMAGE = 11


class BufferKind(enum.IntEnum):
    """What a physical buffer is for, and so who may write it and how long its bytes mean something."""

    WEIGHT = 1
    STATE = 2
    CACHE_PLANE = 3
    SCRATCH = 4
    INPUT = 5
    COMPLETION = 6
    MAPPED = 7


class ElementType(enum.IntEnum):
    """The type of a destination's elements; `dtype` is how the host holds one (BF16 as its bits)."""

    I32 = 1
    U32 = 2
    F32 = 3
    U8 = 4
    U64 = 5
    F16 = 6
    BF16 = 7

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return _DTYPES[self]

    @property
    def is_integer(self) -> bool:
        return self in (ElementType.I32, ElementType.U32)


_DTYPES: dict[ElementType, np.dtype[np.generic]] = {
    ElementType.I32: np.dtype("<i4"),
    ElementType.U32: np.dtype("<u4"),
    ElementType.F32: np.dtype("<f4"),
    ElementType.U8: np.dtype("u1"),
    ElementType.U64: np.dtype("<u8"),
    ElementType.F16: np.dtype("<f2"),
    ElementType.BF16: np.dtype("<u2"),
}


class ValueSource(enum.IntEnum):
    """Where a host value comes from (CON-6)."""

    SLOT = 1
    GENERATION = 2
    LIVE_ROW_COUNT = 3
    QUERY_LENGTH = 4
    SPECULATIVE_PREFIX_LIMIT = 5
    SAMPLING_DECISION = 6
    MIXED_PREFILL_ROW = 7
    PROMPT_TOKENS = 16
    SCORED_TARGETS = 17
    COMPLETED_PENDING_TOKEN = 18
    PROMPT_POSITION = 19
    IMAGE_FEATURE_INDEX = 20
    IMAGE_CONTEXT_INDEX = 21
    IMAGE_FEATURE_SLOT = 22
    TOKEN_POSITION = 23
    PAGE_TABLE_UPDATES = 32
    PAGE_TABLE_UPDATE_COUNT = 33
    LIVE_STATE_ROW = 34
    RESTORE_SOURCE = 35
    SNAPSHOT_DESTINATION = 36
    CONSUMED_ENDPOINT = 37
    SAMPLING_ROW = 48
    LOGIT_BIAS = 49
    PROMPT_HISTOGRAM = 50
    GRAMMAR_MASK = 51
    GRAMMAR_MASKED = 52
    SEED_BITS = 53
    OUTPUT_LIMIT = 54
    EOS_TOKENS = 55
    PROPOSAL_TOKENS = 64
    PROPOSAL_COUNT = 65
    PROPOSAL_GENERATION = 66
    PROPOSAL_CONSUMED = 67
    PROPOSAL_GRAMMAR_MASKS = 68
    CONSTANT = 80
    INACTIVE_PADDING = 81
    IMAGE_TENSOR = 96
    SUBMISSION = 112


class Indexing(enum.IntEnum):
    """How a source's values are laid over a destination (CON-7)."""

    SCALAR = 1
    SUBMISSION_ROW = 2
    ACTIVE_ROW = 3
    PHYSICAL_REQUEST_ROW = 4
    PACKED_TOKEN = 5


class Access(enum.IntEnum):
    """What a program does to a state view."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3

    @property
    def reads(self) -> bool:
        return self is not Access.WRITE

    @property
    def writes(self) -> bool:
        return self is not Access.READ


class RegionKind(enum.IntEnum):
    """What an attention history stores."""

    PAGED_KEY_VALUE = 1
    PAGED_LATENT = 2
    SLIDING_WINDOW = 3
    RECURRENT = 4
    CONTINUATION = 5

    @property
    def is_paged(self) -> bool:
        """Whether its history lies in cache planes; otherwise in rows of state."""
        return self in (RegionKind.PAGED_KEY_VALUE, RegionKind.PAGED_LATENT, RegionKind.SLIDING_WINDOW)


class ToolSyntax(enum.IntEnum):
    """How the model spells tool calls."""

    NONE = 1
    FUNCTION_TAGS = 2
    ARGUMENT_TAGS = 3
    DSML = 4
    XTML = 5
    RECIPIENT_FRAMES = 6
    JSON_TAGS = 7


class ReasoningSyntax(enum.IntEnum):
    """How the model spells reasoning."""

    NONE = 1
    THINK_TAGS = 2
    XTML_THINK = 3
    RECIPIENT_HEADERS = 4


class ImagePreparation(enum.IntEnum):
    """How an image becomes patches."""

    NONE = 1
    FIT_GRID = 2


class ImageLayout(enum.IntEnum):
    """How the features of an image take their place among the tokens."""

    NONE = 1
    SEQUENTIAL = 2
    AXES = 3


class MessageRole(enum.IntEnum):
    """Who speaks a message of a conversation."""

    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4


class RenderingConstraint(enum.IntEnum):
    """When the rendering up to a message is a prefix of every longer conversation's."""

    NONE = 1
    CLOSED = 2
    WITHOUT_REASONING = 3
