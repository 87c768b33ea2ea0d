"""The right to a socket file's path, from before the file is made until after it is gone.

It knows a path and a lock file beside it, no sockets. A socket that is bound and does not listen yet looks like one whose owner
died; the lock tells them apart, because the system drops it with its owner, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from helios.errors import SettingError


class PathLock:
    """Owns the lock of `path`. SettingError when another process has it, or the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self._file = path.parent / f".{path.name}.lock"
        try:
            self._descriptor = self._open()
        except BlockingIOError:
            raise SettingError(f"unix:{path} is in use", hint="choose another with --host") from None
        except OSError as error:
            raise SettingError(
                f"cannot listen on unix:{path}: {error.strerror}", hint="choose another with --host"
            ) from error

    def close(self) -> None:
        """Give the path up and remove the lock file."""
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _open(self) -> int:
        """The lock file, locked. One that its owner has removed meanwhile says nothing, so there is another try."""
        while True:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), self._file.stat()):
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
