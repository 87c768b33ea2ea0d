"""Who takes part in the next round, and with how many tokens.

It knows phases, budgets and room for pages, no programs' numbers beyond their extents. Streams that decode come first; the prompt
tokens beside them are as many as keep the round within the gap target, so that a long prompt never stalls a running stream.
Prompts that are scored have rounds of their own, in turn with all others. Of those that want whole distributions the first few take
part, the others when these have ended; a prompt that wants those of its tokens goes on by few at a time.
"""

from __future__ import annotations

from helios.scheduler.costs import CostRecord
from helios.scheduler.flight import decode_round_s
from helios.scheduler.pressure import Pressure
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.roster import Roster
from helios.scheduler.sequence import Phase, Sequence
from helios.scheduler.shares import fair_shares, mixed_budget

Shares = list[tuple[Sequence, int]]
Composition = tuple[RoundKind, list[Sequence], Shares]


class Composer:
    """Composes rounds. `gap_s`: target for the time between two tokens of a running stream; `prefill_tokens`: most of a round."""

    def __init__(
        self,
        prefill_tokens: int,
        gap_s: float,
        programs: ProgramTable,
        roster: Roster,
        pressure: Pressure,
        costs: CostRecord,
        n_most_distributed: int,
        n_most_prompt_distributed: int,
    ) -> None:
        self._prefill_tokens = prefill_tokens
        self._gap_s = gap_s
        self._programs = programs
        self._roster = roster
        self._pressure = pressure
        self._costs = costs
        self._n_most_distributed = n_most_distributed
        self._n_most_prompt_distributed = n_most_prompt_distributed
        self._n_most_decoding = programs.lanes(RoundKind.DECODE)
        self.was_scored = False  # the last round that was launched

    def compose(self) -> Composition:
        """(what it is, sequences that decode one token, prompts with their shares); all of them have pages for it."""
        decoding: list[Sequence] = []
        prompts: list[Sequence] = []
        n_distributed = 0
        for sequence in tuple(self._roster.active):
            if sequence.is_distributed:
                n_distributed += 1
                if n_distributed > self._n_most_distributed:
                    continue
            if sequence.phase is Phase.DECODE:
                if (
                    sequence.n_samples_scheduled < sequence.output_limit
                    and len(decoding) < self._n_most_decoding
                    and (sequence.n_scheduled < sequence.n_positions or self._pressure.room(sequence, 1))
                ):
                    decoding.append(sequence)
            elif sequence.phase is Phase.PREFILL:
                prompts.append(sequence)
        if not prompts:
            return RoundKind.DECODE, decoding, []
        turns = (self._compose_unscored, self._compose_scored)
        for compose in turns if self.was_scored else reversed(turns):
            kind, decoding_now, shares = compose(decoding, prompts)
            if decoding_now or shares:
                break
        return kind, decoding_now, shares

    def _compose_unscored(self, decoding: list[Sequence], prompts: list[Sequence]) -> Composition:
        unscored = [s for s in prompts if s.phase is Phase.PREFILL and not s.is_scored]
        shares = self._share(RoundKind.MIXED if decoding else RoundKind.PREFILL, decoding, unscored)
        # Room for a prompt may have been made by one that is younger and was chosen before.
        still_decoding, shares = [s for s in decoding if s.phase is Phase.DECODE], _still_prefilling(shares)
        kind = RoundKind.DECODE if not shares else RoundKind.MIXED if decoding else RoundKind.PREFILL
        return kind, still_decoding, shares

    def _compose_scored(self, decoding: list[Sequence], prompts: list[Sequence]) -> Composition:
        scored = [s for s in prompts if s.phase is Phase.PREFILL and s.is_scored]
        return RoundKind.SCORED_PREFILL, [], _still_prefilling(self._share(RoundKind.SCORED_PREFILL, decoding, scored))

    def _share(self, kind: RoundKind, decoding: list[Sequence], prompts: list[Sequence]) -> Shares:
        """Prompts and their tokens. `decoding` streams are in the round too, or wait for it to end where it is a scored one."""
        n_beside = len(decoding) if kind is RoundKind.MIXED else 0
        prompts = prompts[: max(0, self._programs.lanes(kind) - n_beside)]
        if not prompts:
            return []
        n_rows = self._programs.rows(kind, n_beside + len(prompts)) - n_beside
        budget = min(self._prefill_tokens, n_rows)
        if decoding:
            budget = mixed_budget(budget, self._n_within_gap(kind, len(decoding), prompts))
        shares: Shares = []
        wanted = fair_shares(budget, self._n_possible(prompts))
        for sequence, n_wanted in zip(prompts, wanted, strict=True):
            if n_wanted < 1 or sequence.phase is not Phase.PREFILL:
                continue
            n_spared_pages = sum(1 for other in decoding if other.order < sequence.order)
            n_tokens = self._pressure.room(sequence, n_wanted, n_spared_pages)
            if n_tokens:
                shares.append((sequence, n_tokens))
        return shares

    def _n_possible(self, prompts: list[Sequence]) -> list[int]:
        """How many tokens of each prompt one round may take."""
        n_possible = [s.n_possible for s in prompts]
        whole = [i for i, s in enumerate(prompts) if s.is_scored and s.request.needs_prompt_distributions]
        shares = fair_shares(self._n_most_prompt_distributed, [n_possible[i] for i in whole])
        for i, n_tokens in zip(whole, shares, strict=True):
            n_possible[i] = n_tokens
        return n_possible

    def _n_within_gap(self, kind: RoundKind, n_decoding: int, prompts: list[Sequence]) -> int | None:
        """Tokens of these prompts that measured costs allow between two tokens of so many streams."""
        decode_s = decode_round_s(self._programs, self._costs, n_decoding)
        if decode_s is None:
            return None
        position = sum(s.n_scheduled for s in prompts) / len(prompts)
        is_scored = kind is RoundKind.SCORED_PREFILL
        return self._costs.prompt_tokens_within(self._gap_s - decode_s, position, is_scored=is_scored)


def _still_prefilling(shares: Shares) -> Shares:
    return [(sequence, n_tokens) for sequence, n_tokens in shares if sequence.phase is Phase.PREFILL]
