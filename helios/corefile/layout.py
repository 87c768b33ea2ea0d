"""The byte layout of a payload core (format 2): header, limits, alignment, and what is signed.

It knows no message. The file is the header, the SignedEnvelope, the LocationSet, then the stored bytes of every resource and
tensor, each at the next multiple of 4096 behind the one before it, with zeros between and nothing at the end.
"""

from __future__ import annotations

import struct

MAGIC = b"HELIOS\0\2"
HEADER = struct.Struct("<8sII")  # magic, envelope bytes, location set bytes
ALIGNMENT = 4096
FORMAT_VERSION = 2
SIGNED_PREFIX = b"helios.core.2\0"  # a signature over a core is a signature over nothing else

MAX_ENVELOPE_NBYTES = 16 << 20
MAX_LOCATIONS_NBYTES = 4 << 20
MAX_DECODED_NBYTES = 256 << 20
MAX_TENSOR_NBYTES = 1 << 40
MAX_NAME_CHARACTERS = 200


def align_up(offset: int) -> int:
    """The next place where stored bytes may start."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def max_stored_nbytes(decoded_nbytes: int) -> int:
    """What zstd makes of incompressible bytes is larger than they are by less than this."""
    return decoded_nbytes + (decoded_nbytes >> 7) + 1024
