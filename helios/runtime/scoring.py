"""Scored prefills: the tokens whose probabilities a round asks for, and the scores that it left, lane by lane.

It knows prompts and the score record (HeliosSample of kernels.h), no destination. A score names the token that it is of, so each
one is checked against what was asked before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.errors import DeviceError
from helios.scheduler.request import Token
from helios.scheduler.round import Lane

MAX_CANDIDATES = 20
SCORE = np.dtype(
    [
        ("token", "<i4"),
        ("logprob", "<f4"),
        ("rank", "<i4"),
        ("n_candidates", "<i4"),
        ("candidate_token", "<i4", (MAX_CANDIDATES,)),
        ("candidate_logprob", "<f4", (MAX_CANDIDATES,)),
    ]
)
NO_TARGET = -1

Targets = tuple[tuple[int, ...], ...]  # for each lane, one id for each of its tokens


def targets_of(lanes: Iterable[Lane]) -> Targets:
    """The prompt token behind each token that a scored lane feeds; NO_TARGET behind a prompt's last, and for other lanes."""
    targets = []
    for lane in lanes:
        end = lane.position + lane.query_length
        following = lane.sequence.request.prompt_tokens[lane.position + 1 : end + 1] if lane.is_scored else ()
        targets.append((*following, *(NO_TARGET,) * (lane.query_length - len(following))))
    return tuple(targets)


class ScoreRecords:
    """A view on the scores of one frame's pinned completion bytes."""

    def __init__(self, pinned: NDArray[np.uint8]) -> None:
        self._scores: NDArray[Any] = pinned.view(SCORE)

    def read(self, targets: Targets) -> list[tuple[Token, ...]]:
        """The scores of each lane. Raises DeviceError when they are not those of `targets`."""
        expected = [token for lane in targets for token in lane]
        found = self._scores["token"][: len(expected)].tolist()
        if found != expected:
            index = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
            raise DeviceError(f"score {index} is of token {found[index]}, {expected[index]} was asked")
        lanes, first = [], 0
        for lane in targets:
            scored = [first + i for i, token in enumerate(lane) if token != NO_TARGET]
            lanes.append(tuple(self._score(index) for index in scored))
            first += len(lane)
        return lanes

    def _score(self, index: int) -> Token:
        score = self._scores[index]
        n_candidates = min(max(int(score["n_candidates"]), 0), MAX_CANDIDATES)
        ids, logprobs = (score[f"candidate_{name}"][:n_candidates].tolist() for name in ("token", "logprob"))
        candidates = tuple(zip(ids, logprobs, strict=True))
        return Token(int(score["token"]), float(score["logprob"]), int(score["rank"]), candidates)
