"""Stop strings over decoded text, one character at a time.

It knows text only, no tokens and no reasons. What has been shown never takes part in a later match, what may still become a
stop is held back, and no more than that; since the machine moves by characters, how the text was cut cannot matter (STOP-2).
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Watches text for the first of several stop strings to be completed.

    The match that ends first wins; of those that end together the longest, so that everything a stop spells is removed.
    Each stop is a Knuth-Morris-Pratt automaton: amortised constant work a character, however long the stop is.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = tuple(_Automaton(stop) for stop in stops)
        self._held = ""
        self.is_matched = False

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop has been completed; after that everything is swallowed."""
        if self.is_matched or not self._automata:
            return ("" if self.is_matched else text), self.is_matched
        pending = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            n_matched = max(automaton.advance(character) for automaton in self._automata)
            if n_matched:
                self.is_matched, self._held = True, ""
                return pending[: end - n_matched], True
        n_held = max(automaton.n_matched for automaton in self._automata)
        n_shown = len(pending) - n_held
        self._held = pending[n_shown:]
        return pending[:n_shown], False

    def flush(self) -> str:
        """What was held back; the text has ended, so it is no stop."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """One stop string and how many of its first characters the text ends with."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallbacks = _fallbacks(stop)
        self.n_matched = 0

    def advance(self, character: str) -> int:
        """The stop's length when `character` completes it, else 0."""
        while self.n_matched and self._stop[self.n_matched] != character:
            self.n_matched = self._fallbacks[self.n_matched - 1]
        if self._stop[self.n_matched] == character:
            self.n_matched += 1
        return self.n_matched if self.n_matched == len(self._stop) else 0


def _fallbacks(stop: str) -> list[int]:
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
