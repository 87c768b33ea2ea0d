"""A device that hashes: the next token is a hash of everything its slot's pages hold, read through the page table.

It keeps the device's half of the bargain (state rows, page tables, snapshot rows, EOS and limit, completions, copies to and from
host memory) in plain Python. Pages and rows hold token values and nothing protects them, so any mistake in the books (a page in two
hands, a stale table, a snapshot that was published too early, a copy that is not there yet) changes a token.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helios.cache.books import CacheShape
from helios.cache.transfer import Store, Transfer
from helios.scheduler.request import GenerationRequest, Token
from helios.scheduler.round import Lane, LaneCompletion, Round

PAGE_TOKENS = 16
VOCABULARY = 97
MASK_WORDS = -(-VOCABULARY // 32)
GARBAGE = -7


@dataclass
class _Row:
    """A continuation row: a page's tokens, and the recurrent state with them."""

    tokens: list[int]
    state: bytes


@dataclass
class _Slot:
    generation: int = -1
    pending: int = -1
    consumed: int = 0
    emitted: int = 0
    finish: int = 0
    limit: int = 0
    state: bytes = b""
    request: GenerationRequest | None = None
    table: dict[int, int] = field(default_factory=dict)


def fold(state: bytes, token: int) -> bytes:
    """The recurrent state after one more token: it has no past."""
    return hashlib.blake2b(state + token.to_bytes(8, "little", signed=True), digest_size=8).digest()


def next_token(history: Sequence[int], state: bytes, seed: int, mask: Sequence[int] | None = None) -> int:
    """The model: a token id below VOCABULARY, of those that `mask` allows."""
    digest = hashlib.blake2b(repr((list(history), state, seed)).encode(), digest_size=8).digest()
    token = int.from_bytes(digest, "little") % VOCABULARY
    while mask is not None and not (int(mask[token >> 5]) >> (token & 31)) & 1:
        token = (token + 1) % VOCABULARY
    return token


def score(history: Sequence[int], token: int) -> Token:
    """What the model says of a token behind `history`: 20 candidates, whatever was asked."""
    digest = hashlib.blake2b(repr((list(history), token)).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return Token(token, -(number % 1000) / 100, number % 97 + 1, tuple((i, -float(i)) for i in range(20)))


class HashingDevice:
    """Executes submissions in the order of their launches, each when the test says so; copies finish in any order.

    `is_recurrent`: tokens depend on a recurrent state too, which only snapshots preserve.
    """

    def __init__(self, n_slots: int, shape: CacheShape, *, is_recurrent: bool = False) -> None:
        self._slots = [_Slot() for _ in range(n_slots)]
        self._is_recurrent = is_recurrent
        blank = [GARBAGE] * shape.page_tokens
        self.pages = [list(blank) for _ in range(shape.n_pages)]
        self.host_pages = [list(blank) for _ in range(shape.n_host_pages)]
        self.rows = [_Row(list(blank), b"?") for _ in range(shape.n_rows)]
        self.host_rows = [_Row(list(blank), b"?") for _ in range(shape.n_host_rows)]
        self._launched: deque[Round] = deque()
        self._completed: deque[tuple[Round, list[LaneCompletion]]] = deque()
        self.copying: list[Transfer] = []

    # -- rounds

    @property
    def n_in_flight(self) -> int:
        return len(self._launched) + len(self._completed)

    def launch(self, round_: Round) -> None:
        """Queue a submission."""
        assert self.n_in_flight < 2
        self._launched.append(round_)

    def execute(self) -> None:
        """Run the oldest submission that has not run."""
        if self._launched:
            round_ = self._launched.popleft()
            self._completed.append((round_, self._execute(round_)))

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        """Wait for the oldest submission in flight."""
        if not self._completed:
            self.execute()
        return self._completed.popleft()

    def _execute(self, round_: Round) -> list[LaneCompletion]:
        assert bool(round_.admissions) == (round_.initializer is not None)
        assert bool(round_.restores) == (round_.restorer is not None)
        assert bool(round_.snapshots) == (round_.snapshotter is not None)
        for program, n_lanes in (
            (round_.initializer, len(round_.admissions)),
            (round_.restorer, len(round_.restores)),
            (round_.program, len(round_.lanes)),
            (round_.snapshotter, len(round_.snapshots)),
        ):
            assert program is None or 0 < n_lanes <= program.batch_capacity
        for admission in round_.admissions:
            sequence = admission.sequence
            self._slots[admission.slot] = _Slot(
                admission.generation,
                consumed=admission.consumed,
                limit=sequence.n_most_remaining,
                state=b"?" if admission.consumed else b"",
                request=sequence.request,
            )
        for restore in round_.restores:
            slot, row = self._slots[restore.slot], self.rows[restore.row]
            assert slot.consumed == restore.endpoint
            self.pages[restore.page_id] = list(row.tokens)
            slot.state = row.state
        for slot_id, index, page_id in round_.page_updates:
            self._slots[slot_id].table[index] = page_id
        completions = [self._run_lane(lane) for lane in round_.lanes]
        if round_.program is not None:
            assert sum(lane.query_length for lane in round_.lanes) == round_.n_rows
            assert round_.n_rows <= round_.program.packed_token_capacity
        for snapshot in round_.snapshots:
            slot = self._slots[snapshot.slot]
            page_id = slot.table.get(snapshot.endpoint // PAGE_TOKENS, 0)
            self.rows[snapshot.row] = _Row(list(self.pages[page_id]), slot.state)
        return completions

    def _run_lane(self, lane: Lane) -> LaneCompletion:
        slot = self._slots[lane.slot]
        assert slot.request is not None
        assert slot.generation == lane.generation
        token, emitted = -1, 0
        if not slot.finish:
            self._feed(slot, lane)
            if lane.is_sampled:
                token, emitted = self._sample(slot, lane), 1
                slot.pending = token
                slot.emitted += 1
                slot.finish = 1 if token in slot.request.eos_tokens else 2 if slot.emitted == slot.limit else 0
        numbers = (lane.slot, lane.generation, 0, 0, emitted, slot.consumed, -1, -1, slot.finish, token)
        return LaneCompletion(*numbers, scores=self._score(slot, lane))

    def _score(self, slot: _Slot, lane: Lane) -> tuple[Token, ...]:
        if not lane.is_scored:
            return ()
        history = [self._read(slot, position) for position in range(slot.consumed)]
        prompt = lane.sequence.request.prompt_tokens
        end = min(lane.position + lane.query_length, len(prompt) - 1)
        return tuple(score(history[: at + 1], prompt[at + 1]) for at in range(lane.position, end))

    def _sample(self, slot: _Slot, lane: Lane) -> int:
        assert slot.request is not None
        history = [self._read(slot, position) for position in range(slot.consumed)]
        state = slot.state if self._is_recurrent else b""
        return next_token(history, state, slot.request.sampling.seed, lane.mask)

    def _feed(self, slot: _Slot, lane: Lane) -> None:
        assert lane.position == slot.consumed
        if lane.is_prompt:
            tokens = list(lane.sequence.tokens[lane.position : lane.position + lane.query_length])
        else:
            tokens = [slot.pending]
        assert len(tokens) == lane.query_length
        for token in tokens:
            self.pages[slot.table[slot.consumed // PAGE_TOKENS]][slot.consumed % PAGE_TOKENS] = token
            slot.state = fold(slot.state, token)
            slot.consumed += 1

    def _read(self, slot: _Slot, position: int) -> int:
        return self.pages[slot.table[position // PAGE_TOKENS]][position % PAGE_TOKENS]

    # -- copies

    def start_transfers(self, transfers: Iterable[Transfer]) -> None:
        """What a copy writes holds garbage until it finishes, which is when it reads."""
        for transfer in transfers:
            self.copying.append(transfer)
            self._write(transfer, GARBAGE)

    def finish_transfer(self, index: int) -> Transfer:
        transfer = self.copying.pop(index)
        self._write(transfer, None)
        return transfer

    def _write(self, transfer: Transfer, garbage: int | None) -> None:
        here, there = transfer.device_index, transfer.host_index
        if transfer.store is Store.PAGE:
            source, target = (self.pages, self.host_pages) if transfer.is_offload else (self.host_pages, self.pages)
            at_source, at_target = (here, there) if transfer.is_offload else (there, here)
            tokens = source[at_source] if garbage is None else [garbage] * PAGE_TOKENS
            target[at_target] = list(tokens)
        else:
            rows, targets = (self.rows, self.host_rows) if transfer.is_offload else (self.host_rows, self.rows)
            at_source, at_target = (here, there) if transfer.is_offload else (there, here)
            row = rows[at_source] if garbage is None else _Row([garbage] * PAGE_TOKENS, b"?")
            targets[at_target] = _Row(list(row.tokens), row.state)
