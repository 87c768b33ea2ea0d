"""A GGUF checkpoint: its metadata behind typed getters, and its tensors as windows on the mapped file.

It knows no model: which keys must be there and what shapes they imply is a recipe's business. A `Gguf` exists only for
a file whose whole layout was checked by `gguf_header`, so a tensor's bytes are always inside the file and of the size
that its shape says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from helios.errors import CheckpointError
from helios.ignition.checkpoints.ggml_types import GgmlType, require_readable
from helios.ignition.checkpoints.gguf_header import TensorEntry, parse_header
from helios.ignition.checkpoints.mapped_file import MappedFile
from helios.owner import Owner


class GgufTensor:
    """One tensor. `shape` is in numpy order (rows first, the contiguous dimension last)."""

    __slots__ = ("_entry", "_file")

    def __init__(self, entry: TensorEntry, file: MappedFile) -> None:
        self._entry = entry
        self._file = file

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def type(self) -> GgmlType:
        return self._entry.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self._entry.shape

    @property
    def n_columns(self) -> int:
        """Elements of a row."""
        return self.shape[-1]

    @property
    def n_rows(self) -> int:
        """Rows over all leading dimensions; 1 for a vector."""
        return math.prod(self.shape[:-1])

    @property
    def size_bytes(self) -> int:
        return self._entry.size_bytes

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """The stored bytes, [n_rows, bytes of a row], read-only and not copied."""
        return self._file.window(self._entry.offset, self.size_bytes).reshape(self.n_rows, -1)


class Gguf(Owner):
    """An open GGUF file. `metadata` holds int, float, bool, str, list[str], list[bool] and numpy arrays of numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        try:
            header = parse_header(self._file.data, path.name)
        except BaseException:
            self._file.close()
            raise
        self.version = header.version
        self.size_bytes = self._file.size_bytes
        self.metadata: Mapping[str, object] = MappingProxyType(header.metadata)
        self.tensors: Mapping[str, GgufTensor] = MappingProxyType(
            {entry.name: GgufTensor(entry, self._file) for entry in header.tensors}
        )

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> GgufTensor:
        """The tensor of that name, of a readable type and, when given, of that shape; CheckpointError otherwise."""
        if name not in self.tensors:
            raise CheckpointError(f"{self.path.name} has no tensor {name!r}")
        tensor = self.tensors[name]
        require_readable(name, tensor.type)
        if shape is not None and tensor.shape != shape:
            raise CheckpointError(f"tensor {name!r} has shape {list(tensor.shape)}, the model needs {list(shape)}")
        return tensor

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """An integer in [minimum, maximum]. Without a default, the key must be there."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        if not minimum <= value <= maximum:
            raise CheckpointError(f"metadata {key!r} is {value:,}, it must be {minimum:,} to {maximum:,}")
        return value

    def number(
        self, key: str, default: float | None = None, *, minimum: float = -math.inf, maximum: float = math.inf
    ) -> float:
        """A finite number in [minimum, maximum]."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        if not math.isfinite(value) or not minimum <= value <= maximum:
            raise CheckpointError(f"metadata {key!r} is {value:g}, it must be finite and {minimum:g} to {maximum:g}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "a bool")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._value(key, None)
        if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
            raise self._wrong(key, value, "an array of strings")
        return value

    def integers(self, key: str) -> npt.NDArray[np.int64]:
        value = self._value(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise self._wrong(key, value, "an array of integers")
        if value.dtype == np.uint64 and value.size and int(value.max()) > np.iinfo(np.int64).max:
            raise CheckpointError(f"metadata {key!r} has the element {int(value.max()):,}, which does not fit 63 bits")
        return value.astype(np.int64)

    def numbers(self, key: str) -> npt.NDArray[np.float64]:
        value = self._value(key, None)
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, value, "an array of numbers")
        if not np.isfinite(value).all():
            raise CheckpointError(f"metadata {key!r} has an element that is not finite")
        return value.astype(np.float64)

    def close(self) -> None:
        self._file.close()

    def _value(self, key: str, default: object) -> object:
        value = self.metadata.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.path.name} has no metadata {key!r}")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> CheckpointError:
        return CheckpointError(f"metadata {key!r} is of type {type(value).__name__}, it must be {wanted}")


def open_gguf(path: str | Path) -> Gguf:
    """Open and check a GGUF file. MissingFileError when it cannot be opened, CheckpointError when it is not sound."""
    return Gguf(Path(path))
