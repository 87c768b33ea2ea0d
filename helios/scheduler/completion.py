"""The checks of CACHE-4: what a completion record must say about each lane, before anything believes it.

It compares numbers and changes nothing. A lane is either live (its endpoint advanced by exactly what was asked) or was finished
by the device in an earlier round (its endpoint stands still and it emitted nothing); there is no third kind.
"""

from __future__ import annotations

from collections.abc import Sequence as List

from helios.errors import DeviceError
from helios.scheduler.round import Lane, LaneCompletion, Round

NO_DRAFT_CURSOR = -1
RESERVED_MODEL = -1


def check_completions(round_: Round, completions: List[LaneCompletion], vocabulary: int) -> None:
    """Raise DeviceError naming the first lane and field that is not what the round must yield."""
    if len(completions) != len(round_.lanes):
        raise DeviceError(
            f"{round_.program.name}: {len(completions)} lanes completed, {len(round_.lanes)} were submitted"
        )
    for index, (lane, completion) in enumerate(zip(round_.lanes, completions, strict=True)):
        for field, found, expected in _differences(lane, completion, vocabulary):
            raise DeviceError(f"{round_.program.name} lane {index}: {field} is {found}, {expected} expected")


def _differences(lane: Lane, completion: LaneCompletion, vocabulary: int) -> list[tuple[str, object, object]]:
    sequence = lane.sequence
    was_finished = sequence.device_finish != 0
    emitted = 1 if lane.is_sampled and not was_finished else 0
    consumed = sequence.n_consumed if was_finished else lane.position + lane.query_length
    expected: list[tuple[str, object, object]] = [
        ("slot", completion.slot, lane.slot),
        ("generation", completion.generation, lane.generation),
        ("offered", completion.offered, 0),
        ("accepted", completion.accepted, 0),
        ("emitted", completion.emitted, emitted),
        ("consumed", completion.consumed, consumed),
        ("draft cursor", completion.draft_cursor, NO_DRAFT_CURSOR),
        ("reserved model field", completion.reserved_model, RESERVED_MODEL),
    ]
    if was_finished:
        expected.append(("finish", completion.finish, sequence.device_finish))
    differences = [entry for entry in expected if entry[1] != entry[2]]
    if emitted and not 0 <= completion.token < vocabulary:
        differences.append(("token", completion.token, f"an id below {vocabulary}"))
    if completion.finish not in (0, 1, 2):
        differences.append(("finish", completion.finish, "0, 1 or 2"))
    return differences
