"""A checkpoint file mapped read-only into memory: opening it, windows on its bytes, closing it.

It knows no format. Only a regular, non-empty file is ever mapped, and a file that changed its size since it was opened
gives an error instead of a window, because touching a cut page would kill the process.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from helios.errors import CheckpointError, MissingFileError
from helios.owner import Owner


class MappedFile(Owner):
    """Owns a descriptor and a mapping. Arrays taken from `window` keep the mapping alive past `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _open_regular(path)
        try:
            self.size_bytes = os.fstat(self._descriptor).st_size
            if self.size_bytes == 0:
                raise CheckpointError(f"{path.name} is empty (0 bytes)")
            self._data: mmap.mmap | None = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def data(self) -> mmap.mmap:
        """The mapping itself, for readers that parse in place."""
        if self._data is None:
            raise ValueError(f"{self.path.name} was closed")
        return self._data

    def window(self, offset: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """The bytes [offset, offset + size_bytes) as a read-only array, without a copy."""
        data = self.data
        size_now_bytes = os.fstat(self._descriptor).st_size
        if size_now_bytes != self.size_bytes:
            raise CheckpointError(
                f"{self.path.name} changed while it was read: from {self.size_bytes:,} to {size_now_bytes:,} bytes"
            )
        return np.frombuffer(data, dtype=np.uint8, count=size_bytes, offset=offset)

    def close(self) -> None:
        """Close the descriptor and drop the mapping; it is unmapped once no window refers to it. Idempotent."""
        if self._data is not None:
            self._data = None
            os.close(self._descriptor)


def _open_regular(path: Path) -> int:
    """A descriptor of a regular file. The kind is asked first, since opening a pipe would wait for its writer."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise MissingFileError(f"{path} is a directory, not a checkpoint file")
        if not stat.S_ISREG(mode):
            raise MissingFileError(f"{path} is not a regular file")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise MissingFileError(f"{path} cannot be read ({reason})") from None
