"""Numbers for `/metrics`: the statistics of long-lived objects, as Prometheus text, each with what it means.

It knows no engine and no HTTP: it is given mappings of names to numbers, `name_total` for a counter, `name{label="value"}` for one
sample of a labelled family, a Histogram for a distribution. Only names that are explained here are shown, and labels hold nothing
that a client can invent (MET-1).
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)

_PREFIX = "helios_"
_KEPT_PREFIX = "flare_"  # names that the mission gives whole (MET-2)
_VLLM_PREFIX = "vllm:"
_KEY = re.compile(r'(?P<name>\w+)(?:\{(?P<label>\w+)="(?P<value>[^"]*)"\})?')


class Histogram:
    """A distribution with fixed bounds, for one writer at a time. `observe` takes no lock: about 0.2 µs."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound as text, observations at most that), the last bound infinite."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, itertools.accumulate(self._counts)), strict=True))

    @property
    def sum(self) -> float:
        return self._sum


Number = int | float | Histogram
Statistics = Mapping[str, Number]

# What each statistic is, in the order of the page. docs/metrics.md shows the same.
HELP: Mapping[str, str] = {
    "requests_admitted": "Requests that hold a permit: in preparation, queued, running, or finished and not yet read.",
    "requests_waiting": "Requests that wait for a slot.",
    "requests_running": "Requests that hold a slot.",
    "requests_submitted_total": "Sequences handed to the scheduler; a request for n choices counts n times.",
    "requests_finished_total": "Sequences that ended well: eos, the output limit, or a stop.",
    "requests_cancelled_total": "Sequences ended by their client or by shutdown before they were complete.",
    "requests_failed_total": "Sequences that ended with an error.",
    "requests_refused_total": "Requests answered 429 because as many as allowed were admitted already.",
    "queue_seconds": "Seconds from submission to the first slot.",
    "time_to_first_token_seconds": "Seconds from the request's arrival to its first token.",
    "inter_token_seconds": "Seconds between two tokens of one sequence, every gap counted.",
    "request_seconds": "Seconds from the request's arrival to its last token, of sequences that finished.",
    "request_prompt_tokens": "Prompt tokens of sequences that finished.",
    "request_output_tokens": "Output tokens of sequences that finished.",
    "prompt_tokens_total": "Prompt tokens of admitted sequences, reused ones included.",
    "output_tokens_total": "Tokens generated.",
    "reused_prompt_tokens_total": "Prompt tokens taken from the prefix cache at a sequence's first admission.",
    "slots": "Sequences that can be generated at once (--max-active).",
    "slots_free": "Slots that hold no sequence.",
    "context_tokens": "Most tokens of one request, prompt and answer (--context).",
    "rounds_total": "Submissions planned.",
    "rounds_in_flight": "Submissions launched whose completion has not been read.",
    "submissions_total": "Submissions launched on the device.",
    "graph_launches_total": "Captured programs launched, by operation.",
    "device_bytes": "Bytes of device memory in use: weights, state, cache and scratch.",
    "cache_bytes": "Bytes of device memory that the pages of the KV cache take (--cache-gb).",
    "cache_usage_ratio": "Share of the cache's pages that running sequences hold, 0 to 1.",
}


@dataclass(frozen=True, slots=True)
class _Alias:
    """A number under the name by which gateways of vLLM know it: the sum of `sources`, with fixed labels."""

    name: str
    text: str
    sources: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


def _success(reason: str, *sources: str) -> _Alias:
    return _Alias("request_success_total", "Sequences that ended, by reason.", sources, (("finished_reason", reason),))


_VLLM = (
    _Alias("num_requests_running", "Sequences that hold a slot.", ("requests_running",)),
    _Alias("num_requests_waiting", "Sequences that wait for a slot.", ("requests_waiting",)),
    _Alias("kv_cache_usage_perc", "Share of the cache in use, 0 to 1.", ("cache_usage_ratio",)),
    _Alias("num_preemptions_total", "Sequences preempted.", ("preemptions_total",)),
    _Alias("prompt_tokens_total", "Prompt tokens of admitted sequences.", ("prompt_tokens_total",)),
    _Alias("generation_tokens_total", "Tokens generated.", ("output_tokens_total",)),
    _Alias("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", ("prompt_tokens_total",)),
    _Alias("prefix_cache_hits_total", "Prompt tokens found there.", ("reused_prompt_tokens_total",)),
    _success("stop", 'requests_finished_total{reason="eos"}', 'requests_finished_total{reason="stop"}'),
    _success("length", 'requests_finished_total{reason="limit"}'),
    _success("abort", "requests_cancelled_total"),
    _Alias("request_queue_time_seconds", "Seconds from submission to a slot.", ("queue_seconds",)),
    _Alias("time_to_first_token_seconds", "Seconds to the first token.", ("time_to_first_token_seconds",)),
    _Alias("inter_token_latency_seconds", "Seconds between two tokens.", ("inter_token_seconds",)),
    _Alias("e2e_request_latency_seconds", "Seconds to the last token.", ("request_seconds",)),
    _Alias("request_prompt_tokens", "Prompt tokens of a finished sequence.", ("request_prompt_tokens",)),
    _Alias("request_generation_tokens", "Output tokens of a finished sequence.", ("request_output_tokens",)),
)


class ServerMetrics:
    """The registry of one server. `read_statistics` is called once a scrape and must not wait.

    `vllm_model`: also show vLLM's names, labelled with this model's name.
    """

    def __init__(self, read_statistics: Callable[[], Statistics], vllm_model: str | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StatisticsCollector(read_statistics, vllm_model))
        self.requests = Counter(
            _PREFIX + "http_requests",
            "HTTP requests by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self.connections = Gauge(_PREFIX + "http_connections", "Open HTTP connections.", registry=self._registry)

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format, version 0.0.4."""
        return generate_latest(self._registry)


class _StatisticsCollector(Collector):
    """Turns a mapping into metric families at scrape time; there is no second copy of a number to go stale."""

    def __init__(self, read_statistics: Callable[[], Statistics], vllm_model: str | None) -> None:
        self._read_statistics = read_statistics
        self._vllm_model = vllm_model

    def describe(self) -> Iterator[Metric]:
        """Nothing known in advance; without this, registering would read the statistics."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        statistics = self._read_statistics()
        families = _Families()
        for key, number in statistics.items():
            name, labels = split_key(key)
            if name in HELP:
                families.add(name if name.startswith(_KEPT_PREFIX) else _PREFIX + name, HELP[name], labels, number)
        if self._vllm_model is not None:
            for alias in _VLLM:
                numbers = [statistics[source] for source in alias.sources if source in statistics]
                if numbers:
                    labels = {"model_name": self._vllm_model, **dict(alias.labels)}
                    families.add(_VLLM_PREFIX + alias.name, alias.text, labels, _sum(numbers))
        return iter(families.by_name.values())


class _Families:
    """Families under construction, each sample put with those of its name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Metric] = {}

    def add(self, name: str, text: str, labels: Mapping[str, str], number: Number) -> None:
        names, values = tuple(labels), tuple(labels.values())
        if isinstance(number, Histogram):
            histogram = self.by_name.setdefault(name, HistogramMetricFamily(name, text, labels=names))
            cast(HistogramMetricFamily, histogram).add_metric(values, number.buckets(), number.sum)
            return
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = self.by_name.setdefault(name, kind(name, text, labels=names))
        cast(GaugeMetricFamily, family).add_metric(values, float(number))


def split_key(key: str) -> tuple[str, dict[str, str]]:
    """A statistic's name and labels: `launches_total{operation="decode"}`."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is no name of a statistic")
    return found["name"], {found["label"]: found["value"]} if found["label"] else {}


def _sum(numbers: list[Number]) -> Number:
    """A histogram stands alone; counts add up."""
    if isinstance(numbers[0], Histogram):
        return numbers[0]
    return sum(number for number in numbers if not isinstance(number, Histogram))
