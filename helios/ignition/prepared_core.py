"""The user's cache of cores: the one of a checkpoint is found again by content, or prepared now.

It knows what tells cores apart, not how one is made: a start that finds its core loads nothing of the preparation. Equal
checkpoint, options, target and key give the same file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from helios.corefile.ed25519 import IN_PROCESS, Ed25519
from helios.corefile.keys import create_local_key, load_or_create_local_key, local_public_key
from helios.ignition.preparation.identity import digest, file_digest, name_of_file
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.signatures import Target, host_target
from helios.settings import cache_directory

PREPARATION_VERSION = 7  # raised whenever the same checkpoint would give another core
DEFAULT_CONTEXT_TOKENS = 8192  # of models that allow more


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What the caller may choose. `context_tokens`: the model's own, up to 8,192, when None. `served_id`: None takes the
    name in the checkpoint. `kv_format`: None is the target's usual one."""

    context_tokens: int | None = None
    concurrency: int = 32
    served_id: str | None = None
    kv_format: KvFormat | None = None


def prepared_core(
    checkpoint_path: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    options: PrepareOptions | None = None,
    target: Target | None = None,
    source_sha256: bytes | None = None,
    ed25519: Ed25519 = IN_PROCESS,
) -> Path:
    """The core of a checkpoint, from the user's cache or made now, signed by this machine's key.

    `target` is the CPU device's when None; a served name that is not chosen comes from the file's name. The core is found
    again by content: of the checkpoint (`source_sha256`, if it is known), the kernel table, the options and the key. Processes
    that make the same core at the same time each write all of it, and the last rename wins.
    """
    options = options or PrepareOptions()
    if options.served_id is None:
        options = replace(options, served_id=name_of_file(checkpoint_path))
    target = target or host_target()
    create_local_key()
    public_key = local_public_key(None, ed25519) or b""
    recipe = [repr(part).encode() for part in (PREPARATION_VERSION, options, target)]
    name = digest([source_sha256 or file_digest(checkpoint_path), *recipe, public_key]).hex()
    path = cache_directory() / "cores" / f"{name[:32]}.core"
    if not path.exists():
        from helios.ignition.prepare import prepare  # readers, recipes and capture, which nothing else of a start needs

        prepare(checkpoint_path, path, target, options, key=load_or_create_local_key(), progress=progress)
    return path
