"""The order in which residents may go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helios.cache.eviction import EvictionQueue
from helios.cache.resident import Resident


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 20)), max_size=400))
def test_the_oldest_is_the_least_recently_used_of_those_queued(events: list[tuple[int, bool, int]]) -> None:
    """CACHE-3: whoever left, came back or was used meanwhile."""
    queue: EvictionQueue[Resident] = EvictionQueue()
    residents = [Resident(None, 0) for _ in range(10)]
    queued: set[Resident] = set()
    for number, is_queued, last_use in events:
        resident = residents[number]
        if resident not in queued:
            resident.last_use = last_use
        queue.place(resident, is_queued)
        (queued.add if is_queued else queued.discard)(resident)
        oldest = queue.oldest()
        assert (oldest is None) == (not queued)
        assert oldest is None or oldest.last_use == min(resident.last_use for resident in queued)
        assert queue.members() == {(resident, (False, resident.last_use)) for resident in queued}
        order = [resident.last_use for resident in queue.first(4)]
        assert order == sorted(resident.last_use for resident in queued)[:4]


def test_what_left_the_queue_does_not_pile_up() -> None:
    """CACHE-3: a page that is pinned and unpinned all day costs one entry, not one each time."""
    queue: EvictionQueue[Resident] = EvictionQueue()
    cold, hot = Resident(None, 0), Resident(None, 1)
    queue.place(cold, True)
    for _ in range(10_000):
        queue.place(hot, True)
        queue.place(hot, False)
    assert queue.n_entries < 100
    assert queue.oldest() is cold
