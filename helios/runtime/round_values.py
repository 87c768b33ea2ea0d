"""Rounds as the values that generating programs read: lanes, prompt tokens, newly assigned pages, the submission.

It knows rounds and the value sources, no destination and no device. Page entries are supplied only for pages that the round
newly assigned, so what a decode round stages does not grow with its context (CON-9).
"""

from __future__ import annotations

import itertools

import numpy as np

from helios.contract.enums import ValueSource
from helios.errors import InternalError
from helios.packing.values import RoundWords, Values, page_entries
from helios.scheduler.round import Round


class RoundValues:
    """Makes a round's values; they hold until the next round's are made. `words` are those that every round has."""

    def __init__(self, lanes_capacity: int, pages_per_slot: int) -> None:
        self.words = RoundWords(lanes_capacity)
        self._pages_per_slot = pages_per_slot

    def of(self, round_: Round, sequence: int, frame_index: int) -> Values:
        """Values of a submission; row i of each array is lane i, and prompt tokens are packed over the prompt lanes. What a
        preempted sequence has emitted counts as prompt."""
        if round_.program is None:
            raise InternalError("a round without a program has no values")
        submission = sequence, round_.program.index, frame_index
        values = self.words.of(round_.lanes, len(round_.page_updates), submission)
        if round_.page_updates:
            values[ValueSource.PAGE_TABLE_UPDATES] = page_entries(round_.page_updates, self._pages_per_slot)
        prompts = [
            lane.sequence.tokens[lane.position : lane.position + lane.query_length]
            for lane in round_.lanes
            if lane.is_prompt
        ]
        if prompts:
            values[ValueSource.PROMPT_TOKENS] = np.array(list(itertools.chain.from_iterable(prompts)), np.int32)
        return values
