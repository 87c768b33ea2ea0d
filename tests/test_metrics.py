"""The page of numbers: read by an outside parser, explained in full, without anything that a client could invent."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from helios.metrics import GAP_SECONDS, HELP, SECONDS, TOKENS, Histogram, Number, ServerMetrics, split_key

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
ROW = re.compile(r"\| `(?P<name>[\w:]+)` \| (?P<kind>\w+) \| (?P<labels>.*?) ?\| (?P<text>.+) \|")
VLLM_ROW = re.compile(r'\| `vllm:(?P<name>\w+)(?:\{finished_reason="(?P<reason>\w+)"\})?` \| (?P<sources>.*) \|')
DISTRIBUTIONS = {
    "queue_seconds": SECONDS,
    "time_to_first_token_seconds": SECONDS,
    "inter_token_seconds": GAP_SECONDS,
    "request_seconds": SECONDS,
    "request_prompt_tokens": TOKENS,
    "request_output_tokens": TOKENS,
    "request_reused_tokens": TOKENS,
}


def everything() -> dict[str, Number]:
    """A number for each name that is explained, all different, labelled where the real ones are."""
    numbers: dict[str, Number] = {}
    for value, name in enumerate(HELP, 1):
        if name in DISTRIBUTIONS:
            numbers[name] = Histogram(DISTRIBUTIONS[name])
        elif name == "requests_finished_total":
            numbers |= {f'{name}{{reason="{reason}"}}': n for n, reason in enumerate(("eos", "limit", "stop"), 100)}
        else:
            numbers[name] = value
    return numbers


def families(statistics: Mapping[str, Number], vllm_model: str | None = None) -> dict[str, Metric]:
    """The page of a server with these statistics, as Prometheus's own parser reads it, by full name."""
    metrics = ServerMetrics(lambda: statistics, lambda: 1, vllm_model)
    metrics.count_request("/health", "200")
    read = text_string_to_metric_families(metrics.exposition().decode())
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in read}


def test_the_document_and_the_page_say_the_same() -> None:
    """MET-1: every name is documented, with its type and its meaning, and no other."""
    shown = {
        name: (family.type, family.documentation)
        for name, family in families(everything()).items()
        if name != "helios_http_requests"
    }
    rows = [found for line in DOCUMENT.read_text().splitlines() if (found := ROW.fullmatch(line))]
    assert {row["name"]: (row["kind"], row["text"]) for row in rows} == shown
    assert len(rows) == len(shown)


def test_every_meaning_says_more_than_the_name() -> None:
    for name, text in HELP.items():
        assert text.endswith(".")
        assert len(text.split()) >= 4
        assert text.rstrip(".").lower() != name.removesuffix("_total").replace("_", " ")


def test_a_number_without_a_meaning_is_not_shown() -> None:
    assert "helios_secret" not in families({"secret": 1, "slots": 2})


@pytest.mark.parametrize("key", ['a{b="c",d="e"}', "a b", 'a{b="c"', "", 'a{b=""c"}'])
def test_a_key_that_is_no_name_is_an_error(key: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        split_key(key)


def test_labelled_samples_share_a_family() -> None:
    statistics = {'graph_launches_total{operation="decode"}': 3, 'graph_launches_total{operation="mixed"}': 4}
    family = families(statistics)["helios_graph_launches_total"]
    assert family.type == "counter"
    assert {sample.labels["operation"]: sample.value for sample in family.samples} == {"decode": 3, "mixed": 4}


def test_names_that_the_mission_gives_whole_have_no_prefix() -> None:
    """MET-2."""
    shown = families(everything())
    assert shown["flare_mixed_grammar_decode_steps_total"].type == "counter"
    assert shown["flare_constrained_max_inflight"].type == "gauge"


@given(
    st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=8, unique=True).map(sorted),
    st.lists(st.floats(min_value=0, max_value=1e7), max_size=30),
)
def test_a_histogram_counts_what_is_at_most_each_bound(bounds: list[float], values: list[float]) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    in_order = sorted(values)
    *finite, (last, total) = histogram.buckets()
    assert [count for _, count in finite] == [bisect.bisect_right(in_order, bound) for bound in bounds]
    assert (last, total, histogram.count) == ("+Inf", len(values), len(values))
    assert histogram.sum == pytest.approx(sum(values))


def test_a_histogram_is_read_back_by_prometheus() -> None:
    histogram = Histogram((0.5, 2))
    for value in (0.5, 1, 3):
        histogram.observe(value)
    samples = families({"request_seconds": histogram})["helios_request_seconds"].samples
    assert {(sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value for sample in samples} == {
        ("bucket", "0.5"): 1,
        ("bucket", "2.0"): 2,
        ("bucket", "+Inf"): 3,
        ("count", None): 3,
        ("sum", None): 4.5,
    }


def test_gateways_find_their_names_only_where_they_are_asked_for() -> None:
    """Research 1.11."""
    statistics = everything()
    assert not any(name.startswith("vllm:") for name in families(statistics))
    shown = families(statistics, "model-1")
    for theirs, ours in (
        ("num_requests_running", "requests_running"),
        ("num_requests_waiting", "requests_waiting"),
        ("kv_cache_usage_perc", "cache_usage_ratio"),
        ("prompt_tokens_total", "prompt_tokens_total"),
        ("prefix_cache_hits_total", "reused_prompt_tokens_total"),
    ):
        (sample,) = shown["vllm:" + theirs].samples
        assert (sample.labels, sample.value) == ({"model_name": "model-1"}, statistics[ours])
    by_reason = {
        sample.labels["finished_reason"]: sample.value for sample in shown["vllm:request_success_total"].samples
    }
    assert by_reason == {"stop": 100 + 102, "length": 101, "abort": statistics["requests_cancelled_total"]}
    assert shown["vllm:time_to_first_token_seconds"].type == "histogram"


def test_the_document_says_where_each_of_their_numbers_comes_from() -> None:
    numbers = everything()
    rows = [found for line in DOCUMENT.read_text().splitlines() if (found := VLLM_ROW.fullmatch(line))]
    shown = families(numbers, "m")
    assert {"vllm:" + row["name"] for row in rows} == {name for name in shown if name.startswith("vllm:")}
    for row in rows:
        sources = re.findall(r"`helios_(.+?)`", row["sources"])
        if isinstance(numbers[sources[0]], Histogram):
            continue
        (value,) = [
            sample.value
            for sample in shown["vllm:" + row["name"]].samples
            if sample.labels.get("finished_reason") == row["reason"]
        ]
        assert value == sum(numbers[source] for source in sources)  # type: ignore[misc]
