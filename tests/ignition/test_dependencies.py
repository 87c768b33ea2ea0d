"""Dependencies: conflicting nodes are ordered, nothing else is, and no edge is superfluous."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helios.ignition.dependencies import Access, dependencies

ACCESS = st.builds(
    lambda buffer, start, nbytes, writes: Access(buffer, start, start + nbytes, writes),
    st.integers(0, 2),
    st.integers(0, 20),
    st.integers(1, 10),
    st.booleans(),
)
PROGRAMS = st.lists(st.lists(ACCESS, max_size=4), max_size=20)


def reachable(edges: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for before in edges:
        found.append(set(before).union(*(found[earlier] for earlier in before)))
    return found


@given(PROGRAMS)
def test_exactly_the_conflicting_nodes_are_ordered(program: list[list[Access]]) -> None:
    def conflict(first: list[Access], second: list[Access]) -> bool:
        return any(
            a.buffer == b.buffer and (a.writes or b.writes) and a.start < b.end and b.start < a.end
            for a in first
            for b in second
        )

    direct = [[i for i in range(index) if conflict(program[i], node)] for index, node in enumerate(program)]
    assert reachable(dependencies(program)) == reachable(direct)


@given(PROGRAMS)
def test_no_edge_follows_from_others(program: list[list[Access]]) -> None:
    edges = dependencies(program)
    before = reachable(edges)
    for node in edges:
        assert node == sorted(set(node))
        for earlier in node:
            assert not any(earlier in before[other] for other in node if other != earlier)


def test_two_readers_of_one_writer_are_not_ordered() -> None:
    write, read = Access(0, 0, 8, True), Access(0, 0, 8, False)
    assert dependencies([[write], [read], [read], [write]]) == [[], [0], [0], [1, 2]]
