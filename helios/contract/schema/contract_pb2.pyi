from helios.contract.schema import execution_pb2 as _execution_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ValueSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_SOURCE_UNSPECIFIED: _ClassVar[ValueSource]
    VALUE_SOURCE_SLOT: _ClassVar[ValueSource]
    VALUE_SOURCE_GENERATION: _ClassVar[ValueSource]
    VALUE_SOURCE_LIVE_ROW_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_QUERY_LENGTH: _ClassVar[ValueSource]
    VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT: _ClassVar[ValueSource]
    VALUE_SOURCE_SAMPLING_DECISION: _ClassVar[ValueSource]
    VALUE_SOURCE_MIXED_PREFILL_ROW: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_SCORED_TARGETS: _ClassVar[ValueSource]
    VALUE_SOURCE_COMPLETED_PENDING_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_POSITION: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_FEATURE_INDEX: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_CONTEXT_INDEX: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_FEATURE_SLOT: _ClassVar[ValueSource]
    VALUE_SOURCE_TOKEN_POSITION: _ClassVar[ValueSource]
    VALUE_SOURCE_PAGE_TABLE_UPDATES: _ClassVar[ValueSource]
    VALUE_SOURCE_PAGE_TABLE_UPDATE_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_LIVE_STATE_ROW: _ClassVar[ValueSource]
    VALUE_SOURCE_RESTORE_SOURCE: _ClassVar[ValueSource]
    VALUE_SOURCE_SNAPSHOT_DESTINATION: _ClassVar[ValueSource]
    VALUE_SOURCE_CONSUMED_ENDPOINT: _ClassVar[ValueSource]
    VALUE_SOURCE_SAMPLING_ROW: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGIT_BIAS: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_HISTOGRAM: _ClassVar[ValueSource]
    VALUE_SOURCE_GRAMMAR_MASK: _ClassVar[ValueSource]
    VALUE_SOURCE_GRAMMAR_MASKED: _ClassVar[ValueSource]
    VALUE_SOURCE_SEED_BITS: _ClassVar[ValueSource]
    VALUE_SOURCE_OUTPUT_LIMIT: _ClassVar[ValueSource]
    VALUE_SOURCE_EOS_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_GENERATION: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_CONSUMED: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_GRAMMAR_MASKS: _ClassVar[ValueSource]
    VALUE_SOURCE_CONSTANT: _ClassVar[ValueSource]
    VALUE_SOURCE_INACTIVE_PADDING: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_TENSOR: _ClassVar[ValueSource]
    VALUE_SOURCE_SUBMISSION: _ClassVar[ValueSource]

class Indexing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEXING_UNSPECIFIED: _ClassVar[Indexing]
    INDEXING_SCALAR: _ClassVar[Indexing]
    INDEXING_SUBMISSION_ROW: _ClassVar[Indexing]
    INDEXING_ACTIVE_ROW: _ClassVar[Indexing]
    INDEXING_PHYSICAL_REQUEST_ROW: _ClassVar[Indexing]
    INDEXING_PACKED_TOKEN: _ClassVar[Indexing]

class Access(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_UNSPECIFIED: _ClassVar[Access]
    ACCESS_READ: _ClassVar[Access]
    ACCESS_WRITE: _ClassVar[Access]
    ACCESS_READ_WRITE: _ClassVar[Access]

class RegionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REGION_KIND_UNSPECIFIED: _ClassVar[RegionKind]
    REGION_KIND_PAGED_KEY_VALUE: _ClassVar[RegionKind]
    REGION_KIND_PAGED_LATENT: _ClassVar[RegionKind]
    REGION_KIND_SLIDING_WINDOW: _ClassVar[RegionKind]
    REGION_KIND_RECURRENT: _ClassVar[RegionKind]
    REGION_KIND_CONTINUATION: _ClassVar[RegionKind]

class ToolSyntax(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_SYNTAX_UNSPECIFIED: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_NONE: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_FUNCTION_TAGS: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_ARGUMENT_TAGS: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_DSML: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_XTML: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_RECIPIENT_FRAMES: _ClassVar[ToolSyntax]
    TOOL_SYNTAX_JSON_TAGS: _ClassVar[ToolSyntax]

class ReasoningSyntax(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASONING_SYNTAX_UNSPECIFIED: _ClassVar[ReasoningSyntax]
    REASONING_SYNTAX_NONE: _ClassVar[ReasoningSyntax]
    REASONING_SYNTAX_THINK_TAGS: _ClassVar[ReasoningSyntax]
    REASONING_SYNTAX_XTML_THINK: _ClassVar[ReasoningSyntax]
    REASONING_SYNTAX_RECIPIENT_HEADERS: _ClassVar[ReasoningSyntax]

class ImagePreparation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_PREPARATION_UNSPECIFIED: _ClassVar[ImagePreparation]
    IMAGE_PREPARATION_NONE: _ClassVar[ImagePreparation]
    IMAGE_PREPARATION_FIT_GRID: _ClassVar[ImagePreparation]

class ImageLayout(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_LAYOUT_UNSPECIFIED: _ClassVar[ImageLayout]
    IMAGE_LAYOUT_NONE: _ClassVar[ImageLayout]
    IMAGE_LAYOUT_SEQUENTIAL: _ClassVar[ImageLayout]
    IMAGE_LAYOUT_AXES: _ClassVar[ImageLayout]

class MessageRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ROLE_UNSPECIFIED: _ClassVar[MessageRole]
    MESSAGE_ROLE_SYSTEM: _ClassVar[MessageRole]
    MESSAGE_ROLE_USER: _ClassVar[MessageRole]
    MESSAGE_ROLE_ASSISTANT: _ClassVar[MessageRole]
    MESSAGE_ROLE_TOOL: _ClassVar[MessageRole]

class RenderingConstraint(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RENDERING_CONSTRAINT_UNSPECIFIED: _ClassVar[RenderingConstraint]
    RENDERING_CONSTRAINT_NONE: _ClassVar[RenderingConstraint]
    RENDERING_CONSTRAINT_CLOSED: _ClassVar[RenderingConstraint]
    RENDERING_CONSTRAINT_WITHOUT_REASONING: _ClassVar[RenderingConstraint]
VALUE_SOURCE_UNSPECIFIED: ValueSource
VALUE_SOURCE_SLOT: ValueSource
VALUE_SOURCE_GENERATION: ValueSource
VALUE_SOURCE_LIVE_ROW_COUNT: ValueSource
VALUE_SOURCE_QUERY_LENGTH: ValueSource
VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT: ValueSource
VALUE_SOURCE_SAMPLING_DECISION: ValueSource
VALUE_SOURCE_MIXED_PREFILL_ROW: ValueSource
VALUE_SOURCE_PROMPT_TOKENS: ValueSource
VALUE_SOURCE_SCORED_TARGETS: ValueSource
VALUE_SOURCE_COMPLETED_PENDING_TOKEN: ValueSource
VALUE_SOURCE_PROMPT_POSITION: ValueSource
VALUE_SOURCE_IMAGE_FEATURE_INDEX: ValueSource
VALUE_SOURCE_IMAGE_CONTEXT_INDEX: ValueSource
VALUE_SOURCE_IMAGE_FEATURE_SLOT: ValueSource
VALUE_SOURCE_TOKEN_POSITION: ValueSource
VALUE_SOURCE_PAGE_TABLE_UPDATES: ValueSource
VALUE_SOURCE_PAGE_TABLE_UPDATE_COUNT: ValueSource
VALUE_SOURCE_LIVE_STATE_ROW: ValueSource
VALUE_SOURCE_RESTORE_SOURCE: ValueSource
VALUE_SOURCE_SNAPSHOT_DESTINATION: ValueSource
VALUE_SOURCE_CONSUMED_ENDPOINT: ValueSource
VALUE_SOURCE_SAMPLING_ROW: ValueSource
VALUE_SOURCE_LOGIT_BIAS: ValueSource
VALUE_SOURCE_PROMPT_HISTOGRAM: ValueSource
VALUE_SOURCE_GRAMMAR_MASK: ValueSource
VALUE_SOURCE_GRAMMAR_MASKED: ValueSource
VALUE_SOURCE_SEED_BITS: ValueSource
VALUE_SOURCE_OUTPUT_LIMIT: ValueSource
VALUE_SOURCE_EOS_TOKENS: ValueSource
VALUE_SOURCE_PROPOSAL_TOKENS: ValueSource
VALUE_SOURCE_PROPOSAL_COUNT: ValueSource
VALUE_SOURCE_PROPOSAL_GENERATION: ValueSource
VALUE_SOURCE_PROPOSAL_CONSUMED: ValueSource
VALUE_SOURCE_PROPOSAL_GRAMMAR_MASKS: ValueSource
VALUE_SOURCE_CONSTANT: ValueSource
VALUE_SOURCE_INACTIVE_PADDING: ValueSource
VALUE_SOURCE_IMAGE_TENSOR: ValueSource
VALUE_SOURCE_SUBMISSION: ValueSource
INDEXING_UNSPECIFIED: Indexing
INDEXING_SCALAR: Indexing
INDEXING_SUBMISSION_ROW: Indexing
INDEXING_ACTIVE_ROW: Indexing
INDEXING_PHYSICAL_REQUEST_ROW: Indexing
INDEXING_PACKED_TOKEN: Indexing
ACCESS_UNSPECIFIED: Access
ACCESS_READ: Access
ACCESS_WRITE: Access
ACCESS_READ_WRITE: Access
REGION_KIND_UNSPECIFIED: RegionKind
REGION_KIND_PAGED_KEY_VALUE: RegionKind
REGION_KIND_PAGED_LATENT: RegionKind
REGION_KIND_SLIDING_WINDOW: RegionKind
REGION_KIND_RECURRENT: RegionKind
REGION_KIND_CONTINUATION: RegionKind
TOOL_SYNTAX_UNSPECIFIED: ToolSyntax
TOOL_SYNTAX_NONE: ToolSyntax
TOOL_SYNTAX_FUNCTION_TAGS: ToolSyntax
TOOL_SYNTAX_ARGUMENT_TAGS: ToolSyntax
TOOL_SYNTAX_DSML: ToolSyntax
TOOL_SYNTAX_XTML: ToolSyntax
TOOL_SYNTAX_RECIPIENT_FRAMES: ToolSyntax
TOOL_SYNTAX_JSON_TAGS: ToolSyntax
REASONING_SYNTAX_UNSPECIFIED: ReasoningSyntax
REASONING_SYNTAX_NONE: ReasoningSyntax
REASONING_SYNTAX_THINK_TAGS: ReasoningSyntax
REASONING_SYNTAX_XTML_THINK: ReasoningSyntax
REASONING_SYNTAX_RECIPIENT_HEADERS: ReasoningSyntax
IMAGE_PREPARATION_UNSPECIFIED: ImagePreparation
IMAGE_PREPARATION_NONE: ImagePreparation
IMAGE_PREPARATION_FIT_GRID: ImagePreparation
IMAGE_LAYOUT_UNSPECIFIED: ImageLayout
IMAGE_LAYOUT_NONE: ImageLayout
IMAGE_LAYOUT_SEQUENTIAL: ImageLayout
IMAGE_LAYOUT_AXES: ImageLayout
MESSAGE_ROLE_UNSPECIFIED: MessageRole
MESSAGE_ROLE_SYSTEM: MessageRole
MESSAGE_ROLE_USER: MessageRole
MESSAGE_ROLE_ASSISTANT: MessageRole
MESSAGE_ROLE_TOOL: MessageRole
RENDERING_CONSTRAINT_UNSPECIFIED: RenderingConstraint
RENDERING_CONSTRAINT_NONE: RenderingConstraint
RENDERING_CONSTRAINT_CLOSED: RenderingConstraint
RENDERING_CONSTRAINT_WITHOUT_REASONING: RenderingConstraint

class ValueBinding(_message.Message):
    __slots__ = ("destination", "source", "indexing", "offset", "padding", "constant", "image_tensor")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INDEXING_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TENSOR_FIELD_NUMBER: _ClassVar[int]
    destination: str
    source: ValueSource
    indexing: Indexing
    offset: int
    padding: int
    constant: int
    image_tensor: str
    def __init__(self, destination: _Optional[str] = ..., source: _Optional[_Union[ValueSource, str]] = ..., indexing: _Optional[_Union[Indexing, str]] = ..., offset: _Optional[int] = ..., padding: _Optional[int] = ..., constant: _Optional[int] = ..., image_tensor: _Optional[str] = ...) -> None: ...

class StateView(_message.Message):
    __slots__ = ("name", "buffer", "offset", "row_stride", "row_nbytes", "rows")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROW_STRIDE_FIELD_NUMBER: _ClassVar[int]
    ROW_NBYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    buffer: int
    offset: int
    row_stride: int
    row_nbytes: int
    rows: int
    def __init__(self, name: _Optional[str] = ..., buffer: _Optional[int] = ..., offset: _Optional[int] = ..., row_stride: _Optional[int] = ..., row_nbytes: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class StateAccess(_message.Message):
    __slots__ = ("view", "access")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    view: str
    access: Access
    def __init__(self, view: _Optional[str] = ..., access: _Optional[_Union[Access, str]] = ...) -> None: ...

class TunedBinding(_message.Message):
    __slots__ = ("buffer", "producer")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    producer: str
    def __init__(self, buffer: _Optional[int] = ..., producer: _Optional[str] = ...) -> None: ...

class GraphContract(_message.Message):
    __slots__ = ("program", "operation", "bindings", "accesses", "pending_view", "pending_destination", "state_rows_per_request", "tuned_bindings")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    ACCESSES_FIELD_NUMBER: _ClassVar[int]
    PENDING_VIEW_FIELD_NUMBER: _ClassVar[int]
    PENDING_DESTINATION_FIELD_NUMBER: _ClassVar[int]
    STATE_ROWS_PER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    TUNED_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    program: str
    operation: _execution_pb2.Operation
    bindings: _containers.RepeatedCompositeFieldContainer[ValueBinding]
    accesses: _containers.RepeatedCompositeFieldContainer[StateAccess]
    pending_view: str
    pending_destination: str
    state_rows_per_request: int
    tuned_bindings: _containers.RepeatedCompositeFieldContainer[TunedBinding]
    def __init__(self, program: _Optional[str] = ..., operation: _Optional[_Union[_execution_pb2.Operation, str]] = ..., bindings: _Optional[_Iterable[_Union[ValueBinding, _Mapping]]] = ..., accesses: _Optional[_Iterable[_Union[StateAccess, _Mapping]]] = ..., pending_view: _Optional[str] = ..., pending_destination: _Optional[str] = ..., state_rows_per_request: _Optional[int] = ..., tuned_bindings: _Optional[_Iterable[_Union[TunedBinding, _Mapping]]] = ...) -> None: ...

class CacheRegion(_message.Message):
    __slots__ = ("kind", "planes", "tokens_per_record", "window_tokens", "views")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLANES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_RECORD_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    kind: RegionKind
    planes: _containers.RepeatedScalarFieldContainer[int]
    tokens_per_record: int
    window_tokens: int
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[RegionKind, str]] = ..., planes: _Optional[_Iterable[int]] = ..., tokens_per_record: _Optional[int] = ..., window_tokens: _Optional[int] = ..., views: _Optional[_Iterable[str]] = ...) -> None: ...

class PageTableView(_message.Message):
    __slots__ = ("buffer", "page_offset")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    PAGE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    page_offset: int
    def __init__(self, buffer: _Optional[int] = ..., page_offset: _Optional[int] = ...) -> None: ...

class CompletionCursor(_message.Message):
    __slots__ = ("view", "lag_tokens")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    LAG_TOKENS_FIELD_NUMBER: _ClassVar[int]
    view: str
    lag_tokens: int
    def __init__(self, view: _Optional[str] = ..., lag_tokens: _Optional[int] = ...) -> None: ...

class CacheContract(_message.Message):
    __slots__ = ("page_tokens", "regions", "page_tables", "draft_cursor")
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TABLES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    page_tokens: int
    regions: _containers.RepeatedCompositeFieldContainer[CacheRegion]
    page_tables: _containers.RepeatedCompositeFieldContainer[PageTableView]
    draft_cursor: CompletionCursor
    def __init__(self, page_tokens: _Optional[int] = ..., regions: _Optional[_Iterable[_Union[CacheRegion, _Mapping]]] = ..., page_tables: _Optional[_Iterable[_Union[PageTableView, _Mapping]]] = ..., draft_cursor: _Optional[_Union[CompletionCursor, _Mapping]] = ...) -> None: ...

class VisionContract(_message.Message):
    __slots__ = ("feature_slots", "window_features", "patches_per_feature", "patch_capacities")
    FEATURE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FEATURES_FIELD_NUMBER: _ClassVar[int]
    PATCHES_PER_FEATURE_FIELD_NUMBER: _ClassVar[int]
    PATCH_CAPACITIES_FIELD_NUMBER: _ClassVar[int]
    feature_slots: int
    window_features: int
    patches_per_feature: int
    patch_capacities: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, feature_slots: _Optional[int] = ..., window_features: _Optional[int] = ..., patches_per_feature: _Optional[int] = ..., patch_capacities: _Optional[_Iterable[int]] = ...) -> None: ...

class Markers(_message.Message):
    __slots__ = ("opener", "closer", "newlines_before_opener", "newlines_after_opener", "newlines_before_closer", "newlines_after_closer")
    OPENER_FIELD_NUMBER: _ClassVar[int]
    CLOSER_FIELD_NUMBER: _ClassVar[int]
    NEWLINES_BEFORE_OPENER_FIELD_NUMBER: _ClassVar[int]
    NEWLINES_AFTER_OPENER_FIELD_NUMBER: _ClassVar[int]
    NEWLINES_BEFORE_CLOSER_FIELD_NUMBER: _ClassVar[int]
    NEWLINES_AFTER_CLOSER_FIELD_NUMBER: _ClassVar[int]
    opener: str
    closer: str
    newlines_before_opener: int
    newlines_after_opener: int
    newlines_before_closer: int
    newlines_after_closer: int
    def __init__(self, opener: _Optional[str] = ..., closer: _Optional[str] = ..., newlines_before_opener: _Optional[int] = ..., newlines_after_opener: _Optional[int] = ..., newlines_before_closer: _Optional[int] = ..., newlines_after_closer: _Optional[int] = ...) -> None: ...

class ToolMarkers(_message.Message):
    __slots__ = ("call", "tag_separator", "call_separator", "generic_recipient")
    CALL_FIELD_NUMBER: _ClassVar[int]
    TAG_SEPARATOR_FIELD_NUMBER: _ClassVar[int]
    CALL_SEPARATOR_FIELD_NUMBER: _ClassVar[int]
    GENERIC_RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    call: Markers
    tag_separator: str
    call_separator: str
    generic_recipient: str
    def __init__(self, call: _Optional[_Union[Markers, _Mapping]] = ..., tag_separator: _Optional[str] = ..., call_separator: _Optional[str] = ..., generic_recipient: _Optional[str] = ...) -> None: ...

class ReasoningMarkers(_message.Message):
    __slots__ = ("reasoning", "terminal_markers")
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_MARKERS_FIELD_NUMBER: _ClassVar[int]
    reasoning: Markers
    terminal_markers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reasoning: _Optional[_Union[Markers, _Mapping]] = ..., terminal_markers: _Optional[_Iterable[str]] = ...) -> None: ...

class AssistantBoundary(_message.Message):
    __slots__ = ("opener", "message_end", "header_end", "internal_end")
    OPENER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_END_FIELD_NUMBER: _ClassVar[int]
    HEADER_END_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_END_FIELD_NUMBER: _ClassVar[int]
    opener: str
    message_end: str
    header_end: str
    internal_end: str
    def __init__(self, opener: _Optional[str] = ..., message_end: _Optional[str] = ..., header_end: _Optional[str] = ..., internal_end: _Optional[str] = ...) -> None: ...

class PrefixBoundary(_message.Message):
    __slots__ = ("role", "constraint")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    role: MessageRole
    constraint: RenderingConstraint
    def __init__(self, role: _Optional[_Union[MessageRole, str]] = ..., constraint: _Optional[_Union[RenderingConstraint, str]] = ...) -> None: ...

class AtomicSpan(_message.Message):
    __slots__ = ("opener", "closer")
    OPENER_FIELD_NUMBER: _ClassVar[int]
    CLOSER_FIELD_NUMBER: _ClassVar[int]
    opener: int
    closer: int
    def __init__(self, opener: _Optional[int] = ..., closer: _Optional[int] = ...) -> None: ...

class ImageTokens(_message.Message):
    __slots__ = ("feature_tokens", "atomic_spans", "patch_pixels", "merged_patches", "min_pixels", "max_pixels", "channel_mean", "channel_deviation")
    FEATURE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_SPANS_FIELD_NUMBER: _ClassVar[int]
    PATCH_PIXELS_FIELD_NUMBER: _ClassVar[int]
    MERGED_PATCHES_FIELD_NUMBER: _ClassVar[int]
    MIN_PIXELS_FIELD_NUMBER: _ClassVar[int]
    MAX_PIXELS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_MEAN_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    feature_tokens: _containers.RepeatedScalarFieldContainer[int]
    atomic_spans: _containers.RepeatedCompositeFieldContainer[AtomicSpan]
    patch_pixels: int
    merged_patches: int
    min_pixels: int
    max_pixels: int
    channel_mean: _containers.RepeatedScalarFieldContainer[float]
    channel_deviation: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, feature_tokens: _Optional[_Iterable[int]] = ..., atomic_spans: _Optional[_Iterable[_Union[AtomicSpan, _Mapping]]] = ..., patch_pixels: _Optional[int] = ..., merged_patches: _Optional[int] = ..., min_pixels: _Optional[int] = ..., max_pixels: _Optional[int] = ..., channel_mean: _Optional[_Iterable[float]] = ..., channel_deviation: _Optional[_Iterable[float]] = ...) -> None: ...

class FrontendContract(_message.Message):
    __slots__ = ("tool_syntax", "reasoning_syntax", "eos_tokens", "bos_text", "eos_text", "adds_bos", "image_preparation", "image_layout", "tool_markers", "reasoning_markers", "assistant", "prefix_boundaries", "image_tokens")
    TOOL_SYNTAX_FIELD_NUMBER: _ClassVar[int]
    REASONING_SYNTAX_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BOS_TEXT_FIELD_NUMBER: _ClassVar[int]
    EOS_TEXT_FIELD_NUMBER: _ClassVar[int]
    ADDS_BOS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PREPARATION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_MARKERS_FIELD_NUMBER: _ClassVar[int]
    REASONING_MARKERS_FIELD_NUMBER: _ClassVar[int]
    ASSISTANT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tool_syntax: ToolSyntax
    reasoning_syntax: ReasoningSyntax
    eos_tokens: _containers.RepeatedScalarFieldContainer[int]
    bos_text: str
    eos_text: str
    adds_bos: bool
    image_preparation: ImagePreparation
    image_layout: ImageLayout
    tool_markers: ToolMarkers
    reasoning_markers: ReasoningMarkers
    assistant: AssistantBoundary
    prefix_boundaries: _containers.RepeatedCompositeFieldContainer[PrefixBoundary]
    image_tokens: ImageTokens
    def __init__(self, tool_syntax: _Optional[_Union[ToolSyntax, str]] = ..., reasoning_syntax: _Optional[_Union[ReasoningSyntax, str]] = ..., eos_tokens: _Optional[_Iterable[int]] = ..., bos_text: _Optional[str] = ..., eos_text: _Optional[str] = ..., adds_bos: _Optional[bool] = ..., image_preparation: _Optional[_Union[ImagePreparation, str]] = ..., image_layout: _Optional[_Union[ImageLayout, str]] = ..., tool_markers: _Optional[_Union[ToolMarkers, _Mapping]] = ..., reasoning_markers: _Optional[_Union[ReasoningMarkers, _Mapping]] = ..., assistant: _Optional[_Union[AssistantBoundary, _Mapping]] = ..., prefix_boundaries: _Optional[_Iterable[_Union[PrefixBoundary, _Mapping]]] = ..., image_tokens: _Optional[_Union[ImageTokens, _Mapping]] = ...) -> None: ...

class SamplingDefaults(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ...) -> None: ...

class ModelContract(_message.Message):
    __slots__ = ("version", "vocabulary", "input_vocabulary", "vision", "cache", "graphs", "frontend", "state_views")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    INPUT_VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    VISION_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_FIELD_NUMBER: _ClassVar[int]
    STATE_VIEWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    vocabulary: int
    input_vocabulary: int
    vision: VisionContract
    cache: CacheContract
    graphs: _containers.RepeatedCompositeFieldContainer[GraphContract]
    frontend: FrontendContract
    state_views: _containers.RepeatedCompositeFieldContainer[StateView]
    def __init__(self, version: _Optional[int] = ..., vocabulary: _Optional[int] = ..., input_vocabulary: _Optional[int] = ..., vision: _Optional[_Union[VisionContract, _Mapping]] = ..., cache: _Optional[_Union[CacheContract, _Mapping]] = ..., graphs: _Optional[_Iterable[_Union[GraphContract, _Mapping]]] = ..., frontend: _Optional[_Union[FrontendContract, _Mapping]] = ..., state_views: _Optional[_Iterable[_Union[StateView, _Mapping]]] = ...) -> None: ...

class ServingContract(_message.Message):
    __slots__ = ("served_id", "aliases", "cache_identity", "context_tokens", "prefill_tokens", "page_count", "snapshot_count", "concurrency", "speculative_widths", "sampling", "model")
    SERVED_ID_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CACHE_IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_WIDTHS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    served_id: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    cache_identity: bytes
    context_tokens: int
    prefill_tokens: int
    page_count: int
    snapshot_count: int
    concurrency: int
    speculative_widths: _containers.RepeatedScalarFieldContainer[int]
    sampling: SamplingDefaults
    model: ModelContract
    def __init__(self, served_id: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., cache_identity: _Optional[bytes] = ..., context_tokens: _Optional[int] = ..., prefill_tokens: _Optional[int] = ..., page_count: _Optional[int] = ..., snapshot_count: _Optional[int] = ..., concurrency: _Optional[int] = ..., speculative_widths: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[SamplingDefaults, _Mapping]] = ..., model: _Optional[_Union[ModelContract, _Mapping]] = ...) -> None: ...
