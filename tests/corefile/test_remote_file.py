"""Ranges over HTTP: resumed where they broke off, retried for a while, and never more than was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import sleep

import pytest

from helios.corefile.remote_file import RemoteFile
from helios.errors import LocationError
from tests.corefile.range_server import Handler, RangeServer, always, cut, drop, serving, status

CONTENT = bytes(range(256)) * 400


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with serving({"/weights": CONTENT}) as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def remote(server: RangeServer, pauses: list[float]) -> Iterator[RemoteFile]:
    file = RemoteFile(f"{server.url}/weights", pauses.append)
    yield file
    file.close()


def read(remote: RemoteFile, offset: int, nbytes: int) -> bytes:
    data = bytearray(nbytes)
    remote.read_into(offset, memoryview(data))
    return bytes(data)


def test_exactly_the_range_is_asked_for(server: RangeServer, remote: RemoteFile) -> None:
    """CORE-1: locations may be read by ranges."""
    assert read(remote, 1000, 5000) == CONTENT[1000:6000]
    assert read(remote, 0, len(CONTENT)) == CONTENT
    assert server.requests == [("/weights", "bytes=1000-5999"), ("/weights", f"bytes=0-{len(CONTENT) - 1}")]


def test_a_broken_transfer_goes_on_where_it_stopped(
    server: RangeServer, remote: RemoteFile, pauses: list[float]
) -> None:
    """Issue 3: retry and resume."""
    server.faults = [cut(7000), drop, cut(1), status(503)]
    assert read(remote, 100, 50_000) == CONTENT[100:50_100]
    starts = [int(wanted.removeprefix("bytes=").split("-")[0]) for _, wanted in server.requests]
    assert starts == [100, 7100, 7100, 7101, 7101]
    assert len(pauses) == 4


@pytest.mark.parametrize("fault", [drop, cut(0), *map(status, (408, 425, 429, 500, 502, 503, 504))])
def test_a_server_that_stays_broken_is_given_up(
    server: RangeServer, remote: RemoteFile, pauses: list[float], fault: Callable[[Handler], bool]
) -> None:
    """Issue 3: a bounded number of attempts, with pauses that double."""
    server.faults = always(fault)
    with pytest.raises(LocationError, match="broke off after 0 of 100 bytes"):
        read(remote, 0, 100)
    assert pauses == [0.1 * 2**index for index in range(5)]


def test_a_server_that_is_not_there_is_given_up(pauses: list[float]) -> None:
    with serving({}) as gone:
        pass
    with pytest.raises(LocationError, match="Connection refused"):
        read(RemoteFile(f"{gone.url}/weights", pauses.append), 0, 1)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (status(404), "answers 404"),
        (status(403), "answers 403"),
        (status(416), "ends before byte 200"),
        (status(200), "is not served by ranges"),
        (lambda handler: handler.answer(206, b"x" * 100), "another range"),
        (lambda handler: handler.answer(206, b"x" * 100, "bytes 0-99/1000"), "another range"),
        (lambda handler: handler.answer(206, b"x" * 100, "bytes 100-199"), "another range"),
        (lambda handler: handler.answer(206, b"x" * 100, "bytes 100-1999/5000"), "another range"),
        (lambda handler: handler.answer(302, to="ftp://127.0.0.1/weights"), "which is not followed"),
        (lambda handler: handler.answer(302, to="file:///etc/passwd"), "which is not followed"),
        (lambda handler: handler.answer(302, to="http://[::1/"), "which is not followed"),
    ],
)
def test_an_answer_that_no_retry_mends_is_final(
    server: RangeServer, remote: RemoteFile, pauses: list[float], fault: Callable[[Handler], bool], says: str
) -> None:
    """Issue 3: each is one clear sentence."""
    server.faults = [fault]
    with pytest.raises(LocationError, match=says):
        read(remote, 100, 100)
    assert pauses == []
    assert len(server.requests) == 1


def test_a_body_that_is_longer_than_its_range_is_not_read_on(server: RangeServer, remote: RemoteFile) -> None:
    """Issue 3: bounded sizes."""
    server.faults = [lambda handler: handler.answer(206, CONTENT, "bytes 0-9/1000000")]
    assert read(remote, 0, 10) == CONTENT[:10]
    assert read(remote, 10, 10) == CONTENT[10:20]


def test_redirects_are_followed_once_and_remembered(server: RangeServer, remote: RemoteFile) -> None:
    """Issue 3: HTTP(S)."""
    server.files["/there"] = CONTENT
    server.faults = [status(302, to="/there")]
    assert read(remote, 0, 10) == CONTENT[:10]
    assert read(remote, 10, 10) == CONTENT[10:20]
    assert [path for path, _ in server.requests] == ["/weights", "/there", "/there"]


def test_redirects_without_end_are_given_up(server: RangeServer, remote: RemoteFile) -> None:
    server.faults = always(status(307, to="/weights"))
    with pytest.raises(LocationError, match="redirects more than 5 times"):
        read(remote, 0, 10)
    assert len(server.requests) == 6


def test_threads_read_at_the_same_time(server: RangeServer, remote: RemoteFile) -> None:
    """CORE-3: chunks are read ahead on several threads."""
    server.faults = [cut(10), drop, cut(999)]
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda start: read(remote, start, 1024), range(0, len(CONTENT), 1024)))
    assert b"".join(parts) == CONTENT


def test_a_server_that_drips_is_given_up(
    server: RangeServer, remote: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3: a read has a deadline in all, however often a byte arrives."""
    monkeypatch.setattr("helios.corefile.remote_file._DEADLINE_S", 0.05)

    def drip(handler: Handler) -> bool:
        """A byte at a time, for a quarter of an hour."""
        handler.answer(206, b"", "bytes 0-199999/200000", says_nbytes=200_000)
        with suppress(OSError):
            for _ in range(100_000):
                handler.wfile.write(b"x")
                sleep(0.01)
        return True

    server.faults = always(drip)
    with pytest.raises(LocationError, match="too slow"):
        read(remote, 0, 200_000)


def test_one_connection_serves_many_reads(server: RangeServer, remote: RemoteFile) -> None:
    for start in range(0, 10_000, 1000):
        assert read(remote, start, 1000) == CONTENT[start : start + 1000]
    assert server.n_connections == 1
