from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BufferKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUFFER_KIND_UNSPECIFIED: _ClassVar[BufferKind]
    BUFFER_KIND_WEIGHT: _ClassVar[BufferKind]
    BUFFER_KIND_STATE: _ClassVar[BufferKind]
    BUFFER_KIND_CACHE_PLANE: _ClassVar[BufferKind]
    BUFFER_KIND_SCRATCH: _ClassVar[BufferKind]
    BUFFER_KIND_INPUT: _ClassVar[BufferKind]
    BUFFER_KIND_COMPLETION: _ClassVar[BufferKind]
    BUFFER_KIND_MAPPED: _ClassVar[BufferKind]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_INITIALIZE: _ClassVar[Operation]
    OPERATION_PREFILL: _ClassVar[Operation]
    OPERATION_DECODE: _ClassVar[Operation]
    OPERATION_MIXED: _ClassVar[Operation]
    OPERATION_SCORED_PREFILL: _ClassVar[Operation]
    OPERATION_RESUME: _ClassVar[Operation]
    OPERATION_RESTORE: _ClassVar[Operation]
    OPERATION_SNAPSHOT: _ClassVar[Operation]
    OPERATION_SPECULATIVE: _ClassVar[Operation]
    OPERATION_TUNE: _ClassVar[Operation]
    OPERATION_ENCODE_IMAGE: _ClassVar[Operation]

class CollectiveOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTIVE_OPERATION_UNSPECIFIED: _ClassVar[CollectiveOperation]
    COLLECTIVE_OPERATION_SUM: _ClassVar[CollectiveOperation]
    COLLECTIVE_OPERATION_GATHER: _ClassVar[CollectiveOperation]
    COLLECTIVE_OPERATION_BROADCAST: _ClassVar[CollectiveOperation]

class ElementType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELEMENT_TYPE_UNSPECIFIED: _ClassVar[ElementType]
    ELEMENT_TYPE_I32: _ClassVar[ElementType]
    ELEMENT_TYPE_U32: _ClassVar[ElementType]
    ELEMENT_TYPE_F32: _ClassVar[ElementType]
    ELEMENT_TYPE_U8: _ClassVar[ElementType]
    ELEMENT_TYPE_U64: _ClassVar[ElementType]
    ELEMENT_TYPE_F16: _ClassVar[ElementType]
    ELEMENT_TYPE_BF16: _ClassVar[ElementType]
BUFFER_KIND_UNSPECIFIED: BufferKind
BUFFER_KIND_WEIGHT: BufferKind
BUFFER_KIND_STATE: BufferKind
BUFFER_KIND_CACHE_PLANE: BufferKind
BUFFER_KIND_SCRATCH: BufferKind
BUFFER_KIND_INPUT: BufferKind
BUFFER_KIND_COMPLETION: BufferKind
BUFFER_KIND_MAPPED: BufferKind
OPERATION_UNSPECIFIED: Operation
OPERATION_INITIALIZE: Operation
OPERATION_PREFILL: Operation
OPERATION_DECODE: Operation
OPERATION_MIXED: Operation
OPERATION_SCORED_PREFILL: Operation
OPERATION_RESUME: Operation
OPERATION_RESTORE: Operation
OPERATION_SNAPSHOT: Operation
OPERATION_SPECULATIVE: Operation
OPERATION_TUNE: Operation
OPERATION_ENCODE_IMAGE: Operation
COLLECTIVE_OPERATION_UNSPECIFIED: CollectiveOperation
COLLECTIVE_OPERATION_SUM: CollectiveOperation
COLLECTIVE_OPERATION_GATHER: CollectiveOperation
COLLECTIVE_OPERATION_BROADCAST: CollectiveOperation
ELEMENT_TYPE_UNSPECIFIED: ElementType
ELEMENT_TYPE_I32: ElementType
ELEMENT_TYPE_U32: ElementType
ELEMENT_TYPE_F32: ElementType
ELEMENT_TYPE_U8: ElementType
ELEMENT_TYPE_U64: ElementType
ELEMENT_TYPE_F16: ElementType
ELEMENT_TYPE_BF16: ElementType

class Buffer(_message.Message):
    __slots__ = ("id", "name", "kind", "nbytes", "page_nbytes", "resource", "producer")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    kind: BufferKind
    nbytes: int
    page_nbytes: int
    resource: str
    producer: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., kind: _Optional[_Union[BufferKind, str]] = ..., nbytes: _Optional[int] = ..., page_nbytes: _Optional[int] = ..., resource: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class Relocation(_message.Message):
    __slots__ = ("argument_offset", "buffer", "offset")
    ARGUMENT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    argument_offset: int
    buffer: int
    offset: int
    def __init__(self, argument_offset: _Optional[int] = ..., buffer: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class KernelNode(_message.Message):
    __slots__ = ("kernel", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "dynamic_shared_nbytes", "arguments", "relocations", "page_count_offsets")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    GRID_X_FIELD_NUMBER: _ClassVar[int]
    GRID_Y_FIELD_NUMBER: _ClassVar[int]
    GRID_Z_FIELD_NUMBER: _ClassVar[int]
    BLOCK_X_FIELD_NUMBER: _ClassVar[int]
    BLOCK_Y_FIELD_NUMBER: _ClassVar[int]
    BLOCK_Z_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_SHARED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    RELOCATIONS_FIELD_NUMBER: _ClassVar[int]
    PAGE_COUNT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    kernel: str
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    dynamic_shared_nbytes: int
    arguments: bytes
    relocations: _containers.RepeatedCompositeFieldContainer[Relocation]
    page_count_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kernel: _Optional[str] = ..., grid_x: _Optional[int] = ..., grid_y: _Optional[int] = ..., grid_z: _Optional[int] = ..., block_x: _Optional[int] = ..., block_y: _Optional[int] = ..., block_z: _Optional[int] = ..., dynamic_shared_nbytes: _Optional[int] = ..., arguments: _Optional[bytes] = ..., relocations: _Optional[_Iterable[_Union[Relocation, _Mapping]]] = ..., page_count_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class CopyNode(_message.Message):
    __slots__ = ("destination", "destination_offset", "source", "source_offset", "nbytes")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    destination: int
    destination_offset: int
    source: int
    source_offset: int
    nbytes: int
    def __init__(self, destination: _Optional[int] = ..., destination_offset: _Optional[int] = ..., source: _Optional[int] = ..., source_offset: _Optional[int] = ..., nbytes: _Optional[int] = ...) -> None: ...

class FillNode(_message.Message):
    __slots__ = ("destination", "destination_offset", "value", "nbytes")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    destination: int
    destination_offset: int
    value: int
    nbytes: int
    def __init__(self, destination: _Optional[int] = ..., destination_offset: _Optional[int] = ..., value: _Optional[int] = ..., nbytes: _Optional[int] = ...) -> None: ...

class CollectiveNode(_message.Message):
    __slots__ = ("operation", "buffer", "offset", "count", "element_type", "group")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    operation: CollectiveOperation
    buffer: int
    offset: int
    count: int
    element_type: ElementType
    group: str
    def __init__(self, operation: _Optional[_Union[CollectiveOperation, str]] = ..., buffer: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., element_type: _Optional[_Union[ElementType, str]] = ..., group: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("depends_on", "kernel", "copy", "fill", "collective")
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    depends_on: _containers.RepeatedScalarFieldContainer[int]
    kernel: KernelNode
    copy: CopyNode
    fill: FillNode
    collective: CollectiveNode
    def __init__(self, depends_on: _Optional[_Iterable[int]] = ..., kernel: _Optional[_Union[KernelNode, _Mapping]] = ..., copy: _Optional[_Union[CopyNode, _Mapping]] = ..., fill: _Optional[_Union[FillNode, _Mapping]] = ..., collective: _Optional[_Union[CollectiveNode, _Mapping]] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("name", "operation", "batch_capacity", "draft_tokens", "token_capacity", "packed_token_capacity", "nodes", "confidence_width")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    PACKED_TOKEN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation: Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    confidence_width: int
    def __init__(self, name: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., batch_capacity: _Optional[int] = ..., draft_tokens: _Optional[int] = ..., token_capacity: _Optional[int] = ..., packed_token_capacity: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., confidence_width: _Optional[int] = ...) -> None: ...

class Destination(_message.Message):
    __slots__ = ("name", "buffer", "offset", "element_type", "count", "element_words")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_WORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    buffer: int
    offset: int
    element_type: ElementType
    count: int
    element_words: int
    def __init__(self, name: _Optional[str] = ..., buffer: _Optional[int] = ..., offset: _Optional[int] = ..., element_type: _Optional[_Union[ElementType, str]] = ..., count: _Optional[int] = ..., element_words: _Optional[int] = ...) -> None: ...

class CompletionLayout(_message.Message):
    __slots__ = ("buffer", "header_nbytes", "lane_nbytes", "lanes_capacity", "score_nbytes", "scores_capacity", "distribution_nbytes", "distributions_capacity", "prompt_distributions_capacity")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    HEADER_NBYTES_FIELD_NUMBER: _ClassVar[int]
    LANE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    LANES_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    SCORES_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_NBYTES_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTIONS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_DISTRIBUTIONS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    header_nbytes: int
    lane_nbytes: int
    lanes_capacity: int
    score_nbytes: int
    scores_capacity: int
    distribution_nbytes: int
    distributions_capacity: int
    prompt_distributions_capacity: int
    def __init__(self, buffer: _Optional[int] = ..., header_nbytes: _Optional[int] = ..., lane_nbytes: _Optional[int] = ..., lanes_capacity: _Optional[int] = ..., score_nbytes: _Optional[int] = ..., scores_capacity: _Optional[int] = ..., distribution_nbytes: _Optional[int] = ..., distributions_capacity: _Optional[int] = ..., prompt_distributions_capacity: _Optional[int] = ...) -> None: ...

class ConfidenceLayout(_message.Message):
    __slots__ = ("buffer", "draft_capacity")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    DRAFT_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    draft_capacity: int
    def __init__(self, buffer: _Optional[int] = ..., draft_capacity: _Optional[int] = ...) -> None: ...

class RankWeight(_message.Message):
    __slots__ = ("buffer", "resource")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    resource: str
    def __init__(self, buffer: _Optional[int] = ..., resource: _Optional[str] = ...) -> None: ...

class RankSection(_message.Message):
    __slots__ = ("rank", "weights")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    weights: _containers.RepeatedCompositeFieldContainer[RankWeight]
    def __init__(self, rank: _Optional[int] = ..., weights: _Optional[_Iterable[_Union[RankWeight, _Mapping]]] = ...) -> None: ...

class ExecutionManifest(_message.Message):
    __slots__ = ("abi_label", "target", "buffers", "programs", "tuning_programs", "destinations", "completion", "request_slots", "pages_per_slot", "ranks", "proposal_confidence")
    ABI_LABEL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    TUNING_PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_SLOTS_FIELD_NUMBER: _ClassVar[int]
    PAGES_PER_SLOT_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    abi_label: str
    target: str
    buffers: _containers.RepeatedCompositeFieldContainer[Buffer]
    programs: _containers.RepeatedCompositeFieldContainer[Program]
    tuning_programs: _containers.RepeatedCompositeFieldContainer[Program]
    destinations: _containers.RepeatedCompositeFieldContainer[Destination]
    completion: CompletionLayout
    request_slots: int
    pages_per_slot: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankSection]
    proposal_confidence: ConfidenceLayout
    def __init__(self, abi_label: _Optional[str] = ..., target: _Optional[str] = ..., buffers: _Optional[_Iterable[_Union[Buffer, _Mapping]]] = ..., programs: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., tuning_programs: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., destinations: _Optional[_Iterable[_Union[Destination, _Mapping]]] = ..., completion: _Optional[_Union[CompletionLayout, _Mapping]] = ..., request_slots: _Optional[int] = ..., pages_per_slot: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankSection, _Mapping]]] = ..., proposal_confidence: _Optional[_Union[ConfidenceLayout, _Mapping]] = ...) -> None: ...
