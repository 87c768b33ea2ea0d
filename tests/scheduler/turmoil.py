"""Everything that can happen to a scheduler, one step at a time, with everything checked after each.

The steps take plain numbers, so that hypothesis can shrink them and a long random run can draw them. Free pages and rows, on the
device and in host memory, are overwritten with garbage after every step: who reads what it gave up gives itself away.
"""

from __future__ import annotations

from collections import Counter

from helios.errors import DeviceError, ShuttingDownError
from helios.scheduler.request import Failed, Finished, FinishReason, GenerationRequest, SamplingParameters, Token
from helios.scheduler.scheduler import Delivery
from tests.scheduler.hashing_device import GARBAGE, PAGE_TOKENS, VOCABULARY
from tests.scheduler.requests import CONTEXT, Rule, StopAfter, scores_alone, tokens_alone
from tests.scheduler.simulation import Clock, Simulation

FAULTS = [
    {"slot": 99},
    {"generation": -3},
    {"offered": 1},
    {"accepted": 1},
    {"emitted": 7},
    {"consumed": -1},
    {"draft_cursor": 0},
    {"reserved_model": 0},
    {"finish": 3},
]
# Documents that prompts begin with: what requests share.
DOCUMENTS = [tuple((7 * i * i + 13 * d + i) % VOCABULARY for i in range(80)) for d in range(3)]


class Turmoil:
    """`counts` says what happened how often."""

    def __init__(
        self,
        n_slots: int = 4,
        n_pages: int = 12,
        n_rows: int = 4,
        n_host_pages: int = 8,
        n_host_rows: int = 3,
        chunk: int = 16,
        *,
        is_recurrent: bool = False,
    ) -> None:
        self.is_recurrent = is_recurrent
        self.clock = Clock()
        self.simulation = Simulation(
            n_slots,
            n_pages,
            chunk,
            n_rows=n_rows,
            n_host_pages=n_host_pages,
            n_host_rows=n_host_rows,
            is_recurrent=is_recurrent,
            clock=self.clock,
        )
        self.counts: Counter[str] = Counter()
        self.alone: dict[int, list[int]] = {}
        self.cancelled: set[int] = set()
        self.live: list[int] = []
        self.histories: list[tuple[int, ...]] = list(DOCUMENTS)
        self._n_submitted = 0

    # -- steps

    def submit(
        self, which: int, n_shared: int, own: tuple[int, ...], n_output: int, decision: int, seed: int, flavour: int
    ) -> None:
        """A request that shares the first `n_shared` tokens of an earlier text. `decision`: none, a string stop or a constraint;
        `flavour`: priority, salt, whether it uses the cache, and whether its state is saved behind what it shares."""
        shared = self.histories[which % len(self.histories)][:n_shared]
        prompt = ((shared + own) or (1,))[: CONTEXT - 2]
        request = GenerationRequest(
            prompt,
            n_output,
            eos_tokens=[(), (3,), (5, 6, 7, 8)][seed % 3],
            sampling=SamplingParameters(seed=seed),
            host_stop=StopAfter(1 + decision % 11, [7, 1000][decision % 2]) if decision % 6 == 1 else None,
            constraint=Rule(2 + decision % 4, [4, 1000, 1000][decision // 6 % 3]) if decision % 6 == 2 else None,
            priority=[0, 0, 0, 0, 1, -1][flavour % 6],
            cache_salt=["", "", "", "tenant"][flavour % 4],
            uses_cache=flavour % 7 != 6,
            boundaries=tuple(sorted({1 + n_shared // 2, n_shared} & set(range(1, len(prompt))))) if flavour % 3 else (),
            prompt_candidates=2 if seed % 6 == 4 else None,
        )
        key = self._n_submitted
        self._n_submitted += 1
        self.alone[key] = tokens_alone(request, is_recurrent=self.is_recurrent)
        self.live.append(key)
        self.simulation.submit(key, request)
        self._after("submitted")

    def cancel(self, which: int) -> None:
        if self.live:
            key = self.live[which % len(self.live)]
            self.cancelled.add(key)
            self._deliver(self.simulation.scheduler.cancel(key))
            self._after("cancelled")

    def plan(self) -> None:
        simulation = self.simulation
        round_ = simulation.plan()
        if round_ is not None:
            kinds = {lane.is_prompt for lane in round_.lanes}
            kind = (
                "snapshot only"
                if not kinds
                else "scored"
                if any(lane.is_scored for lane in round_.lanes)
                else "mixed"
                if len(kinds) == 2
                else "prefill"
                if True in kinds
                else "decode"
            )
            self.counts[f"{kind} rounds"] += 1
            self.counts["second frames"] += len(simulation.in_flight) == 2
        else:
            has_hope = simulation.in_flight or simulation.scheduler.is_waiting or not simulation.scheduler.has_work
            assert has_hope, "requests are waiting, and no round can be planned"
        self._after("planned")

    def execute(self) -> None:
        self.simulation.device.execute()
        self._after("executed")

    def retire(self) -> None:
        if self.simulation.in_flight:
            round_, completions = self.simulation.device.complete()
            assert round_ is self.simulation.in_flight.popleft()
            self._deliver(self.simulation.scheduler.retire(round_, completions))
            self._after("retired")

    def fault(self, lane: int, which: int) -> None:
        """A completion that is not what was asked changes nothing, and publishes nothing; the true one is taken in after it."""
        if not self.simulation.in_flight:
            return
        simulation = self.simulation
        round_, completions = simulation.device.complete()
        assert round_ is simulation.in_flight.popleft()
        if completions:
            lane %= len(completions)
            wrong = list(completions)
            wrong[lane] = wrong[lane]._replace(**FAULTS[which % len(FAULTS)])
            before = simulation.scheduler.statistics()
            try:
                simulation.scheduler.retire(round_, wrong)
                raise AssertionError("a wrong completion was believed")
            except DeviceError:
                assert simulation.scheduler.statistics() == before
                self.counts["faults"] += 1
        self._deliver(simulation.scheduler.retire(round_, completions))
        self._after("retired")

    def finish_transfer(self, which: int) -> None:
        copying = self.simulation.device.copying
        if copying:
            index = which % len(copying)
            self.counts["offloads" if copying[index].is_offload else "reloads"] += 1
            self.simulation.finish_transfer(index)
            self._after("copied")

    def jump(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self._after("jumped")

    def die(self) -> None:
        """The device is gone: every unfinished request ends, once; a new device starts with nothing."""
        self._deliver(self.simulation.scheduler.fail_all(ShuttingDownError()))
        self._check_endings()
        assert not self.live
        counts, n_submitted, shape = self.counts, self._n_submitted, self.simulation.cache.shape
        n_slots = self.simulation.statistic("slots")
        self._add_statistics()
        self.__init__(  # type: ignore[misc]
            n_slots, shape.n_pages, shape.n_rows, shape.n_host_pages, shape.n_host_rows, is_recurrent=self.is_recurrent
        )
        self.counts, self._n_submitted = counts, n_submitted
        self.counts["deaths"] += 1

    def finish(self) -> None:
        """Everything to its end."""
        for _ in range(20_000):
            self.plan()
            if self.simulation.in_flight:
                self.retire()
            elif self.simulation.device.copying:
                self.finish_transfer(0)
            elif not self.simulation.scheduler.has_work:
                break
        else:
            raise AssertionError("the scheduler does not come to an end")
        assert not self.live
        self._check_endings()
        assert self.simulation.is_empty()
        self._add_statistics()

    # -- checks

    def _after(self, what: str) -> None:
        self.counts[what] += 1
        self.counts["steps"] += 1
        simulation = self.simulation
        simulation.scheduler.check()
        self._overwrite_free()

    def _overwrite_free(self) -> None:
        cache, device = self.simulation.cache, self.simulation.device
        for store, free in ((device.pages, cache._pages.device), (device.host_pages, cache._pages.host)):
            for index in free._free:
                store[index] = [GARBAGE] * PAGE_TOKENS
        for rows, free in ((device.rows, cache._rows.device), (device.host_rows, cache._rows.host)):
            for index in free._free:
                rows[index].tokens = [GARBAGE] * PAGE_TOKENS
                rows[index].state = b"garbage"

    def _deliver(self, delivery: Delivery) -> None:
        self.simulation.take(delivery)
        for key, events in delivery:
            tokens = self.simulation.tokens(key)
            assert tokens == self.alone[key][: len(tokens)], f"request {key} diverged at token {len(tokens) - 1}"
            assert self.simulation.scores(key) == (scores_alone(self.simulation.requests[key]) if tokens else [])
            if not isinstance(events[-1], Token):
                self.live.remove(key)
                self.histories.append(self.simulation.requests[key].prompt_tokens + tuple(tokens))
                self.histories = self.histories[:3] + self.histories[3:][-8:]

    def _check_endings(self) -> None:
        for key, alone in self.alone.items():
            ending = self.simulation.ending(key)
            self.counts[_name(ending)] += 1
            tokens = self.simulation.tokens(key)
            if isinstance(ending, Finished) and ending.reason is FinishReason.CANCELLED:
                assert key in self.cancelled
            elif isinstance(ending, Failed) and not isinstance(ending.error, ShuttingDownError):
                constraint = self.simulation.requests[key].constraint
                assert constraint is not None
                assert tokens == alone
            elif isinstance(ending, Finished):
                assert tokens == alone
                assert ending.usage.output_tokens == len(tokens)
                assert ending.usage.reused_prompt_tokens < ending.usage.prompt_tokens

    def _add_statistics(self) -> None:
        for name, value in self.simulation.scheduler.statistics().items():
            if "_total" in name:
                self.counts[name] += value


def _name(ending: Finished | Failed) -> str:
    return f"ended: {ending.reason.value}" if isinstance(ending, Finished) else f"ended: {ending.error.code}"
