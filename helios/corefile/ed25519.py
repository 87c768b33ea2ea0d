"""Ed25519: whether a signature is valid, and the public key of a private one; here, or in a process of their own.

It knows bytes, no file and no core. The library takes 10 MB and 50 ms of imports for what a start needs for a millisecond, so a
server asks a child that ends with its start. The answers are the same.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import IO, NoReturn, Protocol

from helios.errors import InternalError
from helios.owner import Owner

# What a child runs. Its modules are the parent's, wherever that found them.
_PROGRAM = """import sys
sys.path[:] = sys.argv[1:]
from helios.corefile.ed25519 import answer
answer(sys.stdin.buffer, sys.stdout.buffer)
"""
_N_PARTS = 4  # of a question: what is asked, and up to three arguments
_LENGTH_NBYTES = 8


class Ed25519(Protocol):
    """What a start asks."""

    def is_valid(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        """Whether the owner of the 32 bytes `public_key` signed `message`."""
        ...

    def public_key(self, private_key: bytes) -> bytes | None:
        """The 32 bytes that belong to a private key, of 32 bytes or in PEM (PKCS #8, no password); None if it is no such key."""
        ...


class InProcess:
    """Asks the library."""

    def is_valid(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def public_key(self, private_key: bytes) -> bytes | None:
        from helios.corefile.keys import private_key_of, public_bytes

        key = private_key_of(private_key)
        return None if key is None else public_bytes(key)


IN_PROCESS = InProcess()


class InChild(Owner):
    """Asks a child process, which `close` ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-ISB", "-c", _PROGRAM, *sys.path]
        # In a group of its own: who interrupts the parent speaks to it alone.
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)

    def is_valid(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        return self._ask(b"is_valid", public_key, signature, message) == b"yes"

    def public_key(self, private_key: bytes) -> bytes | None:
        return self._ask(b"public_key", private_key, b"", b"") or None

    def close(self) -> None:
        """The child ends when nobody asks any more. A second call does nothing."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):  # of a question that it did not read
                    pipe.close()
        self._child.wait()

    def _ask(self, *parts: bytes) -> bytes:
        questions, answers = self._child.stdin, self._child.stdout
        try:
            if questions and answers:
                _write(questions, *parts)
                return _read(answers)
        except (OSError, EOFError):
            pass
        raise InternalError(f"the process that checks signatures ended with status {self._child.wait()}")


def answer(questions: IO[bytes], answers: IO[bytes]) -> NoReturn:
    """What the child does, until nobody asks any more. It ends without Python's tidying up, for which its parent would wait."""
    IN_PROCESS.public_key(b"")  # loads the library while the parent does other things
    IN_PROCESS.is_valid(b"", b"", b"")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            what, *arguments = [_read(questions) for _ in range(_N_PARTS)]
            if what == b"is_valid":
                _write(answers, b"yes" if IN_PROCESS.is_valid(*arguments) else b"no")
            else:
                _write(answers, IN_PROCESS.public_key(arguments[0]) or b"")
    os._exit(0)


def _write(pipe: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        pipe.write(len(part).to_bytes(_LENGTH_NBYTES, "little") + part)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    length = pipe.read(_LENGTH_NBYTES)
    nbytes = int.from_bytes(length, "little")
    content = pipe.read(nbytes)
    if len(length) < _LENGTH_NBYTES or len(content) < nbytes:
        raise EOFError
    return content
