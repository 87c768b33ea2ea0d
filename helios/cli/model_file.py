"""What a file that a user named as a model is, by its first bytes.

It knows two formats by their magic and reads nothing else. Whatever else lies at the path is said as one error, and nothing there
is waited for.
"""

from __future__ import annotations

import enum
from pathlib import Path

from helios.corefile.layout import MAGIC
from helios.corefile.local_file import LocalFile
from helios.errors import ArtifactError

_HINT = "give a .core or .gguf file"


class ModelFormat(enum.Enum):
    """The formats of a model's file."""

    CORE = MAGIC
    GGUF = b"GGUF"


def format_of(path: Path) -> ModelFormat:
    """Whatever its name. Raises MissingFileError where no file can be read, ArtifactError where it is neither."""
    with LocalFile(path, "model", _HINT) as file:
        start = file.read(0, min(file.size_bytes, len(MAGIC)))
    for found in ModelFormat:
        if start.startswith(found.value):
            return found
    raise ArtifactError(f"{path} ({file.size_bytes:,} bytes) is neither a core nor a GGUF checkpoint", hint=_HINT)
