"""GGUF bytes put together by hand, so that a test can write what no honest writer would."""

from __future__ import annotations

import struct
from collections.abc import Sequence

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
F32, Q8_0, Q6_K = 0, 8, 14


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return u64(len(data)) + data


def metadata(key: str | bytes, value_type: int, value: bytes) -> bytes:
    return string(key) + u32(value_type) + value


def array(element_type: int, n_elements: int, elements: bytes) -> bytes:
    return u32(element_type) + u64(n_elements) + elements


def tensor(name: str | bytes, dimensions: list[int], tensor_type: int = F32, offset: int = 0) -> bytes:
    return string(name) + u32(len(dimensions)) + b"".join(map(u64, dimensions)) + u32(tensor_type) + u64(offset)


def gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
    data: bytes = b"",
) -> bytes:
    """A whole file; counts default to the truth."""
    header = magic + u32(version) + u64(len(tensors) if n_tensors is None else n_tensors)
    header += u64(len(entries) if n_entries is None else n_entries) + b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data
