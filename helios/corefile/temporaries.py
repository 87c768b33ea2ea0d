"""Files and directories that are being made: held while their maker lives, and removed when it was killed.

It knows names and advisory locks, nothing of what is in them. The system drops a lock with the process that has it, however that
ends, so what nobody holds is nobody's; age and process ids are not asked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(path: Path, *, is_directory: bool = False, mode: int = 0o666) -> Iterator[Path]:
    """Make an empty file (of `mode`) or private directory at `path`, a new name, and hold it; removed in the end if it is still
    there."""
    descriptor = _make(path, is_directory, mode)
    try:
        yield path
    finally:
        _remove(path)
        os.close(descriptor)


def remove_abandoned(directory: Path, pattern: str) -> None:
    """Remove what matches in `directory` and nobody holds. What cannot be removed stays."""
    for path in directory.glob(pattern):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):  # and not what was made there since another process removed this
                    _remove(path)
            finally:
                os.close(descriptor)


def _make(path: Path, is_directory: bool, mode: int) -> int:
    """Its descriptor, locked. Between making and locking another process may take it for abandoned; then it is made again."""
    while True:
        if is_directory:
            path.mkdir(mode=0o700)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
