"""Thousands of random events over one set of books: long lives reach what short ones do not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from helios.cache.books import CacheShape, prefix_key
from tests.cache.true_contents import Memory

N_STEPS = 8000
STORIES = [tuple(random.Random(seed).choices(range(3), k=14)) for seed in range(3)]
KEYS = [prefix_key(b"model", salt, "", []) for salt in ("", "", "", "other")]

SHAPES = {
    "paged histories": CacheShape(3, 10, n_rows=3, n_host_pages=12, n_host_rows=6),
    "recurrent state": CacheShape(3, 10, n_rows=3, n_host_pages=12, n_host_rows=6, is_truncatable=False),
    "no host memory": CacheShape(3, 10, n_rows=3),
    "no rows": CacheShape(3, 10, n_host_pages=12),
}


class Driver:
    """Draws events; `seen` counts what they led to."""

    def __init__(self, shape: CacheShape, seed: int) -> None:
        self.memory = Memory(shape)
        self.random = random.Random(seed)
        self.seen: Counter[str] = Counter()

    def tokens(self) -> tuple[int, ...]:
        """A part of a story, with another end now and then."""
        story = self.random.choice(STORIES)
        tokens = story[: self.random.randint(2, len(story))]
        return tokens + tuple(self.random.choices(range(3), k=self.random.choice([0, 0, 1, 4])))

    def step(self) -> None:
        events = [self.arrive, self.start, self.run_round, self.run_round, self.settle_row, self.release]
        events += [self.run_whole, self.offload, self.finish_transfer, self.finish_transfer]
        self.random.choice(events)()
        self.memory.books.check()

    def arrive(self) -> None:
        if len(self.memory.sequences) < 5:
            tokens = self.tokens()
            n_prompt = self.random.randint(1, len(tokens))
            uses_host, is_private = self.random.random() < 0.8, self.random.random() < 0.1
            key = self.random.choice(KEYS)
            self.memory.open(key, tokens, n_prompt, uses_host=uses_host, is_private=is_private)

    def start(self) -> None:
        waiting = [s for s in self.memory.sequences if not s.is_started]
        if waiting:
            sequence = self.random.choice(waiting)
            snapshot = sequence.holding.snapshot
            if self.memory.start(sequence) and snapshot is not None:
                self.seen["restored"] += 1
                n_tail = sequence.holding.n_reused % self.memory.shape.page_tokens
                self.seen["restored a part of a tail"] += n_tail < len(snapshot.tail)

    def run_round(self) -> None:
        running = [s for s in self.memory.sequences if s.is_started]
        if running:
            sequence = self.random.choice(running)
            n_computed = self.memory.compute(sequence, self.random.randint(1, 7))
            self.seen["waited for pages"] += not n_computed and sequence.n_computed < len(sequence.tokens)
            if n_computed:
                if self.random.random() < 0.5:
                    self.memory.save_row(sequence)
                if self.random.random() < 0.8:
                    self.memory.publish(sequence)

    def settle_row(self) -> None:
        with_rows = [s for s in self.memory.sequences if s.rows]
        if with_rows:
            self.memory.settle_row(self.random.choice(with_rows), is_published=self.random.random() < 0.8)

    def release(self) -> None:
        if self.memory.sequences:
            sequence = self.random.choice(self.memory.sequences)
            self.seen["released while reloading"] += sequence.holding.n_pending > 0
            self.memory.release(sequence)

    def run_whole(self) -> None:
        if len(self.memory.sequences) < 5:
            tokens = self.tokens()
            is_released = self.random.random() < 0.8
            n_prompt = self.random.randint(1, len(tokens))
            self.memory.run_whole(self.random.choice(KEYS), tokens[:n_prompt], tokens, is_released=is_released)

    def offload(self) -> None:
        self.memory.begin(self.memory.books.offload(self.random.randint(1, 4)))

    def finish_transfer(self) -> None:
        if self.memory.in_flight:
            self.memory.finish(self.random.randrange(len(self.memory.in_flight)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SHAPES)
def test_a_long_life_reaches_every_state_and_stays_balanced(name: str, seed: int) -> None:
    """CACHE-3, CACHE-5, CACHE-6: every read finds exactly its own context, whatever came before."""
    shape = SHAPES[name]
    driver = Driver(shape, seed)
    for _ in range(N_STEPS):
        driver.step()
    seen = driver.seen + Counter(driver.memory.books.statistics())
    expected = [
        "cache_reused_tokens_total",
        "cache_duplicate_pages_total",
        "cache_pages_evicted_total",
        "waited for pages",
    ]
    if shape.n_rows:
        expected += ["restored", "cache_snapshots_evicted_total"]
        expected += ["restored a part of a tail"] if shape.is_truncatable else []
    if shape.n_host_pages:
        expected += ["cache_pages_reloaded_total", "released while reloading"]
    if shape.n_host_rows:
        expected += ["cache_snapshots_reloaded_total"]
    assert [name for name in expected if not seen[name]] == []
    driver.memory.check_one_alone_can_have_every_page()
    driver.memory.close()
