"""Numbers for `/metrics`: statistics of long-lived objects and what the server itself counts, as Prometheus text.

It knows no engine and no HTTP: it is given mappings of names to numbers. A name that ends in `_total` is a counter, every
other a gauge; labels hold nothing that a client can invent (MET-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "helios_"
_KEPT_PREFIX = "flare_"  # names that the mission gives whole (MET-2)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)


class ServerMetrics:
    """The registry of one server. `read_statistics` is called once a scrape and must not wait."""

    def __init__(self, read_statistics: Callable[[], Mapping[str, int | float]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StatisticsCollector(read_statistics))
        self.requests = Counter(
            "helios_http_requests", "HTTP requests by route and status", ("route", "status"), registry=self._registry
        )
        self.connections = Gauge("helios_http_connections", "open HTTP connections", registry=self._registry)
        self.first_token_s = self._histogram("time_to_first_token_seconds", "arrival to first token", _SECONDS)
        self.token_gap_s = self._histogram("inter_token_seconds", "mean time between two tokens of an answer", _SECONDS)
        self.request_s = self._histogram("request_seconds", "arrival to the end of a finished answer", _SECONDS)
        self.prompt_tokens = self._histogram("request_prompt_tokens", "prompt tokens of a finished answer", _TOKENS)
        self.output_tokens = self._histogram("request_output_tokens", "output tokens of a finished answer", _TOKENS)

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format, version 0.0.4."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(_PREFIX + name, text, buckets=buckets, registry=self._registry)


class _StatisticsCollector(Collector):
    """Turns a mapping into metric families at scrape time; there is no second copy of a number to go stale."""

    def __init__(self, read_statistics: Callable[[], Mapping[str, int | float]]) -> None:
        self._read_statistics = read_statistics

    def describe(self) -> Iterator[Metric]:
        """Nothing known in advance; without this, registering would read the statistics."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for key, number in self._read_statistics().items():
            name = key if key.startswith(_KEPT_PREFIX) else _PREFIX + key
            words = key.removesuffix("_total").replace("_", " ")
            family = CounterMetricFamily if key.endswith("_total") else GaugeMetricFamily
            yield family(name, words, value=float(number))
