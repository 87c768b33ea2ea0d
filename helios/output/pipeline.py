"""Generated tokens to the events of an answer: stops, characters, and the parser of the model's syntax.

It knows no HTTP and no engine, and reads no clock. Every token is pushed once; what a stop removes and what is markup never comes
out; each way in which an answer can end is told apart from the others (FE-7).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence

from helios.output.events import ContentDelta, Ending, OutputEvent
from helios.output.parser import AnswerParser, Tools
from helios.output.syntax import AnswerSyntax
from helios.output.text_stream import TextStream
from helios.tokenizer.tokenizer import Tokenizer


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class OutputPipeline:
    """The events of one answer as it grows. `ending` is None while it does.

    `stops` and `stop_sequences` end it as EOS does. With a `syntax` it is parsed: calls only with `tools`, names with the JSON
    Schema of their parameters; `opening` is what the prompt holds of the answer already (`open_answer`); with `is_structured` a
    grammar constrains the content, so that nothing in it is markup.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        eos_tokens: Collection[int],
        *,
        stop_sequences: Sequence[Sequence[int]] = (),
        syntax: AnswerSyntax | None = None,
        tools: Tools | None = None,
        opening: str = "",
        is_structured: bool = False,
        ids: Callable[[], str] = new_call_id,
    ) -> None:
        # Stops see the same text here as in `host_stop`, so with them marked text is parsed even if it can only be content.
        if syntax is not None and not (stops or stop_sequences or syntax.is_parsed(has_tools=bool(tools))):
            syntax = None
        self._parser: AnswerParser | None = None
        if syntax is not None:
            self._parser = AnswerParser(syntax, tools, ids, opening=opening, is_structured=is_structured)
        self._stream = TextStream(tokenizer, stops, stop_sequences, syntax.markup if syntax is not None else None)
        self._eos_tokens = frozenset(eos_tokens)
        self.ending: Ending | None = None

    @property
    def is_done(self) -> bool:
        """Nothing more will come: EOS or a stop was pushed, or `finish` was called."""
        return self.ending is not None

    @property
    def is_stopped(self) -> bool:
        return self.ending is Ending.STOP

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer, None without one."""
        return self._stream.stop

    def push(self, token_id: int) -> list[OutputEvent]:
        """What this token makes certain. EOS shows nothing itself, but releases what was held back."""
        if self.ending is not None:
            return []
        if token_id in self._eos_tokens:
            return self.finish(Ending.EOS)
        text = self._stream.push(token_id)
        if self._stream.is_stopped:
            return self._ended(text, Ending.STOP)
        if self._parser is not None:
            return self._parser.push(text) if text else []
        return [ContentDelta(text)] if text else []

    def finish(self, ending: Ending) -> list[OutputEvent]:
        """End the answer: what was held back for a character, a stop or a delimiter that never came.

        A failed answer gives out nothing more. After EOS or a stop the answer has ended already, and its ending stands.
        """
        if self.ending is not None:
            return []
        text = "" if ending is Ending.FAULT else self._stream.finish()
        return self._ended(text, Ending.STOP if self._stream.is_stopped else ending)

    def _ended(self, text: str, ending: Ending) -> list[OutputEvent]:
        self.ending = ending
        if self._parser is None:
            return [ContentDelta(text)] if text else []
        return self._parser.close(text, ending)


def host_stop(
    tokenizer: Tokenizer,
    stops: Sequence[str],
    stop_sequences: Sequence[Sequence[int]] = (),
    syntax: AnswerSyntax | None = None,
) -> Callable[[int], bool] | None:
    """A `GenerationRequest.host_stop` for these stops, None when there are none.

    It runs the pipeline's own machine without the parser, so both see the same stop at the same token (STOP-3).
    """
    if not stops and not stop_sequences:
        return None
    stream = TextStream(tokenizer, stops, stop_sequences, syntax.markup if syntax is not None else None)

    def is_complete(token_id: int) -> bool:
        stream.push(token_id)
        return stream.is_stopped

    return is_complete
