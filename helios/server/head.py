"""The head of a request: where it ends, and what must be right with it before anything else is believed.

It knows the shapes that two HTTP parsers read differently (request smuggling) and refuses them; h11 does the parsing. It knows
no sockets and no routes. A RequestHead has one length, one host and one path, whoever reads it.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import h11

from helios.server.status import WireError

_END = b"\r\n\r\n"
# Control characters, a line feed or carriage return that is not part of CRLF, and a folded line (RFC 9112 2.2 and 5.2).
_FOREIGN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])|\n(?=[ \t])")
# Fields that may come once. Of the last three, which one is believed would be each reader's own choice.
_SINGLE = (
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "content-encoding",
    "expect",
    "authorization",
    "x-api-key",
)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HOST_NAME = r"(?:[\w.~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])"
_HOST = re.compile(rf"{_HOST_NAME}(?::[0-9]{{0,5}})?", re.ASCII)
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_ABSOLUTE = re.compile(r"https?://([^/?]+)([/?].*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A checked head. Names are lower case; `path` is percent-decoded; `body_nbytes` is None for a chunked body. `id` is the
    client's own X-Request-Id where it is harmless, else a new one."""

    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    body_nbytes: int | None
    expects_continue: bool


def head_length(buffer: bytearray, n_scanned: int, limit_nbytes: int) -> int | None:
    """Bytes of the head at the front of `buffer`, None while its end is not there; `n_scanned` were looked at before.

    What can never become a head is refused at its first wrong byte (400), or once it is too long (431).
    """
    end = buffer.find(_END, max(0, n_scanned - len(_END) + 1))
    n_bytes = len(buffer) if end < 0 else end + len(_END)
    foreign = _FOREIGN.search(buffer, max(0, n_scanned - 1), n_bytes)
    if foreign is not None:
        raise WireError(400, f"the request's head has {_fault(buffer, foreign)} at byte {foreign.start():,}")
    if n_bytes > limit_nbytes:
        raise WireError(431, f"the headers have {n_bytes:,} bytes or more, the limit is {limit_nbytes:,}")
    return None if end < 0 else n_bytes


def parse_head(parser: h11.Connection, raw: bytes, n_most_fields: int) -> h11.Request:
    """Have `parser` read the complete head `raw`; it is then where the body begins. WireError when it is refused."""
    lines = raw.split(b"\r\n")[1:-2]
    if len(lines) > n_most_fields:
        raise WireError(431, f"the headers have {len(lines):,} fields, the limit is {n_most_fields:,}")
    _check_repetition(lines)
    parser.receive_data(raw)
    try:
        request = parser.next_event()
    except h11.RemoteProtocolError as error:
        fault = str(error).partition(": bytearray(")[0]  # of the library, which goes on to show the line as Python does
        raise WireError(error.error_status_hint, f"the request is not valid HTTP/1.1: {fault}") from error
    if not isinstance(request, h11.Request):
        raise WireError(400, "the request is not valid HTTP/1.1")
    return request


def checked_head(request: h11.Request) -> RequestHead:
    """What we take from a parsed head. WireError when it contradicts itself or asks for what we do not do."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise WireError(505, "this server speaks HTTP/1.1")
    headers = _joined(request)
    method = request.method.decode("ascii")
    given_id = headers.get("x-request-id", "")
    return RequestHead(
        id=given_id if _REQUEST_ID.fullmatch(given_id) else new_request_id(),
        method=method,
        path=_path(method, request.target.decode("ascii"), headers.get("host", "")),
        headers=headers,
        body_nbytes=_body_nbytes(headers, request.http_version),
        expects_continue=_expects_continue(headers, request.http_version),
    )


def new_request_id() -> str:
    """An id for a request that brings none."""
    return f"req-{secrets.token_hex(12)}"


def _fault(buffer: bytearray, match: re.Match[bytes]) -> str:
    byte = match.group()
    if byte == b"\n" and buffer[match.start() - 1 : match.start()] == b"\r":
        return "a folded line"
    return {b"\n": "a bare line feed", b"\r": "a bare carriage return"}.get(
        byte, f"the control character {byte[0]:#04x}"
    )


def _check_repetition(lines: list[bytes]) -> None:
    """Refuse twice what may come once, equal or not, and a length that is no plain number."""
    counts = Counter(line.partition(b":")[0].lower() for line in lines)
    for name in _SINGLE:
        if counts[name.encode()] > 1:
            raise WireError(400, f"the request has {counts[name.encode()]} {name} fields, one is allowed")
    for line in lines:
        field, _, value = line.partition(b":")
        if field.lower() == b"content-length" and not _LENGTH.fullmatch(value.strip(b" \t")):
            raise WireError(400, f"the Content-Length is {value.strip()[:40].decode('latin-1')!r}, no number of bytes")


def _joined(request: h11.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _body_nbytes(headers: Mapping[str, str], version: bytes) -> int | None:
    """Bytes of the body, None when it is chunked; a message that could be read both ways is refused."""
    if "transfer-encoding" not in headers:
        return int(headers.get("content-length", "0"))
    if "content-length" in headers:
        raise WireError(400, "the request has both Transfer-Encoding and Content-Length")
    if version == b"1.0":
        raise WireError(400, "the request has Transfer-Encoding, which HTTP/1.0 does not know")
    return None


def _expects_continue(headers: Mapping[str, str], version: bytes) -> bool:
    expectation = headers.get("expect", "").lower()
    if expectation not in ("", "100-continue"):
        raise WireError(417, f"the request expects {expectation[:40]!r}, this server knows 100-continue")
    return bool(expectation) and version == b"1.1"


def _path(method: str, target: str, host: str) -> str:
    """The decoded path of a request target in origin, absolute or asterisk form; its host must be the one in Host."""
    if not _HOST.fullmatch(host):
        raise WireError(400, f"the Host is {host[:100]!r}, which is no host")
    if absolute := _ABSOLUTE.fullmatch(target):
        if absolute[1].lower() != host.lower():
            raise WireError(400, f"the target is on {absolute[1][:100]!r}, the Host is {host[:100]!r}")
        target = absolute[2] or "/"
        target = target if target.startswith("/") else "/" + target
    elif not (target.startswith("/") or (target == "*" and method == "OPTIONS")):
        raise WireError(400, f"the request target is {target[:100]!r}, which is no path")
    if "#" in target:
        raise WireError(400, "the request target has a fragment")
    return unquote(target.split("?", 1)[0])
