"""A running generation seen as growing text: nothing that was generated is lost, however its events come."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import FrameType

import pytest

from helios.errors import DeviceError, HeliosError
from helios.output.events import ContentDelta
from helios.output.pipeline import OutputPipeline
from helios.scheduler.request import Event, Finished, FinishReason, Token
from helios.server.attribution import Attribution
from helios.server.choice import Choice, Delta
from helios.server.reading import Reading
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.batches import BAD_ENDINGS, SCORES, USAGE, Batches


def read(tokenizer: Tokenizer, batches: Sequence[Sequence[Event]]) -> tuple[list[Delta], HeliosError | None]:
    """All deltas, and the error behind them; asked again, the choice says the same."""
    choice = Choice(0, Batches(batches), OutputPipeline(tokenizer, (), ()), Reading(), None)

    async def read_all() -> tuple[list[Delta], HeliosError | None]:
        deltas: list[Delta] = []
        try:
            while not deltas or deltas[-1].finish_reason is None:
                deltas.append(await choice.next_delta())
        except HeliosError as error:
            with pytest.raises(type(error)):
                await choice.next_delta()
            return deltas, error
        return deltas, None

    return asyncio.run(read_all())


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(part.event.text for delta in deltas for part in delta.parts if isinstance(part.event, ContentDelta))


@pytest.mark.parametrize(("ending", "kind"), BAD_ENDINGS)
@pytest.mark.parametrize("is_together", [True, False])
def test_what_came_before_a_bad_ending_is_given_out(
    tokenizer: Tokenizer, ending: Event, kind: type[HeliosError], is_together: bool
) -> None:
    """HTTP-2: whether the ending comes with the last tokens or behind them decides nothing."""
    tokens = [Token(token_id) for token_id in tokenizer.encode("Hello world", allow_special=False)]
    batches: list[list[Event]] = [[SCORES, *tokens, ending]] if is_together else [[SCORES], [*tokens], [ending]]
    deltas, error = read(tokenizer, batches)
    assert isinstance(error, kind)
    assert text_of(deltas) == "Hello world"
    assert [token for delta in deltas for token in delta.tokens] == tokens
    assert [delta.scores for delta in deltas if delta.scores] == [SCORES]


@pytest.mark.parametrize(("ending", "kind"), BAD_ENDINGS)
def test_a_bad_ending_alone_is_raised_at_once(tokenizer: Tokenizer, ending: Event, kind: type[HeliosError]) -> None:
    """HTTP-3: a request that fails before its first token is answered with a status, streamed or not."""
    deltas, error = read(tokenizer, [[ending]])
    assert (deltas, type(error)) == ([], kind)


def test_scores_come_before_an_ending_of_the_same_batch(tokenizer: Tokenizer) -> None:
    deltas, error = read(tokenizer, [[SCORES, BAD_ENDINGS[0][0]]])
    assert [delta.scores for delta in deltas] == [SCORES]
    assert isinstance(error, DeviceError)


def test_a_good_ending_needs_no_batch_of_its_own(tokenizer: Tokenizer) -> None:
    (token_id,) = tokenizer.encode("Hello", allow_special=False)[:1]
    deltas, error = read(tokenizer, [[Token(token_id), Finished(FinishReason.LIMIT, USAGE)]])
    assert error is None
    assert [delta.finish_reason for delta in deltas] == ["length"]


def test_a_long_batch_costs_no_more_for_each_token(tokenizer: Tokenizer) -> None:
    """What has waited for a late event loop must not make it later still: counted in calls of functions."""
    (token_id,) = tokenizer.encode("a", allow_special=False)

    def n_calls(n_tokens: int) -> int:
        tokens = [Token(token_id, -0.5) for _ in range(n_tokens)]
        attribution = Attribution(tokenizer, keeps_all=True)
        batches = Batches([[*tokens, Finished(FinishReason.LIMIT, USAGE)]])
        choice = Choice(0, batches, OutputPipeline(tokenizer, (), ()), Reading(), attribution)
        n_called = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal n_called
            n_called += event == "call"

        profile = sys.getprofile()
        reading = choice.next_delta()
        sys.setprofile(count)
        try:
            reading.send(None)
        except StopIteration as done:
            delta = done.value
        finally:
            sys.setprofile(profile)
        assert [part.token for part in delta.parts[0].tokens] == tokens
        return n_called

    assert n_calls(1000) < 1.5 * 10 * n_calls(100)
