"""The engine over a real tiny core: choices at load, the life of requests, what is counted, and a device that dies."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client.parser import text_string_to_metric_families

from helios.engine import Engine, Generation
from helios.errors import DeviceError, QueueFullError, SettingError, ShuttingDownError
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target
from helios.metrics import HELP, Histogram, ServerMetrics, split_key
from helios.runtime.model import ModelRuntime
from helios.scheduler.request import Event, Failed, Finished, FinishReason, GenerationRequest, Token
from helios.scheduler.round import LaneCompletion, Round
from helios.settings import Settings
from tests.ignition.tiny_model import TinyModel, write_tiny
from tests.test_metrics import ROW

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NAMESPACE = "engine-tests"
DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
CONTEXT = 512
N_ACTIVE = 3
BUSY = {"requests_admitted", "requests_waiting", "requests_running", "cache_pages_held", "rounds_in_flight"}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("engine")
    checkpoint = write_tiny(directory / "tiny.gguf", TinyModel())
    path = directory / "tiny.core"
    prepare(checkpoint, path, host_target(), PrepareOptions(concurrency=N_ACTIVE), key=KEY, namespace=NAMESPACE)
    return path


@pytest.fixture
def start(core: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines with given settings; all are closed at the end."""
    engines: list[Engine] = []

    def start_engine(**settings: Any) -> Engine:
        chosen = Settings(**{"device": "cpu", "threads": 1, "context": CONTEXT, "accept": NAMESPACE, **settings})
        engines.append(Engine.start(core, chosen))
        return engines[-1]

    yield start_engine
    for engine in engines:
        engine.close()


def ask(n_prompt: int = 20, n_output: int = 8, **fields: Any) -> GenerationRequest:
    prompt = tuple((index * 7 + n_prompt) % 250 for index in range(n_prompt))
    return GenerationRequest(prompt, n_output, **fields)


async def events_of(generation: Generation) -> list[Event]:
    """Everything up to the ending."""
    events: list[Event] = []
    while not events or isinstance(events[-1], Token):
        events += await generation.next_batch()
    return events


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the model worker to get there."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def count(engine: Engine, name: str) -> float:
    """A number of /metrics, or how much a distribution has seen."""
    number = engine.statistics()[name]
    return number.count if isinstance(number, Histogram) else number


def n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_idle(engine: Engine) -> bool:
    return all(count(engine, name) == 0 for name in BUSY - {"requests_admitted"})


# -- choices at load


def test_only_the_programs_of_the_chosen_size_are_loaded(start: Callable[..., Engine]) -> None:
    """CON-1, RT-7: the four graphs of more lanes are not there, and answers are the same."""
    whole, single = start(), start(max_active=1)
    assert count(single, "device_bytes") <= count(whole, "device_bytes")
    request = ask(40, 12)

    async def answers(engine: Engine) -> list[Event]:
        return await events_of(engine.submit(request))

    assert asyncio.run(answers(single)) == asyncio.run(answers(whole))


def test_the_line_at_start_has_the_numbers_of_the_page(start: Callable[..., Engine]) -> None:
    """Issue 4, item 5."""
    engine = start(cache_gb=0.01, offload_gb=0.01)
    statistics = engine.statistics()
    said = engine.description
    n_pages = statistics["cache_pages"]
    assert f"context {CONTEXT}, {N_ACTIVE} active, cache 0.01 GiB ({n_pages:,} pages, {n_pages * 16:,} tokens)" in said  # type: ignore[operator]
    assert f"{statistics['cache_rows']} snapshots, offload 0.01 GiB" in said
    assert "on cpu" in said
    assert statistics["slots"] == N_ACTIVE
    assert statistics["context_tokens"] == CONTEXT
    assert 0 < count(engine, "cache_host_rows") < count(engine, "cache_host_pages")
    assert 0 < count(engine, "host_cache_bytes") <= 0.01 * 2**30


def test_another_kv_format_than_the_cores_is_refused(start: Callable[..., Engine]) -> None:
    assert start(kv="f16")
    with pytest.raises(SettingError, match="--kv is q8, the core was prepared to keep keys and values as f16"):
        start(kv="q8")


def test_a_start_up_option_wins_over_the_cores_default(start: Callable[..., Engine]) -> None:
    """CON-2."""
    defaults = start(temperature=0.25, top_k=7).sampling_defaults
    assert (defaults.temperature, defaults.top_k) == (0.25, 7)
    assert defaults.top_p == start().sampling_defaults.top_p


# -- requests


def test_a_finished_response_keeps_its_permit_and_nothing_else_until_it_is_read(start: Callable[..., Engine]) -> None:
    """HTTP-2: slot and pages are free although nobody has read a token; a cancel then changes nothing."""
    engine = start(queue_capacity=1)

    async def run() -> list[Event]:
        with engine.admit():
            generation = engine.submit(ask())
            await until(lambda: count(engine, 'requests_finished_total{reason="limit"}') == 1)
            await until(lambda: is_idle(engine))
            assert count(engine, "requests_admitted") == 1
            assert count(engine, "slots_free") == N_ACTIVE
            generation.cancel()
            return await events_of(generation)

    events = asyncio.run(run())
    assert len(events) == 9
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.LIMIT
    assert count(engine, "requests_cancelled_total") == 0
    assert count(engine, "requests_admitted") == 0


@pytest.mark.parametrize("n_tokens", [0, 1, 5])
def test_a_cancelled_request_gives_everything_back(
    hold_after: Callable[[float], None], start: Callable[..., Engine], n_tokens: int
) -> None:
    """Issue 4: cancelled before its first token, at it, and while it decodes."""
    hold_after(4 * n_tokens)  # a prompt takes fewer than three
    engine = start()

    async def run() -> Event:
        generation = engine.submit(ask(300, 200))
        events: list[Event] = []
        while len(events) < n_tokens:
            events += await generation.next_batch()
        generation.cancel()
        hold_after(inf)
        while not isinstance(events[-1] if events else None, Finished):
            events += await generation.next_batch()
        await until(lambda: is_idle(engine))
        return events[-1]

    ending = asyncio.run(run())
    assert isinstance(ending, Finished)
    assert ending.reason is FinishReason.CANCELLED
    assert count(engine, "requests_cancelled_total") == 1


def test_a_queued_request_can_be_cancelled(hold_after: Callable[[float], None], start: Callable[..., Engine]) -> None:
    hold_after(100)
    engine = start(max_active=1)

    async def run() -> None:
        running = engine.submit(ask(20, 400))
        await running.next_batch()
        queued = engine.submit(ask())
        await until(lambda: count(engine, "requests_waiting") == 1)
        queued.cancel()
        assert isinstance((await events_of(queued))[-1], Finished)
        assert count(engine, "requests_running") == 1
        running.cancel()
        hold_after(inf)
        await until(lambda: is_idle(engine))

    asyncio.run(run())


def test_more_than_may_be_admitted_are_refused_and_counted(start: Callable[..., Engine]) -> None:
    """HTTP-1."""
    engine = start(queue_capacity=1, max_active=1)
    permits = [engine.admit(), engine.admit()]
    with pytest.raises(QueueFullError):
        engine.admit()
    permits[0].release()
    permits[0].release()
    engine.admit().release()
    assert count(engine, "requests_refused_total") == 1


# -- metrics


def test_every_number_is_explained_and_every_explanation_has_a_number(start: Callable[..., Engine]) -> None:
    """MET-1, MET-2."""
    names = {split_key(key)[0] for key in start().statistics()}
    assert names == set(HELP)


def test_labels_are_those_of_the_document(start: Callable[..., Engine]) -> None:
    """MET-1: closed sets, all of whose values are listed."""
    shown: dict[str, dict[str, set[str]]] = {}
    for key in start().statistics():
        name, labels = split_key(key)
        for label, value in labels.items():
            shown.setdefault(name, {}).setdefault(label, set()).add(value)
    documented: dict[str, dict[str, set[str]]] = {}
    for line in DOCUMENT.read_text().splitlines():
        row = ROW.fullmatch(line)
        name = row["name"].removeprefix("helios_") if row else ""
        if row and name in HELP:
            found = re.findall(r"`(\w+)`: ([\w, ]+)", row["labels"])
            documented |= {name: {label: set(values.split(", ")) for label, values in found}} if found else {}
    assert shown == documented


def test_the_page_counts_what_happened(start: Callable[..., Engine]) -> None:
    """MET-1: read by Prometheus's own parser; a second request with the same prompt takes it from the cache."""
    engine = start()

    async def run() -> None:
        for _ in range(2):
            await events_of(engine.submit(ask(100, 8)))
        await until(lambda: is_idle(engine))

    asyncio.run(run())
    text = ServerMetrics(engine.statistics, lambda: 0).exposition().decode()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["helios_requests_submitted_total",] == 2
    assert samples["helios_requests_finished_total", "limit"] == 2
    assert samples["helios_prompt_tokens_total",] == 200
    assert samples["helios_output_tokens_total",] == 16
    assert samples["helios_inter_token_seconds_count",] == 14
    assert samples["helios_time_to_first_token_seconds_count",] == 2
    assert samples["helios_queue_seconds_count",] == 2
    assert samples["helios_reused_prompt_tokens_total",] == 99
    assert samples["helios_request_reused_tokens_sum",] == 99
    assert samples["helios_computed_prompt_tokens_total",] == 101
    assert samples["helios_graph_launches_total", "initialize"] == 2
    assert samples["helios_graph_launches_total", "prefill"] == 2
    assert samples["helios_graph_launches_total", "decode"] >= 14
    assert samples["helios_cache_usage_ratio",] == 0
    n_pages = samples["helios_cache_pages",]
    assert samples["helios_cache_pages_free",] + samples["helios_cache_pages_cached",] == n_pages
    assert samples["helios_cache_pages_cached",] == 6


# -- a device that dies


def kill_device(monkeypatch: pytest.MonkeyPatch, after_rounds: int) -> None:
    """The device dies in the completion that follows so many good ones."""
    complete = ModelRuntime.complete
    n_done = 0

    def dying(runtime: ModelRuntime) -> tuple[Round, list[LaneCompletion]]:
        nonlocal n_done
        n_done += 1
        if n_done > after_rounds:
            raise DeviceError("an illegal address was read")
        return complete(runtime)

    monkeypatch.setattr(ModelRuntime, "complete", dying)


@pytest.mark.parametrize("after_rounds", [0, 1, 4])
def test_a_dead_device_ends_every_request_with_an_error(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, after_rounds: int
) -> None:
    """CACHE-4, HTTP-3: in the first prefill, behind it, and while decoding; queued ones too. Then closing works."""
    kill_device(monkeypatch, after_rounds)
    engine = start(max_active=2)

    async def run() -> list[list[Event]]:
        generations = [engine.submit(ask(30, 100)) for _ in range(4)]
        stories = [await events_of(generation) for generation in generations]
        await until(lambda: not engine.is_alive())
        return [*stories, await events_of(engine.submit(ask()))]

    stories = asyncio.run(run())
    for events in stories:
        ending = events[-1]
        assert isinstance(ending, Failed)
        assert "illegal address" in str(ending.error)
        assert all(isinstance(event, Token) for event in events[:-1])
    assert not engine.is_ready()
    assert isinstance(engine.fault, DeviceError)
    assert count(engine, "requests_failed_total") == 5
    engine.close()
    assert "helios-model" not in {thread.name for thread in threading.enumerate()}


def test_a_finished_answer_survives_the_device(start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was validated before the fault stays true, read or not."""
    engine = start()

    async def run() -> list[Event]:
        unread = engine.submit(ask())
        await until(lambda: count(engine, 'requests_finished_total{reason="limit"}') == 1)
        await until(lambda: is_idle(engine))
        kill_device(monkeypatch, 0)
        assert isinstance((await events_of(engine.submit(ask())))[-1], Failed)
        return await events_of(unread)

    events = asyncio.run(run())
    assert len(events) == 9
    assert isinstance(events[-1], Finished)


def test_one_engine_serves_one_event_loop_after_another(start: Callable[..., Engine]) -> None:
    """A loop that closed with a request under way hurts nobody, and its descriptor is given back."""
    engine = start()

    async def leave() -> None:
        await engine.submit(ask(20, 400)).next_batch()

    async def run() -> list[Event]:
        return await events_of(engine.submit(ask()))

    asyncio.run(run())
    n_open = n_descriptors()
    for _ in range(3):
        asyncio.run(leave())
        assert len(asyncio.run(run())) == 9
        assert n_descriptors() == n_open
    engine.close()
    assert engine.fault is None


def test_who_still_reads_when_the_engine_closes_is_told(
    hold_after: Callable[[float], None], start: Callable[..., Engine]
) -> None:
    """HTTP-4: also what was delivered and not yet taken by its loop."""
    hold_after(100)
    engine = start()

    async def run() -> list[Event]:
        generation = engine.submit(ask(20, 400))
        first = await generation.next_batch()
        engine.close()  # blocks the loop, which takes the rest afterwards
        n_open = n_descriptors()
        events = first + await events_of(generation)
        assert n_descriptors() == n_open - 1
        return events

    *tokens, ending = asyncio.run(run())
    assert isinstance(ending, Failed)
    assert 1 <= len(tokens) < 400


def test_draining_refuses_newcomers_and_ends_what_does_not_finish(
    hold_after: Callable[[float], None], start: Callable[..., Engine]
) -> None:
    """HTTP-4."""
    hold_after(100)
    engine = start()

    async def run() -> Event:
        generation = engine.submit(ask(20, 480))
        await generation.next_batch()
        drained: Awaitable[None] = asyncio.ensure_future(engine.drain(0.01))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            engine.admit()
        await drained
        return (await events_of(generation))[-1]

    ending = asyncio.run(run())
    assert isinstance(ending, Finished)
    assert ending.reason is FinishReason.CANCELLED
    assert not engine.is_ready()
    assert engine.is_alive()
