"""The checks of CACHE-4: what a completion record must say about each lane, before anything believes it.

It compares numbers and changes nothing. A lane is either live (its endpoint advanced by exactly what was asked, and it ends
exactly when its own rules say so) or was finished by the device in an earlier round (it stands still and emits nothing); there
is no third kind.
"""

from __future__ import annotations

from collections.abc import Sequence as List

from helios.errors import DeviceError
from helios.scheduler.round import Lane, LaneCompletion, Round

NO_DRAFT_CURSOR = -1
RESERVED_MODEL = -1

_NOTHING_BESIDE = ((), None)  # neither scores nor a distribution

DEVICE_EOS = 1
DEVICE_LIMIT = 2


def check_completions(round_: Round, completions: List[LaneCompletion], vocabulary: int) -> None:
    """Raise DeviceError naming the first lane and field that is not what the round must yield."""
    if len(completions) != len(round_.lanes):
        raise DeviceError(f"{_name(round_)}: {len(completions)} lanes completed, {len(round_.lanes)} were submitted")
    for index, (lane, completion) in enumerate(zip(round_.lanes, completions, strict=True)):
        if _is_plain(lane, completion, vocabulary):
            continue
        for field, found, expected in _differences(lane, completion, vocabulary):
            raise DeviceError(f"{_name(round_)} lane {index}: {field} is {found}, {expected} expected")


def _name(round_: Round) -> str:
    return round_.program.name if round_.program is not None else "a round without a program"


def _is_plain(lane: Lane, found: LaneCompletion, vocabulary: int) -> bool:
    """The same rules for the common case, a live lane that goes on, in one comparison: 16 of them are checked in a round."""
    sequence, slot, generation, _, position, query_length, is_sampled, _, is_scored, is_distributed = lane
    token = found.token
    return (
        found[:9] == (slot, generation, 0, 0, 1, position + query_length, NO_DRAFT_CURSOR, RESERVED_MODEL, 0)
        and found[-2:] == _NOTHING_BESIDE
        and is_sampled
        and not (is_scored or is_distributed or sequence.device_finish)
        and sequence.n_sampled + 1 < sequence.output_limit
        and 0 <= token < vocabulary
        and token not in sequence.request.eos_tokens
    )


def _differences(lane: Lane, found: LaneCompletion, vocabulary: int) -> list[tuple[str, object, object]]:
    """(field, found, expected) of everything that differs."""
    sequence = lane.sequence
    was_finished = sequence.device_finish != 0
    emitted = int(lane.is_sampled and not was_finished)
    consumed = sequence.n_consumed if was_finished else lane.position + lane.query_length
    fields: list[tuple[str, object, object]] = [
        ("slot", found.slot, lane.slot),
        ("generation", found.generation, lane.generation),
        ("offered", found.offered, 0),
        ("accepted", found.accepted, 0),
        ("emitted", found.emitted, emitted),
        ("consumed", found.consumed, consumed),
        ("draft cursor", found.draft_cursor, NO_DRAFT_CURSOR),
        ("reserved model field", found.reserved_model, RESERVED_MODEL),
        ("has a distribution", found.distribution is not None, bool(emitted and lane.is_distributed)),
        ("number of scores", len(found.scores), _n_scores(lane)),
        ("number of their distributions", _n_distributions(found), _n_scores(lane) if lane.is_scored_whole else 0),
    ]
    if emitted and not 0 <= found.token < vocabulary:
        fields.append(("token", found.token, f"an id below {vocabulary}"))
    fields.append(("finish", found.finish, _expected_finish(lane, found.token) if emitted else sequence.device_finish))
    return [field for field in fields if field[1] != field[2]]


def _n_distributions(found: LaneCompletion) -> int:
    return sum(score.distribution is not None for score in found.scores)


def _n_scores(lane: Lane) -> int:
    """One for each prompt token that follows one of the lane's."""
    n_followed = min(lane.position + lane.query_length, lane.sequence.n_prompt - 1) - lane.position
    return n_followed if lane.is_scored else 0


def _expected_finish(lane: Lane, token: int) -> int:
    """How the device must end a lane that emits `token`: an end token comes before the limit."""
    sequence = lane.sequence
    if token in sequence.request.eos_tokens:
        return DEVICE_EOS
    return DEVICE_LIMIT if sequence.n_sampled + 1 == sequence.output_limit else 0
