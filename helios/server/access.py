"""API keys: who may ask for what is not public, and which requests share cached prefixes.

It knows the two header fields that clients put a key into, no routes. A given key is compared with every key by digest, each
comparison taking the same time whatever the key is, and no message or log line ever holds one.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helios.errors import AccessError, SettingError
from helios.settings import Settings

_LOG = logging.getLogger(__name__)
_KEY = re.compile(r"[!-~]{1,512}")  # what a header field can carry
_BEARER = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)
_FOREIGN_MODE = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP  # the group may read: a service's own file often is root's


class Access:
    """The keys of one server; without any, everybody may do everything."""

    def __init__(self, keys: Sequence[str] = (), *, separates_caches: bool = False) -> None:
        self._digests = [_digest(key) for key in keys]
        self._separates_caches = separates_caches

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise AccessError unless one of the keys is given, or none is needed."""
        if self._digests and self._holder(headers) is None:
            raise AccessError(is_given=any(_given(headers)))

    def cache_salt(self, headers: Mapping[str, str], salt: str) -> str:
        """What parts the cached prefixes of a request from others': its own `salt`, and its key where keys part them."""
        holder = self._holder(headers) if self._separates_caches else None
        return salt if holder is None else f"{self._digests[holder].hex()} {salt}"

    def _holder(self, headers: Mapping[str, str]) -> int | None:
        """The index of the key that is given."""
        holder = None
        for given in map(_digest, _given(headers)):
            for index, digest in enumerate(self._digests):  # all of them, so that time tells nothing
                if hmac.compare_digest(given, digest):
                    holder = index
        return holder


def read_access(settings: Settings) -> Access:
    """The keys of `--api-key-file`; SettingError when it cannot be used."""
    if settings.api_key_file is None:
        if settings.key_salts:
            raise SettingError("--key-salts is given and --api-key-file is not", hint="give both or neither")
        return Access()
    path = Path(settings.api_key_file)
    try:
        lines = path.read_text("utf-8-sig").splitlines()
        mode = path.stat().st_mode
    except OSError as error:
        raise SettingError(f"--api-key-file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"--api-key-file {path} is not text: byte {error.start:,} is no UTF-8") from error
    if mode & _FOREIGN_MODE:
        _LOG.warning("--api-key-file %s is open to other users (mode %04o); chmod 600 it", path, stat.S_IMODE(mode))
    return Access(_keys(path, lines), separates_caches=settings.key_salts)


def _keys(path: Path, lines: Sequence[str]) -> list[str]:
    """One key a line; empty lines and those that begin with # are none."""
    keys = []
    for number, line in enumerate(lines, 1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not _KEY.fullmatch(key):
            raise SettingError(
                f"--api-key-file {path} has no key in line {number:,}",
                hint="a key is 1 to 512 visible ASCII characters without spaces",
            )
        keys.append(key)
    if not keys:
        raise SettingError(f"--api-key-file {path} holds no key", hint="write one a line")
    return keys


def _given(headers: Mapping[str, str]) -> Iterator[str]:
    """The keys in a request's header: OpenAI's clients send the first, Anthropic's the second, some both."""
    bearer = _BEARER.fullmatch(headers.get("authorization", "").strip())
    if bearer is not None:
        yield bearer[1]
    if headers.get("x-api-key"):
        yield headers["x-api-key"]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
