"""Bytes of local files by offset and length, exactly as many as were asked for.

It knows no core. Bytes are read into memory of their own rather than mapped: what was verified cannot change afterwards, and a
file that is cut short while it is read is an error and not a fault of the process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from helios.errors import CoreError, LocationError, MissingFileError
from helios.owner import Owner


class LocalFile(Owner):
    """An open regular file, read from any thread; owner closes."""

    def __init__(self, path: Path, what: str = "core", hint: str | None = None) -> None:
        """Raises MissingFileError, which calls the file `what` and has that hint."""
        self.path = path
        try:
            # A pipe or a device must neither block the opening nor be read.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise MissingFileError(f"{what} {path} cannot be read: {error.strerror}", hint=hint) from error
        status = os.fstat(self._descriptor)
        self.size_bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise MissingFileError(f"{what} {path} cannot be read: it is {kind}", hint=hint)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Raises CoreError when the file ends before that."""
        data = bytearray(nbytes)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, data: memoryview) -> None:
        """Fill `data` from `offset` on. Raises CoreError when the file ends before that."""
        n_read = 0
        while n_read < len(data):
            try:
                n_now = os.preadv(self._descriptor, [data[n_read:]], offset + n_read)
            except (OSError, OverflowError) as error:
                raise CoreError(f"{self.path} cannot be read at byte {offset + n_read:,}: {error}") from error
            if n_now == 0:
                raise CoreError(f"{self.path} ends at byte {offset + n_read:,}, {len(data) - n_read:,} bytes too early")
            n_read += n_now

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_located_into(path: Path, offset: int, data: memoryview, whole_nbytes: int | None) -> None:
    """Bytes of a file beside the core, opened for this alone: a core may have thousands of them. `whole_nbytes` is its size
    where that is known. Raises LocationError or CoreError."""
    try:
        file = LocalFile(path)
    except MissingFileError as error:
        raise LocationError(error.message) from error
    with file:
        if whole_nbytes is not None and file.size_bytes != whole_nbytes:
            raise CoreError(f"{path} has {file.size_bytes:,} bytes, {whole_nbytes:,} are signed")
        file.read_into(offset, data)
