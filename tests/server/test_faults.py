"""HTTP-3: a device that dies, or never answers again, in every phase of a request, seen through real HTTP.

Every request ends exactly once: with an error status, with one error event and no [DONE], or whole where it was complete before.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

from helios.cache.books import CacheShape
from helios.cache.transfer import Transfer
from helios.engine import Engine
from helios.errors import DeviceError
from helios.runtime.heartbeat import Watch
from helios.scheduler.request import FinishReason
from helios.scheduler.round import LaneCompletion, Round
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import DEADLINE_S, RunningServer, events_of, raw_chat, run_server, wait_until
from tests.server.scripted import CONTEXT_TOKENS, N_SLOTS, PAGE_TOKENS, ScriptedDevice, scripted_engine
from tests.server.scripted_engine import TEMPLATE, plain_frontend

FAULTS = {"dies": "device_error", "hangs": "device_stalled"}
SAYS = 65  # a token of one letter, for as long as it may
N_PAGES = 24  # so few that a second prompt drives the first one's pages to the host


class FaultyDevice(ScriptedDevice):
    """Goes the way of `fault` at the first round or transfer that `finds` picks. A device that hangs returns when `is_over`; until
    then the watch looks as often as it takes, and never before."""

    def __init__(self, tokenizer: Tokenizer, fault: str) -> None:
        super().__init__(tokenizer)
        self.voice = lambda request, said, mask: SAYS
        self.fault = fault
        self.finds: Callable[[Round | Transfer], bool] = lambda what: False
        self.is_over = threading.Event()
        self.watch: Watch | None = None
        self.started: list[Transfer] = []

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        if self.finds(self._in_flight[0]):
            self._fail()
        return super().complete()

    def start_transfers(self, transfers: Iterable[Transfer]) -> None:
        self.started += transfers

    def finished_transfers(self) -> list[Transfer]:
        if any(self.finds(each) for each in self.started):
            self._fail()
        finished, self.started = self.started, []
        return finished

    def wait_transfer(self) -> None:
        assert self.started

    def _fail(self) -> None:
        if self.fault == "dies":
            raise DeviceError("the scripted device has failed")
        looking = threading.Thread(target=self._look)
        looking.start()
        assert self.is_over.wait(DEADLINE_S)
        looking.join()

    def _look(self) -> None:
        assert self.watch is not None
        while not self.watch.look():
            pass
        self.watch._on_stall()


@dataclass
class Broken:
    """A server whose device is about to break."""

    server: RunningServer
    engine: Engine
    device: FaultyDevice
    code: str

    def ask(self, **fields: Any) -> Client:
        return Client(self.server, fields)

    def statistics(self) -> dict[str, Any]:
        return self.engine.statistics()

    def n_in_engine(self) -> int:
        numbers = self.statistics()
        return int(numbers["requests_waiting"] + numbers["requests_running"])

    def check_ended(self) -> None:
        """Every request has its one ending, permits are back, and the server says what it is."""
        wait_until(lambda: self.statistics()["requests_admitted"] == 0)
        numbers = self.statistics()
        endings = (
            "requests_failed_total",
            "requests_cancelled_total",
            *(name for name in numbers if "finished_total" in name),
        )
        assert numbers["requests_submitted_total"] == sum(numbers[name] for name in endings)
        assert self.engine._generations == {}
        assert not self.engine.is_alive()  # the watchdog is fed no more
        status, _, body = self.server.exchange("GET", "/health")
        assert (status, json.loads(body)) == (503, {"status": "failed", "error": self.code})
        assert self.server.exchange("GET", "/ready")[0] == 503
        status, document = self.server.chat()
        assert (status, document["error"]["code"]) == (500, self.code)


class Client:
    """One request, sent at once and read when its test says so."""

    def __init__(self, server: RunningServer, fields: dict[str, Any]) -> None:
        self._is_stream = bool(fields.get("stream"))
        self.socket = server.connect(4096 if self._is_stream else None)
        self.socket.sendall(raw_chat(**{"max_tokens": 3000, **fields}))
        self._response = http.client.HTTPResponse(self.socket)
        self._has_begun = False
        self._seen = b""

    def begin(self) -> int:
        if not self._has_begun:
            self._response.begin()
            self._has_begun = True
        return self._response.status

    def read_some(self) -> None:
        """Read until the second chunk has begun, which has text."""
        assert self.begin() == 200
        while self._seen.count(b"data: ") < 2:
            self._seen += self._response.read1()

    def failed_with(self) -> str:
        """The code of the one error that this answer ends with."""
        status, body = self.begin(), self._seen + self._response.read()
        if not self._is_stream or status != 200:  # a stream that had not begun fails like a whole answer
            assert status == 500
            return str(json.loads(body)["error"]["code"])
        events = list(events_of(body))
        assert status == 200
        assert [event for event in events if "error" in event or event == "[DONE]"] == events[-1:]
        return str(events[-1]["error"]["code"])

    def whole(self) -> list[Any]:
        assert self.begin() == 200
        return list(events_of(self._response.read()))


@contextmanager
def breaking(tokenizer: Tokenizer, fault: str, n_pages: int) -> Iterator[Broken]:
    device = FaultyDevice(tokenizer, fault)
    settings = Settings(port=0, drain_timeout=3600, device_timeout=3600, send_buffer=4 << 10)
    shape = CacheShape(PAGE_TOKENS, n_pages, 0, 64, 0, True)
    engine = scripted_engine(tokenizer, plain_frontend(), TEMPLATE, device, time.monotonic, shape, settings)
    device.watch = engine._worker._watch
    server = run_server(engine, settings)  # type: ignore[arg-type]
    try:
        yield Broken(server, engine, device, FAULTS[fault])
    finally:
        device.is_over.set()
        for connection in server.sockets:
            connection.close()
        server.stop()
        engine.close()


@pytest.fixture(params=list(FAULTS))
def broken(
    request: pytest.FixtureRequest, hold_after: Callable[[float], None], tokenizer: Tokenizer
) -> Iterator[Broken]:
    with breaking(tokenizer, request.param, N_SLOTS * CONTEXT_TOKENS // PAGE_TOKENS) as running:
        yield running


def is_prefill(what: Round | Transfer) -> bool:
    return isinstance(what, Round) and any(lane.query_length > 1 for lane in what.lanes)


def is_decode(what: Round | Transfer) -> bool:
    return isinstance(what, Round) and any(lane.query_length == 1 and lane.is_sampled for lane in what.lanes)


def is_reload(what: Round | Transfer) -> bool:
    return isinstance(what, Transfer) and not what.is_offload


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("finds", [is_prefill, is_decode])
def test_a_request_that_runs(broken: Broken, finds: Callable[[Round | Transfer], bool], is_stream: bool) -> None:
    broken.device.finds = finds
    client = broken.ask(stream=is_stream)
    assert client.failed_with() == broken.code
    broken.check_ended()


def test_streams_that_are_read_and_requests_that_wait(broken: Broken, hold_after: Callable[[float], None]) -> None:
    """Some hold a slot and some do not yet."""
    hold_after(0)
    streams = []
    for n_streams in range(1, N_SLOTS + 1):
        streams.append(broken.ask(stream=True))
        wait_until(lambda n_streams=n_streams: broken.n_in_engine() == n_streams)
        hold_after(20 * n_streams)
        streams[-1].read_some()
    waiting = [broken.ask(stream=index % 2 == 0) for index in range(4)]
    wait_until(lambda: broken.statistics()["requests_waiting"] == 4)
    broken.device.finds = is_decode
    hold_after(inf)
    assert [client.failed_with() for client in streams + waiting] == [broken.code] * 8
    broken.check_ended()


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_request_whose_pages_come_back_from_the_host(tokenizer: Tokenizer, fault: str) -> None:
    """CACHE-3: while nothing runs, and the worker waits for the copy."""
    with breaking(tokenizer, fault, N_PAGES) as broken:
        first, second = ("a" * 200, "b" * 200)
        for text in (first, second, second + "c" * 60):
            status, document = broken.server.chat(messages=[{"role": "user", "content": text}], max_tokens=20)
            assert status == 200, document
        broken.device.finds = is_reload
        client = broken.ask(messages=[{"role": "user", "content": first}], max_tokens=20)
        assert client.failed_with() == broken.code
        broken.check_ended()


def test_what_was_complete_is_delivered_whole(broken: Broken) -> None:
    """An answer that its reader has yet to take is no longer the device's affair; its permit is held until then."""
    done = broken.ask(stream=True, max_tokens=2500, return_token_ids=True)  # an event for each token
    wait_until(lambda: broken.statistics()[f'requests_finished_total{{reason="{FinishReason.LIMIT.value}"}}'] == 1)
    assert broken.statistics()["requests_admitted"] == 1
    broken.device.finds = lambda what: True
    assert broken.ask().failed_with() == broken.code
    assert broken.statistics()["requests_admitted"] == 1
    events = done.whole()
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert sum(len(choice["delta"].get("content", "")) for event in events[:-1] for choice in event["choices"]) == 2500
    broken.check_ended()


def test_a_server_that_drains_is_held_up_no_longer_than_the_fault_takes_to_show(
    broken: Broken, hold_after: Callable[[float], None]
) -> None:
    """HTTP-4: the open stream gets its error, and the server ends before its drain time is over."""
    hold_after(20)
    client = broken.ask(stream=True)
    client.read_some()
    stopping = threading.Thread(target=broken.server.stop)
    stopping.start()
    wait_until(lambda: not broken.engine.is_ready())
    broken.device.finds = is_decode
    hold_after(inf)
    assert client.failed_with() == broken.code
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
    assert broken.statistics()["requests_admitted"] == 0
