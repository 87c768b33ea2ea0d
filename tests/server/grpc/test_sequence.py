"""A running generation seen as deltas: what came with an error is told before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from helios.errors import HeliosError
from helios.scheduler.request import Event, Token
from helios.server.grpc.answer_text import TextRules
from helios.server.grpc.sequence import AnswerSequence, Delta
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.batches import BAD_ENDINGS, SCORES, Batches


def read(tokenizer: Tokenizer, batches: Sequence[Sequence[Event]]) -> tuple[list[Delta], HeliosError | None]:
    options = SimpleNamespace(shown=SimpleNamespace(is_whole=False))
    call = SimpleNamespace(
        rules=TextRules(), eos_tokens=frozenset[int](), stop_tokens=frozenset[int](), options=options
    )
    sequence = AnswerSequence(0, Batches(batches), call, tokenizer, lambda: False)  # type: ignore[arg-type]

    async def read_all() -> tuple[list[Delta], HeliosError | None]:
        deltas: list[Delta] = []
        try:
            while not deltas or deltas[-1].finish is None:
                deltas.append(await sequence.next_delta())
        except HeliosError as error:
            return deltas, error
        return deltas, None

    return asyncio.run(read_all())


@pytest.mark.parametrize(("ending", "kind"), BAD_ENDINGS)
@pytest.mark.parametrize("is_together", [True, False])
def test_what_came_before_a_bad_ending_is_given_out(
    tokenizer: Tokenizer, ending: Event, kind: type[HeliosError], is_together: bool
) -> None:
    """GRPC-3, HTTP-2: whether the ending comes with the last tokens or behind them decides nothing."""
    tokens = [Token(token_id) for token_id in tokenizer.encode("Hello world", allow_special=False)]
    batches: list[list[Event]] = [[SCORES, *tokens, ending]] if is_together else [[SCORES], [*tokens], [ending]]
    deltas, error = read(tokenizer, batches)
    assert isinstance(error, kind)
    assert "".join(delta.text for delta in deltas) == "Hello world"
    assert [token for delta in deltas for token in delta.tokens] == tokens
    assert [delta.scores for delta in deltas if delta.scores] == [SCORES]


@pytest.mark.parametrize(("ending", "kind"), BAD_ENDINGS)
def test_a_bad_ending_alone_is_raised_at_once(tokenizer: Tokenizer, ending: Event, kind: type[HeliosError]) -> None:
    deltas, error = read(tokenizer, [[ending]])
    assert (deltas, type(error)) == ([], kind)
