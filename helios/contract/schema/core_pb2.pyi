from helios.contract.schema import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOURCE_KIND_UNSPECIFIED: _ClassVar[ResourceKind]
    RESOURCE_KIND_EXECUTION_MANIFEST: _ClassVar[ResourceKind]
    RESOURCE_KIND_TOKENIZER: _ClassVar[ResourceKind]
    RESOURCE_KIND_CHAT_TEMPLATE: _ClassVar[ResourceKind]
RESOURCE_KIND_UNSPECIFIED: ResourceKind
RESOURCE_KIND_EXECUTION_MANIFEST: ResourceKind
RESOURCE_KIND_TOKENIZER: ResourceKind
RESOURCE_KIND_CHAT_TEMPLATE: ResourceKind

class StoredFrame(_message.Message):
    __slots__ = ("nbytes",)
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    def __init__(self, nbytes: _Optional[int] = ...) -> None: ...

class ExecutableResource(_message.Message):
    __slots__ = ("id", "kind", "stored", "decoded_nbytes", "chunk_nbytes", "chunk_sha256")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DECODED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SHA256_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: ResourceKind
    stored: StoredFrame
    decoded_nbytes: int
    chunk_nbytes: int
    chunk_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[ResourceKind, str]] = ..., stored: _Optional[_Union[StoredFrame, _Mapping]] = ..., decoded_nbytes: _Optional[int] = ..., chunk_nbytes: _Optional[int] = ..., chunk_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class TensorResource(_message.Message):
    __slots__ = ("id", "nbytes", "chunk_nbytes", "chunk_sha256", "layout")
    ID_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SHA256_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    nbytes: int
    chunk_nbytes: int
    chunk_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    layout: str
    def __init__(self, id: _Optional[str] = ..., nbytes: _Optional[int] = ..., chunk_nbytes: _Optional[int] = ..., chunk_sha256: _Optional[_Iterable[bytes]] = ..., layout: _Optional[str] = ...) -> None: ...

class DeploymentBody(_message.Message):
    __slots__ = ("contract",)
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.ServingContract
    def __init__(self, contract: _Optional[_Union[_contract_pb2.ServingContract, _Mapping]] = ...) -> None: ...

class CoreBody(_message.Message):
    __slots__ = ("format_version", "publisher_namespace", "deployment", "resources", "tensors", "model_license", "rebuild_manifest", "weight_catalogs")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    MODEL_LICENSE_FIELD_NUMBER: _ClassVar[int]
    REBUILD_MANIFEST_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_CATALOGS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    publisher_namespace: str
    deployment: DeploymentBody
    resources: _containers.RepeatedCompositeFieldContainer[ExecutableResource]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorResource]
    model_license: str
    rebuild_manifest: bytes
    weight_catalogs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, format_version: _Optional[int] = ..., publisher_namespace: _Optional[str] = ..., deployment: _Optional[_Union[DeploymentBody, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ExecutableResource, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[TensorResource, _Mapping]]] = ..., model_license: _Optional[str] = ..., rebuild_manifest: _Optional[bytes] = ..., weight_catalogs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ModelIndex(_message.Message):
    __slots__ = ("contract", "resources", "tensors", "model_license", "rebuild_manifest", "weight_catalogs")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    MODEL_LICENSE_FIELD_NUMBER: _ClassVar[int]
    REBUILD_MANIFEST_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_CATALOGS_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.ServingContract
    resources: _containers.RepeatedCompositeFieldContainer[ExecutableResource]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorResource]
    model_license: str
    rebuild_manifest: bytes
    weight_catalogs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, contract: _Optional[_Union[_contract_pb2.ServingContract, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ExecutableResource, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[TensorResource, _Mapping]]] = ..., model_license: _Optional[str] = ..., rebuild_manifest: _Optional[bytes] = ..., weight_catalogs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Sealing(_message.Message):
    __slots__ = ("salt", "key_check")
    SALT_FIELD_NUMBER: _ClassVar[int]
    KEY_CHECK_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    key_check: bytes
    def __init__(self, salt: _Optional[bytes] = ..., key_check: _Optional[bytes] = ...) -> None: ...

class ProtectedIndex(_message.Message):
    __slots__ = ("version", "publisher_namespace", "index", "sealing")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    version: int
    publisher_namespace: str
    index: ModelIndex
    sealing: Sealing
    def __init__(self, version: _Optional[int] = ..., publisher_namespace: _Optional[str] = ..., index: _Optional[_Union[ModelIndex, _Mapping]] = ..., sealing: _Optional[_Union[Sealing, _Mapping]] = ...) -> None: ...

class SignedEnvelope(_message.Message):
    __slots__ = ("body", "public_key", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    public_key: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("id", "offset", "file", "url")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    id: str
    offset: int
    file: str
    url: str
    def __init__(self, id: _Optional[str] = ..., offset: _Optional[int] = ..., file: _Optional[str] = ..., url: _Optional[str] = ...) -> None: ...

class LocationSet(_message.Message):
    __slots__ = ("locations", "directory", "url")
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    locations: _containers.RepeatedCompositeFieldContainer[Location]
    directory: str
    url: str
    def __init__(self, locations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ..., directory: _Optional[str] = ..., url: _Optional[str] = ...) -> None: ...

class RebuildManifest(_message.Message):
    __slots__ = ("version", "inputs")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    inputs: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., inputs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WeightCatalog(_message.Message):
    __slots__ = ("version", "rank", "views")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    rank: int
    views: _containers.RepeatedCompositeFieldContainer[StoredView]
    def __init__(self, version: _Optional[int] = ..., rank: _Optional[int] = ..., views: _Optional[_Iterable[_Union[StoredView, _Mapping]]] = ...) -> None: ...

class StoredView(_message.Message):
    __slots__ = ("tensor", "offset", "nbytes", "sources")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    tensor: str
    offset: int
    nbytes: int
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tensor: _Optional[str] = ..., offset: _Optional[int] = ..., nbytes: _Optional[int] = ..., sources: _Optional[_Iterable[str]] = ...) -> None: ...
