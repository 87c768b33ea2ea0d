"""Names and digests of what is prepared: the served name, the prefix cache's identity, the digest of a file.

It knows bytes and spellings, no model. Every part of a digest is length-prefixed, so no two lists of parts collide.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Iterable
from pathlib import Path

from helios.errors import MissingFileError

MAX_NAME_CHARACTERS = 100
# How quantised files end: "-Q4_1", ".q8_0", "-Q4_K_M", "-f16".
_STORAGE_SUFFIX = re.compile(r"[-._](i?q\d\w*|bf16|f16|f32)$", re.IGNORECASE)


def slug(text: str) -> str:
    """A name for URLs and JSON: lower case letters, digits, dots, dashes and underscores; "model" when none is left."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:MAX_NAME_CHARACTERS] or "model"


def name_of_file(path: Path) -> str:
    """The served name that a checkpoint's file name suggests: without its ending and its storage type."""
    return slug(_STORAGE_SUFFIX.sub("", path.stem))


def digest(parts: Iterable[bytes]) -> bytes:
    """SHA-256 over the length-prefixed parts."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file's bytes. Raises MissingFileError.

    Mapped and hashed by one call: a thread that reads in pieces waits for the interpreter at each, 5 ms while others import.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return hashlib.sha256().digest()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return hashlib.sha256(data).digest()
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error
