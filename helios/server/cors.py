"""Cross-origin requests: which pages of other origins may call the API, as browsers ask (the Fetch standard, 3.2).

It knows header fields, no routes and no keys. Without an allowed origin nothing is ever added to a response; with some, every
response says which of them may read it, errors too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_EXPOSED = "X-Request-Id, Retry-After"
_MAX_AGE_S = 7200  # the longest that browsers keep the answer to a preflight
_FIELD_NAMES = re.compile(r"[\w, !#$%&'*+.^`|~-]{1,4096}", re.ASCII)


class CrossOrigin:
    """The allowed origins of one server: `*`, or exact ones."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)

    def is_preflight(self, method: str, headers: Mapping[str, str]) -> bool:
        """Whether a browser asks here if it may ask. It carries no key."""
        is_asking = "origin" in headers and "access-control-request-method" in headers
        return bool(self._origins) and method == "OPTIONS" and is_asking

    def headers(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """What every response to a request with `headers` carries."""
        origin = headers.get("origin", "")
        if not self._origins:
            return []
        if "*" in self._origins:
            return [("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", _EXPOSED)]
        vary = [("Vary", "Origin")]  # also where the origin is not allowed: a cache must not show one the other's
        if origin not in self._origins:
            return vary
        return [*vary, ("Access-Control-Allow-Origin", origin), ("Access-Control-Expose-Headers", _EXPOSED)]

    def preflight_headers(self, headers: Mapping[str, str], methods: Iterable[str]) -> list[tuple[str, str]]:
        """What the answer to a preflight says besides: the methods of the path, and any header fields."""
        asked = headers.get("access-control-request-headers", "")
        allowed = [
            ("Access-Control-Allow-Methods", ", ".join(methods)),
            ("Access-Control-Max-Age", str(_MAX_AGE_S)),
            ("Vary", "Access-Control-Request-Headers"),
        ]
        # By name: `*` does not stand for Authorization.
        return [*allowed, ("Access-Control-Allow-Headers", asked)] if _FIELD_NAMES.fullmatch(asked) else allowed
