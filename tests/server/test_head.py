"""Heads of requests as bytes: where they end, what is refused, and that it is refused at once."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.server.head import RequestHead, checked_head, head_length, parse_head
from helios.server.status import WireError

GET = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"


def read(raw: bytes, n_most_fields: int = 100) -> RequestHead:
    """The head that `raw` is, by way of every check."""
    n_head = head_length(bytearray(raw), 0, 4096)
    assert n_head is not None
    return checked_head(parse_head(h11.Connection(h11.SERVER), raw[:n_head], n_most_fields))


def refused(raw: bytes) -> int:
    with pytest.raises(WireError) as refusal:
        read(raw)
    return refusal.value.status


def with_field(field: bytes) -> bytes:
    return GET.replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n\r\n")


@given(st.integers(0, len(GET) - 1), st.binary(max_size=20))
def test_a_head_ends_at_its_empty_line_whatever_follows(n_first: int, body: bytes) -> None:
    """Whole, in two pieces, byte by byte, and with the body's bytes behind it."""
    assert head_length(bytearray(GET + body), 0, 4096) == len(GET)
    buffer = bytearray(GET[:n_first])
    assert head_length(buffer, 0, 4096) is None
    buffer += GET[n_first:] + body
    assert head_length(buffer, n_first, 4096) == len(GET)
    for index in range(len(GET)):
        assert head_length(bytearray(GET[:index]), max(0, index - 1), 4096) is None


FOREIGN = {
    "NUL": b"X: a\0b",
    "bell": b"X: a\x07b",
    "delete": b"X: a\x7fb",
    "vertical tab": b"X: a\x0bb",
    "bare line feed": b"X: a\nY: b",
    "bare carriage return": b"X: a\rb",
    "folded with a space": b"X: a\r\n b",
    "folded with a tab": b"X: a\r\n\tContent-Length: 5",
}


@pytest.mark.parametrize("raw", [GET.replace(b" ", b"  "), GET.replace(b"Host:", b"Host :"), b"nonsense\r\n\r\n"])
def test_a_refusal_speaks_of_http_and_not_of_python(raw: bytes) -> None:
    with pytest.raises(WireError, match=r"^the request is not valid HTTP/1\.1: [\w ]+$"):
        read(raw)


@pytest.mark.parametrize("field", FOREIGN.values(), ids=FOREIGN)
def test_foreign_bytes_are_refused_at_the_first_of_them(field: bytes) -> None:
    """Research 1.13. Byte by byte as well as whole, and before the head is complete."""
    raw = with_field(field)
    assert refused(raw) == 400
    lengths = (_length_byte_by_byte(raw[:n_bytes]) for n_bytes in range(len(raw)))
    with pytest.raises(WireError, match=r"at byte (3[3-9]|4\d)") as refusal:
        list(lengths)
    assert refusal.value.status == 400


def _length_byte_by_byte(raw: bytes) -> int | None:
    buffer, length = bytearray(), None
    for n_scanned, byte in enumerate(raw):
        buffer.append(byte)
        length = head_length(buffer, n_scanned, 4096)
    return length


def test_a_refusal_names_the_byte() -> None:
    with pytest.raises(WireError, match=r"a bare line feed at byte 20"):
        head_length(bytearray(b"GET /health HTTP/1.1\nHost: h\n\n"), 0, 4096)
    with pytest.raises(WireError, match=r"the control character 0x16 at byte 0"):
        head_length(bytearray(b"\x16\x03\x01"), 0, 4096)
    with pytest.raises(WireError, match=r"a folded line"):
        head_length(bytearray(b"GET / HTTP/1.1\r\nA: b\r\n c"), 0, 4096)


@pytest.mark.parametrize("n_bytes", [99, 100, 101])
def test_a_head_may_have_as_many_bytes_as_the_limit(n_bytes: int) -> None:
    raw = with_field(b"X: " + b"x" * (n_bytes - len(GET) - 5))
    assert len(raw) == n_bytes
    if n_bytes <= 100:
        assert head_length(bytearray(raw), 0, 100) == n_bytes
    else:
        with pytest.raises(WireError, match="101") as refusal:
            head_length(bytearray(raw), 0, 100)
        assert refusal.value.status == 431
    with pytest.raises(WireError):
        head_length(bytearray(b"G" * 101), 0, 100)


def test_a_head_may_have_as_many_fields_as_the_limit() -> None:
    raw = GET.replace(b"\r\n\r\n", b"\r\n" + b"".join(b"X: y\r\n" for _ in range(9)) + b"\r\n")
    assert read(raw, 10).headers["x"] == ", ".join("y" * 9)
    with pytest.raises(WireError, match="10 fields, the limit is 9") as refusal:
        read(raw, 9)
    assert refusal.value.status == 431


@pytest.mark.parametrize(
    ("field", "status"),
    [
        (b"Content-Length: 5\r\nContent-Length: 6", 400),
        (b"Content-Length: 5\r\nContent-Length: 5", 400),
        (b"Content-Length: 5\r\ncontent-length: 5", 400),
        (b"Content-Length: 5, 5", 400),
        (b"Content-Length: +5", 400),
        (b"Content-Length: -5", 400),
        (b"Content-Length: 5 5", 400),
        (b"Content-Length: 0x5", 400),
        (b"Content-Length: 5_0", 400),
        (b"Content-Length: \xb2", 400),
        (b"Content-Length:", 400),
        (b"Content-Length: " + b"9" * 19, 400),
        (b"Content-Length : 5", 400),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400),
        (b"Transfer-Encoding: chunked, chunked", 501),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: chunked, gzip", 501),
        (b"Transfer-Encoding: identity", 501),
        (b"Transfer-Encoding: xchunked", 501),
        (b'Transfer-Encoding: "chunked"', 501),
        (b"Transfer-Encoding:", 501),
        (b"Transfer-Encoding : chunked", 400),
        (b"Transfer-Encoding\xa0: chunked", 400),
        (b": nameless", 400),
        (b"no colon", 400),
        (b"Na me: x", 400),
        (b"Host: h", 400),
        (b"Host: other", 400),
        (b"Authorization: Bearer a\r\nAuthorization: Bearer b", 400),
        (b"Expect: 200-ok", 417),
    ],
)
def test_fields_that_readers_disagree_about_are_refused(field: bytes, status: int) -> None:
    """Research 1.13: a second reader in front of us must not see another request than we do."""
    assert refused(with_field(field)) == status


@pytest.mark.parametrize(
    "host", [b"h", b"H.example:80", b"127.0.0.1:8000", b"[::1]:8000", b"a_b", b"", b"h:", b"xn--caf-dma.example"]
)
def test_hosts_of_every_form_are_taken(host: bytes) -> None:
    assert read(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").path == "/"


@pytest.mark.parametrize(
    "host", [b"h/x", b"h:80:80", b"a b", b"u@h", b"[::1", b"h, h", b"h:x", b"h?", b"\xe9", b"h:123456"]
)
def test_what_is_no_host_is_refused(host: bytes) -> None:
    assert refused(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n") == 400


def test_http_1_1_needs_a_host_and_http_1_0_has_no_chunks() -> None:
    assert refused(b"GET / HTTP/1.1\r\n\r\n") == 400
    assert read(b"GET / HTTP/1.0\r\n\r\n").path == "/"
    assert refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") == 400
    assert not read(b"POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n").expects_continue


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"2.0", b"9.9"])
def test_other_versions_are_refused(version: bytes) -> None:
    assert refused(GET.replace(b"1.1", version)) in (400, 505)
    assert refused(b"PRI * HTTP/2.0\r\n\r\n") == 505


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/", "/"),
        (b"/health?a=/b", "/health"),
        (b"/%68ealth", "/health"),
        (b"/caf%C3%A9", "/café"),
        (b"/%zz%00%ff", "/%zz\0\ufffd"),
        (b"//two", "//two"),
        (b"/a/../b", "/a/../b"),
        (b"http://h/health", "/health"),
        (b"HTTPS://H/health?x=1", "/health"),
        (b"http://h", "/"),
        (b"http://h?x", "/"),
    ],
)
def test_targets_become_paths(target: bytes, path: str) -> None:
    assert read(GET.replace(b"/health", target)).path == path


@pytest.mark.parametrize(
    "target",
    [
        b"health",
        b"*",
        b"h:80",
        b"http:/health",
        b"http:///health",
        b"http://other/health",
        b"http://u@h/health",
        b"http://u:p@h/health",
        b"http://h:80/health",
        b"http://[::1/health",
        b"ftp://h/health",
        b"file:///etc/passwd",
        b"/health#fragment",
        b"\\health",
    ],
)
def test_targets_that_name_another_place_are_refused(target: bytes) -> None:
    assert refused(GET.replace(b"/health", target)) == 400


def test_the_whole_server_can_be_asked_for_its_options() -> None:
    assert read(GET.replace(b"GET /health", b"OPTIONS *")).path == "*"
    assert refused(GET.replace(b"GET /health", b"CONNECT h:80")) == 400


def test_a_head_says_how_long_its_body_is() -> None:
    assert read(GET).body_nbytes == 0
    assert read(with_field(b"Content-Length: 0012")).body_nbytes == 12
    assert read(with_field(b"Transfer-Encoding: Chunked")).body_nbytes is None
    assert read(with_field(b"Content-Length: 1\r\nExpect: 100-Continue")).expects_continue


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_head_or_refused_with_a_4xx(junk: bytes, is_field: bool) -> None:
    raw = with_field(b"X-Junk:" + junk) if is_field else junk + b" HTTP/1.1\r\nHost: h\r\n\r\n"
    status = 200
    try:
        n_head = head_length(bytearray(raw), 0, 4096)
        if n_head is not None:
            checked_head(parse_head(h11.Connection(h11.SERVER), raw[:n_head], 100))
    except WireError as refusal:
        status = refusal.status
    assert status in (200, 400, 417, 431, 501, 505)
