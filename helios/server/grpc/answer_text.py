"""Generated tokens to the text of a plain answer: characters, stop strings, and the stop itself where it is to be shown.

It knows no syntax and no engine. The same machine runs twice, on the model worker to decide and on the server to present; both see
the same tokens, so both end at the same one (STOP-3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from helios.output.stops import StopMatcher
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextRules:
    """`n_unwatched`: in the text of so many tokens no stop is looked for. `shows_stop`: what ended the answer is part of it."""

    stops: tuple[str, ...] = ()
    n_unwatched: int = 0
    shows_stop: bool = False
    skips_special: bool = True


class AnswerText:
    """One answer's text as it grows. `stop` is the stop string that ended it, empty while none has."""

    def __init__(self, tokenizer: Tokenizer, rules: TextRules) -> None:
        self._decoder = IncrementalDecoder(tokenizer, skip_special=rules.skips_special)
        self._matcher = StopMatcher(rules.stops)
        self._rules = rules
        self._n_tokens = 0

    @property
    def stop(self) -> str:
        return self._matcher.matched

    def push(self, token_id: int) -> str:
        """The text that this token makes certain."""
        if self._matcher.is_matched:
            return ""
        self._n_tokens += 1
        return self._watched(self._decoder.push(token_id))

    def end(self, token_id: int) -> str:
        """The last token, which is an end of generation or a stop token itself: all that was held back."""
        return self.push(token_id) + self.finish() if self._rules.shows_stop else self.finish()

    def finish(self) -> str:
        """No more tokens come: what was held back for a character or a stop that never came."""
        if self._matcher.is_matched:
            return ""
        text = self._watched(self._decoder.flush())
        return text if self._matcher.is_matched else text + self._matcher.flush()

    def _watched(self, text: str) -> str:
        if self._n_tokens <= self._rules.n_unwatched:
            return text
        shown, is_matched = self._matcher.push(text)
        return shown + self._matcher.matched if is_matched and self._rules.shows_stop else shown


def host_stop(tokenizer: Tokenizer, rules: TextRules, stop_tokens: Collection[int]) -> Callable[[int], bool] | None:
    """A `GenerationRequest.host_stop` for the stop strings of `rules` and for `stop_tokens`, None when there are none."""
    if not rules.stops and not stop_tokens:
        return None
    text = AnswerText(tokenizer, rules)
    token_ids = frozenset(stop_tokens)

    def is_complete(token_id: int) -> bool:
        text.push(token_id)
        return token_id in token_ids or text.stop != ""

    return is_complete
