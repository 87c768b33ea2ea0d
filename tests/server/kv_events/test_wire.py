"""The batches, read by a stock msgpack."""

from __future__ import annotations

from typing import Any

import msgpack

from helios.cache.journal import AllRemoved, Change, PageRemoved, PageStored
from helios.server.kv_events.wire import EventWriter, block_hash

A, B, C = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 70_000)


def read(writer: EventWriter, *changes: Change) -> list[Any]:
    time_s, events, rank = msgpack.unpackb(writer.batch(changes, 12.5))
    assert (time_s, rank) == (12.5, 0)
    return list(events)


def test_a_chain_of_pages_is_one_event() -> None:
    """Hashes in order, tokens as many as the blocks have, every field that readers ask for."""
    events = read(EventWriter(), PageStored(0, None, A), PageStored(1, 0, B))
    first = block_hash(None, A)
    assert events == [
        {
            "type": "BlockStored",
            "block_hashes": [first, block_hash(first, B)],
            "parent_block_hash": None,
            "token_ids": [*A, *B],
            "block_size": 4,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
        }
    ]


def test_a_page_behind_another_than_the_last_begins_an_event() -> None:
    """Two children of one page; its hash is remembered between batches."""
    writer = EventWriter()
    (root,) = read(writer, PageStored(0, None, A))
    events = read(writer, PageStored(1, 0, B), PageStored(2, 0, C))
    assert [event["parent_block_hash"] for event in events] == root["block_hashes"] * 2
    assert [event["token_ids"] for event in events] == [[*B], [*C]]


def test_removals_are_joined_and_stand_before_what_came_later() -> None:
    writer = EventWriter()
    (stored,) = read(writer, PageStored(0, None, A), PageStored(1, 0, B))
    events = read(writer, PageRemoved(1), PageRemoved(0), PageStored(2, None, A), PageStored(3, 2, B))
    assert [event["type"] for event in events] == ["BlockRemoved", "BlockStored"]
    assert events[0] == {"type": "BlockRemoved", "block_hashes": stored["block_hashes"][::-1], "medium": "GPU"}
    assert events[1]["block_hashes"] == stored["block_hashes"], "the same tokens have the same name again"


def test_a_page_behind_one_that_was_removed_between_starts_anew() -> None:
    events = read(EventWriter(), PageStored(0, None, A), PageStored(1, 0, B), PageRemoved(1), PageStored(2, 0, C))
    assert [event["type"] for event in events] == ["BlockStored", "BlockRemoved", "BlockStored"]


def test_everything_may_be_forgotten() -> None:
    writer = EventWriter()
    read(writer, PageStored(0, None, A))
    events = read(writer, AllRemoved(), PageStored(0, None, A), PageStored(5, 0, B))
    assert events[0] == {"type": "AllBlocksCleared"}
    assert len(events[1]["block_hashes"]) == 2


def test_hashes_are_chained_and_unsigned() -> None:
    """The same block behind another has another name; a negative number is refused by readers."""
    first, other = block_hash(None, A), block_hash(None, C)
    assert len({first, other, block_hash(first, B), block_hash(other, B), block_hash(None, B)}) == 5
    assert all(0 <= block_hash(None, (i,)) < 1 << 64 for i in range(100))
