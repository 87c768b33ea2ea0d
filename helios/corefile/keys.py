"""Ed25519 keys, that publishers sign with and this machine signs its own cores with; and the key of encrypted cores.

It knows files of keys and no core. A key file is written once, complete and readable by its owner alone; two processes that
make the local key at the same time end up with the same one.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from helios.corefile.ed25519 import Ed25519
from helios.corefile.temporaries import held, remove_abandoned
from helios.errors import ArtifactError, CoreKeyError, MissingFileError
from helios.settings import cache_directory, core_key_file, core_key_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOCAL_NAMESPACE = "local"

_MAX_KEY_FILE_NBYTES = 16 << 10
_KEY_NBYTES = 32


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes that an envelope carries."""
    return key.public_key().public_bytes_raw()


def fingerprint(public_key: bytes) -> str:
    """How a key is shown to people."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key).digest()).decode().rstrip("=")


def load_key(path: Path) -> Ed25519PrivateKey:
    """A private key from a PEM file (PKCS #8, no password) or from a file of 64 hexadecimal digits."""
    key = private_key_of(_private_bytes(path))
    if key is None:
        raise _no_key(path)
    return key


def private_key_of(content: bytes) -> Ed25519PrivateKey | None:
    """The key that 32 bytes or a PEM are, if it is one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if len(content) == _KEY_NBYTES:
        return Ed25519PrivateKey.from_private_bytes(content)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def _private_bytes(path: Path) -> bytes:
    text = _read(path)
    return _hexadecimal(text) or text


def _no_key(path: Path) -> ArtifactError:
    return ArtifactError(f"key file {path} holds no Ed25519 private key", hint="make one with `helios keygen`")


def load_core_key() -> bytes:
    """The 32 bytes that encrypted cores are read with, from HELIOS_CORE_KEY or the file HELIOS_CORE_KEY_FILE."""
    text, path = core_key_text(), core_key_file()
    if text is None and path is None:
        raise CoreKeyError(
            "the core is encrypted and no key was given", hint="set HELIOS_CORE_KEY_FILE to the file that holds it"
        )
    key = _hexadecimal(text.encode() if text is not None else _read(path or Path()))
    if key is None:
        source = "HELIOS_CORE_KEY" if text is not None else f"key file {path}"
        raise CoreKeyError(f"{source} holds no core key", hint=f"it is {2 * _KEY_NBYTES} hexadecimal digits")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY_FILE_NBYTES).strip()
    except OSError as error:
        raise MissingFileError(f"key file {path} cannot be read: {error.strerror}") from error


def _hexadecimal(text: bytes) -> bytes | None:
    with contextlib.suppress(ValueError):
        key = bytes.fromhex(text.decode("ascii"))
        if len(key) == _KEY_NBYTES:
            return key
    return None


def create_key(path: Path) -> Ed25519PrivateKey:
    """Make a key and write it to `path` as PEM. Raises FileExistsError rather than replace a file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    remove_abandoned(path.parent, f".{glob.escape(path.name)}.*")
    with held(temporary, mode=0o600), temporary.open("r+b") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, fails when another process was first
    return key


def local_key_path(directory: Path | None = None) -> Path:
    """Where this machine's key is, in `directory` or the user's cache directory."""
    return (directory or cache_directory()) / "keys" / "local.pem"


def local_public_key(directory: Path | None, ed25519: Ed25519) -> bytes | None:
    """Of this machine's key, or None when none was made yet."""
    path = local_key_path(directory)
    if not path.exists():
        return None
    key = ed25519.public_key(_private_bytes(path))
    if key is None:
        raise _no_key(path)
    return key


def load_or_create_local_key(directory: Path | None = None) -> Ed25519PrivateKey:
    """This machine's key, made on first use. It signs what is prepared here, under the namespace `local`."""
    return load_key(create_local_key(directory))


def create_local_key(directory: Path | None = None) -> Path:
    """Make this machine's key unless there is one; where it is."""
    path = local_key_path(directory)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                create_key(path)
    except OSError as error:
        raise ArtifactError(
            f"this machine's key cannot be written to {path}: {error.strerror}",
            hint="set HELIOS_HOME to a directory that can",
        ) from error
    return path
