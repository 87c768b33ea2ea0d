"""Generated tokens to shown text: decode, watch for stops, end at EOS.

It knows no HTTP and no engine, and reads no clock. The same machine runs twice for a request with stops, on the model worker
to decide and on the server to present; both see the same tokens, so both end at the same one (STOP-3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from helios.output.stops import StopMatcher
from helios.tokenizer.incremental import IncrementalDecoder
from helios.tokenizer.tokenizer import Tokenizer


class OutputPipeline:
    """The text of one answer as it grows. `is_stopped` is true once a stop string was completed, `is_done` also after EOS."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], eos_tokens: Collection[int]) -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._matcher = StopMatcher(stops)
        self._eos_tokens = frozenset(eos_tokens)
        self.is_done = False

    @property
    def is_stopped(self) -> bool:
        return self._matcher.is_matched

    def push(self, token_id: int) -> str:
        """The text that this token makes visible. EOS shows nothing itself, but releases what was held back."""
        if self.is_done:
            return ""
        if token_id in self._eos_tokens:
            return self.finish()
        text, self.is_done = self._matcher.push(self._decoder.push(token_id))
        return text

    def finish(self) -> str:
        """End the answer: what was held back for a character or a stop that never came."""
        if self.is_done:
            return ""
        self.is_done = True
        text, is_matched = self._matcher.push(self._decoder.flush())
        return text if is_matched else text + self._matcher.flush()


def host_stop(tokenizer: Tokenizer, stops: Sequence[str]) -> Callable[[int], bool] | None:
    """A `GenerationRequest.host_stop` for these stops, None when there are none."""
    if not stops:
        return None
    pipeline = OutputPipeline(tokenizer, stops, ())

    def is_complete(token_id: int) -> bool:
        pipeline.push(token_id)
        return pipeline.is_stopped

    return is_complete
