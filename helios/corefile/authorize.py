"""Decides whether a core's publisher is accepted (CORE-6), and records it.

It knows signatures as already verified and asks only whose they are. An acceptance is for one namespace, spelled exactly, and
for the key that first spoke for it; `local` is nobody's to accept, it belongs to this machine's own key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from helios.corefile.ed25519 import IN_PROCESS, Ed25519
from helios.corefile.keys import LOCAL_NAMESPACE, fingerprint, local_public_key
from helios.corefile.reader import Core
from helios.errors import ArtifactError, TrustError
from helios.settings import cache_directory

# The core inside the program (`build.py --with-model`). Whoever runs the program trusts what came with it, and its local key
# is that of the machine that built it.
PACKAGED_CORE = Path(__file__).resolve().parents[2] / "model" / "default.core"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Who is trusted, by which key, under which licence terms."""

    namespace: str
    key_fingerprint: str
    model_license: str


def authorize(
    core: Core, acceptance: str | None, directory: Path | None = None, *, ed25519: Ed25519 = IN_PROCESS
) -> Acceptance:
    """Accept the core's publisher or raise TrustError. `directory` holds this machine's key and its records of acceptance."""
    directory = directory or cache_directory()
    granted = Acceptance(core.namespace, fingerprint(core.public_key), core.index.model_license)
    if core.namespace == LOCAL_NAMESPACE:
        if core.path.resolve() != PACKAGED_CORE:
            _check_local(core, directory, ed25519)
        return granted
    if acceptance != core.namespace:
        given = "no namespace was accepted" if acceptance is None else f"{acceptance!r} was accepted"
        raise TrustError(
            f"{core.path} is published by {core.namespace!r}, {given}",
            hint=f"if you trust the key {granted.key_fingerprint}, give --accept {core.namespace}",
        )
    _record(granted, directory)
    return granted


def _check_local(core: Core, directory: Path, ed25519: Ed25519) -> None:
    if local_public_key(directory, ed25519) != core.public_key:
        raise TrustError(
            f"{core.path} was prepared on another machine: its key {fingerprint(core.public_key)} is not this machine's",
            hint="prepare the model here, or have its publisher sign it under a namespace of its own",
        )


def _record(granted: Acceptance, directory: Path) -> None:
    """Write the acceptance down; a namespace that is known by another key is refused."""
    name = hashlib.sha256(granted.namespace.encode()).hexdigest()[:32]
    path = directory / "accepted" / f"{name}.json"
    known = _read(path)
    if known == granted:
        return
    if known is not None and known.key_fingerprint != granted.key_fingerprint:
        raise TrustError(
            f"namespace {granted.namespace!r} was accepted with the key {known.key_fingerprint}, "
            f"this core is signed by {granted.key_fingerprint}",
            hint=f"if the publisher has changed its key, delete {path}",
        )
    temporary = path.with_name(f".{name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(granted), indent=2) + "\n", "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"the acceptance cannot be recorded in {path}: {error.strerror}", hint="set HELIOS_HOME"
        ) from error


def _read(path: Path) -> Acceptance | None:
    try:
        return Acceptance(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TrustError(f"the record of acceptance {path} is damaged", hint="delete it to accept anew") from error
