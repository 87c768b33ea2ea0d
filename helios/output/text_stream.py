"""Generated tokens to marked text: token stops, characters, stop strings.

It knows no syntax beyond which tokens are markup, and no reasons. The same machine runs twice for a request with stops, on the
model worker to decide and on the server to present; both see the same tokens, so both end at the same one (STOP-3, STOP-4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from helios.output.markup import Markup
from helios.output.stops import StopMatcher, TokenStopMatcher
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer


class TextStream:
    """The marked text of one answer as it grows, up to a stop. `is_stopped` once one was completed."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        stop_sequences: Sequence[Sequence[int]],
        markup: Markup | None,
    ) -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._characters: Mapping[int, str] = markup.characters if markup is not None else {}
        self._token_stops = TokenStopMatcher(stop_sequences) if stop_sequences else None
        self._string_stops = _string_stops(stops, markup)

    @property
    def is_stopped(self) -> bool:
        tokens, strings = self._token_stops, self._string_stops
        return (tokens is not None and tokens.is_matched) or (strings is not None and strings.is_matched)

    @property
    def stop(self) -> str | None:
        """The stop string that was completed, None without one."""
        return self._string_stops.matched if self._string_stops is not None and self._string_stops.is_matched else None

    def push(self, token_id: int) -> str:
        """The marked text that this token makes certain."""
        if self._token_stops is None:
            text = self._decoded(token_id)
        else:
            text = "".join(map(self._decoded, self._token_stops.push(token_id)))
            text += self._decoder.flush() if self._token_stops.is_matched else ""
        return text if self._string_stops is None else self._string_stops.push(text)[0]

    def finish(self) -> str:
        """End the text: what was held back for a character or a stop that never came. A stop may be completed even here."""
        text = "" if self._token_stops is None else "".join(map(self._decoded, self._token_stops.flush()))
        text += self._decoder.flush()
        return text if self._string_stops is None else self._string_stops.push(text)[0] + self._string_stops.flush()

    def _decoded(self, token_id: int) -> str:
        character = self._characters.get(token_id)
        return self._decoder.push(token_id) if character is None else self._decoder.flush() + character


def _string_stops(stops: Sequence[str], markup: Markup | None) -> StopMatcher | _MarkedStops | None:
    if not stops:
        return None
    return _MarkedStops(stops, markup) if markup is not None else StopMatcher(stops)


class _MarkedStops:
    """Stop strings over what marked text spells. A markup token that a stop cuts is removed with it."""

    def __init__(self, stops: Sequence[str], markup: Markup) -> None:
        self._matcher = StopMatcher(stops)
        self._spelling = markup.spelled
        self._held: deque[str] = deque()  # marked characters whose spelling the matcher has not wholly released
        self._n_released = 0  # characters of the first one's spelling that it has

    @property
    def is_matched(self) -> bool:
        return self._matcher.is_matched

    @property
    def matched(self) -> str:
        return self._matcher.matched

    def push(self, marked: str) -> tuple[str, bool]:
        """Like `StopMatcher.push`, for marked text."""
        self._held.extend(marked)
        released = self._released(self._matcher.push(self._spelling(marked))[0])
        return released, self.is_matched

    def flush(self) -> str:
        return self._released(self._matcher.flush())

    def _released(self, spelled: str) -> str:
        """The marked characters that are wholly released with this much of their spelling."""
        self._n_released += len(spelled)
        released: list[str] = []
        while self._held and len(self._spelling(self._held[0])) <= self._n_released:
            self._n_released -= len(self._spelling(self._held[0]))
            released.append(self._held.popleft())
        return "".join(released)
