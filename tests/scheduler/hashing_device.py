"""A device that hashes: the next token is a hash of everything its slot's pages hold, read through the page table.

It keeps the device's half of the bargain (state rows, page table, EOS and limit, completions) in plain Python, so any mistake
in the scheduler's books (a page in two hands, a stale table, a skipped position) changes a token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from helios.scheduler.request import GenerationRequest
from helios.scheduler.round import Lane, LaneCompletion, Round

PAGE_TOKENS = 16
VOCABULARY = 97


@dataclass
class _Slot:
    generation: int = -1
    pending: int = -1
    consumed: int = 0
    emitted: int = 0
    finish: int = 0
    limit: int = 0
    request: GenerationRequest | None = None
    table: dict[int, int] = field(default_factory=dict)


def next_token(history: list[int], seed: int) -> int:
    """The model: a token id below VOCABULARY."""
    digest = hashlib.blake2b(repr((history, seed)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % VOCABULARY


def tokens_alone(request: GenerationRequest, context_tokens: int) -> list[int]:
    """What the request must yield in any company."""
    history = list(request.prompt_tokens)
    output: list[int] = []
    for _ in range(min(request.output_limit, context_tokens - len(history))):
        token = next_token(history, request.sampling.seed)
        output.append(token)
        history.append(token)
        if token in request.eos_tokens or (request.host_stop is not None and request.host_stop(token)):
            break
    return output


class HashingDevice:
    """Executes rounds one at a time, in order."""

    def __init__(self, n_slots: int, n_pages: int) -> None:
        self._slots = [_Slot() for _ in range(n_slots)]
        self._pages = [[-1] * PAGE_TOKENS for _ in range(n_pages)]

    def execute(self, round_: Round) -> list[LaneCompletion]:
        for admission in round_.admissions:
            slot = self._slots[admission.slot]
            slot.__init__(  # type: ignore[misc]
                generation=admission.generation,
                limit=admission.sequence.output_limit,
                request=admission.sequence.request,
            )
        for slot_id, index, page_id in round_.page_updates:
            self._slots[slot_id].table[index] = page_id
            self._pages[page_id] = [-1] * PAGE_TOKENS
        assert sum(lane.query_length for lane in round_.lanes) == round_.n_rows <= round_.program.packed_token_capacity
        assert len(round_.lanes) <= round_.program.batch_capacity
        return [self._run_lane(lane) for lane in round_.lanes]

    def _run_lane(self, lane: Lane) -> LaneCompletion:
        slot = self._slots[lane.slot]
        assert slot.request is not None
        assert slot.generation == lane.generation
        token, emitted = -1, 0
        if not slot.finish:
            self._feed(slot, lane)
            if lane.is_sampled:
                history = [self._read(slot, position) for position in range(slot.consumed)]
                token, emitted = next_token(history, slot.request.sampling.seed), 1
                slot.pending = token
                slot.emitted += 1
                slot.finish = 1 if token in slot.request.eos_tokens else 2 if slot.emitted == slot.limit else 0
        return LaneCompletion(
            lane.slot, lane.generation, 0, 0, emitted, slot.consumed, -1, -1, slot.finish, token if emitted else -1
        )

    def _feed(self, slot: _Slot, lane: Lane) -> None:
        assert slot.request is not None
        if lane.is_prompt:
            tokens = list(slot.request.prompt_tokens[lane.position : lane.position + lane.query_length])
            assert lane.position == slot.consumed
        else:
            tokens = [slot.pending]
        for token in tokens:
            page = self._pages[slot.table[slot.consumed // PAGE_TOKENS]]
            page[slot.consumed % PAGE_TOKENS] = token
            slot.consumed += 1

    def _read(self, slot: _Slot, position: int) -> int:
        return self._pages[slot.table[position // PAGE_TOKENS]][position % PAGE_TOKENS]
