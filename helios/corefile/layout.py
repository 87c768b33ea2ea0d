"""The byte layout of a core file: magic, header, limits, alignment, and what is signed.

It knows no message. The file is the header, the SignedEnvelope, the LocationSet, then the stored bytes that lie in it, each at
the next multiple of 4096 behind the one before it, with zeros between and nothing at the end.
"""

from __future__ import annotations

import enum
import struct

MAGIC = b"HELIOS\0"  # then one byte, the format
HEADER = struct.Struct("<7sBII")  # magic, format, envelope bytes, location set bytes
ALIGNMENT = 4096

MAX_ENVELOPE_NBYTES = 16 << 20
MAX_DECODED_NBYTES = 64 << 20
MAX_TENSOR_NBYTES = 1 << 40
MAX_NAME_CHARACTERS = 200
MAX_PLACE_CHARACTERS = 1000  # of a path or URL in the location set


class CoreFormat(enum.IntEnum):
    """What is inside the envelope. The number is in the file's header and again in the signed message."""

    PAYLOAD = 2  # a CoreBody
    SEALED_INDEX = 4  # a ProtectedIndex, its content encrypted
    INDEX = 6  # a ProtectedIndex

    @property
    def signed_prefix(self) -> bytes:
        """Signed in front of the body, so that a signature over one kind is a signature over nothing else."""
        kind = "core" if self is CoreFormat.PAYLOAD else "index"
        return f"helios.{kind}.{self.value}\0".encode()


def align_up(offset: int) -> int:
    """The next place where stored bytes may start."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def max_stored_nbytes(decoded_nbytes: int) -> int:
    """What zstd makes of incompressible bytes is larger than they are by less than this."""
    return decoded_nbytes + (decoded_nbytes >> 7) + 1024
