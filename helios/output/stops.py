"""Stop strings over decoded text and stop sequences over tokens, one element at a time.

It knows what it watches and no reasons. What has been given out never takes part in a later match, what may still become a stop is
held back, and no more than that; since the machines move by elements, how the input was cut cannot matter (STOP-2, STOP-4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

_Element = TypeVar("_Element", str, int)


class StopMatcher:
    """Watches text for the first of several stop strings to be completed.

    The match that ends first wins; of those that end together the longest, so that everything a stop spells is removed.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = tuple(_Automaton(stop) for stop in stops)
        self._held = ""
        self.is_matched = False
        self.matched = ""  # the stop, once one was completed

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop has been completed; after that everything is swallowed."""
        if self.is_matched or not self._automata:
            return ("" if self.is_matched else text), self.is_matched
        pending = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            n_matched = max(automaton.advance(character) for automaton in self._automata)
            if n_matched:
                self.is_matched, self._held = True, ""
                self.matched = pending[end - n_matched : end]
                return pending[: end - n_matched], True
        n_held = max(automaton.n_matched for automaton in self._automata)
        n_shown = len(pending) - n_held
        self._held = pending[n_shown:]
        return pending[:n_shown], False

    def flush(self) -> str:
        """What was held back; the text has ended, so it is no stop."""
        held, self._held = self._held, ""
        return held


class TokenStopMatcher:
    """Watches tokens for the first of several sequences to be completed, as StopMatcher does text."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._automata = tuple(_Automaton(tuple(sequence)) for sequence in sequences)
        self._held: list[int] = []
        self.is_matched = False

    def push(self, token_id: int) -> list[int]:
        """The tokens that may be presented now; none any more once a sequence was completed."""
        if self.is_matched:
            return []
        if not self._automata:
            return [token_id]
        self._held.append(token_id)
        n_matched = max(automaton.advance(token_id) for automaton in self._automata)
        self.is_matched = n_matched > 0
        n_held = n_matched or max(automaton.n_matched for automaton in self._automata)
        n_shown = len(self._held) - n_held
        shown, self._held = self._held[:n_shown], [] if self.is_matched else self._held[n_shown:]
        return shown

    def flush(self) -> list[int]:
        """What was held back; the tokens have ended, so it is no stop."""
        held, self._held = self._held, []
        return held


class _Automaton(Generic[_Element]):
    """One stop and how many of its first elements the input ends with: a Knuth-Morris-Pratt automaton.

    Amortised constant work an element, however long the stop is.
    """

    def __init__(self, stop: Sequence[_Element]) -> None:
        self._stop: Sequence[_Element] = stop
        self._fallbacks = _fallbacks(stop)
        self.n_matched = 0

    def advance(self, element: _Element) -> int:
        """The stop's length when `element` completes it, else 0."""
        while self.n_matched and self._stop[self.n_matched] != element:
            self.n_matched = self._fallbacks[self.n_matched - 1]
        if self._stop[self.n_matched] == element:
            self.n_matched += 1
        return self.n_matched if self.n_matched == len(self._stop) else 0


def _fallbacks(stop: Sequence[_Element]) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper border."""
    fallbacks = [0] * len(stop)
    n_matched = 0
    for index in range(1, len(stop)):
        while n_matched and stop[n_matched] != stop[index]:
            n_matched = fallbacks[n_matched - 1]
        if stop[n_matched] == stop[index]:
            n_matched += 1
        fallbacks[index] = n_matched
    return fallbacks
