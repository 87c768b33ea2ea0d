"""A device that says what the test gives it, under the real worker, scheduler, engine and server.

It keeps the device's half of the bargain (slots, positions, EOS and limit, completions in order, two frames) and honours masks: a
script that wants a token which its lane's mask forbids fails the run. Nothing else of the serving path is replaced.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from helios.cache.books import CacheBooks, CacheShape
from helios.cache.journal import Journal
from helios.cache.transfer import Transfer
from helios.contract.frontend import Frontend
from helios.contract.prepared import PreparedContract
from helios.contract.schema import execution_pb2
from helios.engine import Bootstrap, Engine
from helios.errors import DeviceError
from helios.runtime.capacities import Capacities
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import GenerationRequest
from helios.scheduler.round import Lane, LaneCompletion, ProgramShape, Round
from helios.scheduler.scheduler import Scheduler, SchedulerLimits
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.contract.sample import sample_contract, sample_manifest

N_SLOTS, CONTEXT_TOKENS, PAGE_TOKENS, PREFILL_TOKENS = 4, 4096, 16, 64

# The next token of a request after those already said, under a mask (or none).
Voice = Callable[[GenerationRequest, Sequence[int], Any], int]


def saying(tokens: Sequence[int]) -> Voice:
    """Exactly these, then EOS; when there is no EOS, the last one again."""

    def speak(request: GenerationRequest, said: Sequence[int], mask: Any) -> int:
        if len(said) < len(tokens):
            return tokens[len(said)]
        return request.eos_tokens[0] if request.eos_tokens else tokens[-1]

    return speak


def skipping(tokens: Sequence[int]) -> Voice:
    """These tokens but for those that are forbidden when their turn comes, then the end."""
    places: dict[int, int] = {}

    def speak(request: GenerationRequest, said: Sequence[int], mask: Any) -> int:
        place = places.get(id(request), 0) if said else 0
        while place < len(tokens) and not is_allowed(mask, tokens[place]):
            place += 1
        places[id(request)] = place + 1
        return tokens[place] if place < len(tokens) else request.eos_tokens[0]

    return speak


def is_allowed(mask: Any, token_id: int) -> bool:
    return mask is None or bool((int(mask[token_id >> 5]) >> (token_id & 31)) & 1)


@dataclass
class _Slot:
    generation: int
    request: GenerationRequest
    limit: int
    consumed: int
    said: list[int] = field(default_factory=list)
    finish: int = 0


class ScriptedDevice:
    """Stands where ModelRuntime does. `voice` speaks for every request; `fails_at`: the completion that finds the device dead."""

    def __init__(self, tokenizer: Tokenizer, voice: Voice | None = None) -> None:
        self.voice: Voice = voice or saying(())
        self.fails_at: int | None = None
        self.requests: list[GenerationRequest] = []
        self.n_completed = 0
        self.most_constrained_in_flight = 0
        self._tokenizer = tokenizer
        self._slots: dict[int, _Slot] = {}
        self._in_flight: deque[Round] = deque()

    def says(self, text: str) -> None:
        """From now on: the tokens of a text, markers as their tokens where they are some."""
        self.voice = saying(self._tokenizer.encode(text, allow_special=True))

    # -- ModelRuntime

    def make_current(self) -> None:
        """It is everywhere."""

    @property
    def n_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_free_frame(self) -> bool:
        return len(self._in_flight) < 2

    def launch(self, round_: Round) -> None:
        assert self.has_free_frame
        self._in_flight.append(round_)
        if any(lane.mask is not None for lane in round_.lanes):
            self.most_constrained_in_flight = max(self.most_constrained_in_flight, self.n_in_flight)

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        round_ = self._in_flight.popleft()
        self.n_completed += 1
        if self.n_completed == self.fails_at:
            raise DeviceError("the scripted device has failed")
        for admission in round_.admissions:
            request = admission.sequence.request
            limit = admission.sequence.n_most_remaining
            self._slots[admission.slot] = _Slot(admission.generation, request, limit, admission.consumed)
            self.requests.append(request)
        return round_, [self._run(lane) for lane in round_.lanes]

    def _run(self, lane: Lane) -> LaneCompletion:
        slot = self._slots[lane.slot]
        assert slot.generation == lane.generation
        token, emitted = -1, 0
        if not slot.finish:
            assert lane.position == slot.consumed
            slot.consumed += lane.query_length
            if lane.is_sampled:
                token, emitted = self._sample(slot, lane), 1
        candidates = ((token, -0.25), (0, -2.0), (1, -3.0)) if emitted else ()
        return LaneCompletion(
            lane.slot, lane.generation, 0, 0, emitted, slot.consumed, -1, -1, slot.finish, token, -0.25, 1, candidates
        )

    def _sample(self, slot: _Slot, lane: Lane) -> int:
        token = self.voice(slot.request, slot.said, lane.mask)
        if not is_allowed(lane.mask, token):
            said = self._tokenizer.decode(slot.said)
            raise AssertionError(f"after {said!r} the mask forbids {self._tokenizer.decode([token])!r}")
        slot.said.append(token)
        slot.finish = 1 if token in slot.request.eos_tokens else 2 if len(slot.said) == slot.limit else 0
        return token

    def start_transfers(self, transfers: Iterable[Transfer]) -> None:
        assert not list(transfers)

    def finished_transfers(self) -> list[Transfer]:
        return []

    def wait_transfer(self) -> None:
        raise AssertionError("nothing is ever under way")

    def statistics(self) -> dict[str, int]:
        return {"submissions_total": self.n_completed}

    def close(self) -> None:
        self._in_flight.clear()


CACHE = CacheShape(PAGE_TOKENS, 4 * CONTEXT_TOKENS // PAGE_TOKENS, 0, 0, 0, True)


def scripted_engine(
    tokenizer: Tokenizer,
    frontend: Frontend,
    chat_template: str,
    device: ScriptedDevice,
    clock: Callable[[], float],
    shape: CacheShape = CACHE,
    settings: Settings | None = None,
    n_slots: int = N_SLOTS,
    journal: Journal | None = None,
) -> Engine:
    """The real engine over a scripted device, running."""
    contract = dataclasses.replace(
        PreparedContract.from_core(sample_contract(), sample_manifest()),
        frontend=frontend,
        vocabulary=tokenizer.vocabulary_size,
    )
    limits = SchedulerLimits(n_slots, CONTEXT_TOKENS, PREFILL_TOKENS, PAGE_TOKENS, tokenizer.vocabulary_size)
    bootstrap = Bootstrap(contract, execution_pb2.ExecutionManifest(), tokenizer, chat_template)
    scheduler = Scheduler(limits, _programs(n_slots), CacheBooks(shape, journal), clock)
    capacities = Capacities(limits, shape, page_nbytes=1, row_nbytes=1)
    owned = ExitStack()
    owned.callback(device.close)
    engine = Engine(bootstrap, capacities, device, scheduler, settings or Settings(), "a script", owned, journal)  # type: ignore[arg-type]
    engine._worker.start()
    return engine


def _programs(n_slots: int) -> ProgramTable:
    shapes = {
        RoundKind.INITIALIZE: ProgramShape(0, "initialize", n_slots, 0),
        RoundKind.PREFILL: ProgramShape(1, "prefill", n_slots, PREFILL_TOKENS),
        RoundKind.DECODE: ProgramShape(2, "decode", n_slots, n_slots),
        RoundKind.MIXED: ProgramShape(3, "mixed", n_slots, PREFILL_TOKENS + n_slots),
        RoundKind.RESTORE: ProgramShape(4, "restore", n_slots, 0),
        RoundKind.SNAPSHOT: ProgramShape(5, "snapshot", n_slots, 0),
    }
    return ProgramTable({kind: [shapes[kind]] if kind in shapes else [] for kind in RoundKind})
