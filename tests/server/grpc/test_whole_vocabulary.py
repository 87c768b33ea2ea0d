"""Candidates by id, and all of them: the wire against the messages' own serialiser, and the limits of what may be asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.scheduler.distribution import Distribution
from helios.scheduler.request import Token
from helios.server.grpc.schema import control_pb2, inference_pb2
from helios.server.grpc.whole_vocabulary import MAX_REPORTED, N_MOST_CALLS, candidates
from tests.server.grpc.conftest import Client, RunningGrpc, finish_of, request_of, wait_until
from tests.server.grpc.validator import FinishInfo, check_stream
from tests.server.scripted_engine import ScriptedEngine

Info = inference_pb2.CandidateTokenInfo
ALL = {"output_logprobs": True, "output_candidates": {"all": True}, "output_token_ids": True}


def by_objects(distribution: Distribution, chosen: int) -> Info:
    logits = distribution.logits.tolist()
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    logprobs = distribution.logprobs(np.array(order)).tolist()
    ranked = zip(order, logprobs, range(1, len(order) + 1), strict=True)
    return Info(tokens=[Info.TokenInfo(id=i, logprob=logprob, rank=rank) for i, logprob, rank in ranked if i != chosen])


@settings(max_examples=12)
@given(st.integers(1, 20_000), st.integers(0, 2**32 - 1), st.data())
def test_the_wire_says_what_the_messages_would(n: int, seed: int, data: st.DataObject) -> None:
    """GRPC-3: one, two and three bytes of ids and ranks."""
    logits = np.random.default_rng(seed).standard_normal(n).astype(np.float32).round(2)
    distribution = Distribution(logits, 11.5)
    chosen = data.draw(st.integers(0, n - 1))
    assert Info.FromString(candidates(distribution, chosen)) == by_objects(distribution, chosen)


@pytest.fixture
def reporting(scripted: ScriptedEngine, start: Callable[..., RunningGrpc]) -> RunningGrpc:
    scripted.reports_distributions = True
    scripted.answer = None
    return start(scripted)


def distribution_of(engine: ScriptedEngine, seed: int) -> Distribution:
    return Distribution(np.random.default_rng(seed).standard_normal(engine.vocabulary).astype(np.float32), 11.5)


def speak(engine: ScriptedEngine, index: int, n_tokens: int) -> None:
    """Generation `index` says token 40 so many times, each with a distribution of its own, and ends."""
    wait_until(lambda: len(engine.generations) > index)
    generation = engine.generations[index]
    for seed in range(n_tokens):
        generation.send(Token(40, -1.5, 3, distribution=distribution_of(engine, seed)))
    generation.give(engine.eos_tokens[0])


def test_all_candidates_arrive_whole_and_streamed(reporting: RunningGrpc) -> None:
    """GRPC-3: with everything else that a message holds, and a token a message when they are streamed."""
    engine = reporting.engine
    expected = [by_objects(distribution_of(engine, seed), 40) for seed in range(3)]
    for index, ask in enumerate((lambda c: [c.generate(response=ALL)], lambda c: c.stream(response=ALL))):
        thread = threading.Thread(target=speak, args=(engine, index, 3))
        thread.start()
        responses = ask(reporting.client())
        thread.join()
        assert responses[0].prompt_info.num_prompt_tokens > 0
        outputs = [response.outputs for response in responses if response.HasField("outputs")]
        assert [info for output in outputs for info in output.candidate_tokens] == [*expected, Info()]
        assert all(output.num_tokens <= 1 for output in outputs) or index == 0
        assert outputs[-1].finish_info.num_output_tokens == 4


def test_more_candidates_than_the_limit_are_refused_with_what_would_fit(
    scripted: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-2."""
    scripted.reports_distributions, scripted.vocabulary = True, 1 << 18
    n_most = MAX_REPORTED >> 18
    code, details = start(scripted).client().refused(response=ALL, stopping={"max_new_tokens": n_most + 1})
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"max_new_tokens to {n_most} at most" in details
    assert not scripted.generations


def test_calls_that_report_all_take_turns_and_one_that_is_cancelled_gives_its_turn_back(reporting: RunningGrpc) -> None:
    """What waits to be read is bounded, and others are served meanwhile."""
    engine, client = reporting.engine, reporting.client()
    calls: list[Any] = [client.open(request_of(response=ALL)) for _ in range(N_MOST_CALLS)]
    wait_until(lambda: len(engine.generations) == N_MOST_CALLS)  # each has a turn; they come in any order
    calls.append(client.open(request_of(response=ALL)))
    wait_until(lambda: engine.n_admitted == N_MOST_CALLS + 1)
    plain = client.open(request_of())
    wait_until(lambda: len(engine.generations) == N_MOST_CALLS + 1)
    assert not engine.generations[-1].request.sampling.needs_distribution
    calls[0].cancel()
    wait_until(lambda: len(engine.generations) == N_MOST_CALLS + 2)
    for call in (*calls, plain):
        call.cancel()
    wait_until(lambda: engine.n_admitted == 0)


def test_an_abort_ends_a_call_that_waits_for_its_turn(reporting: RunningGrpc) -> None:
    """Control.Abort: in every phase, and the turns that there are stay with their calls."""
    engine, client = reporting.engine, reporting.client()
    calls: list[Any] = [client.open(request_of(response=ALL)) for _ in range(N_MOST_CALLS)]
    wait_until(lambda: len(engine.generations) == N_MOST_CALLS)
    request = request_of(response=ALL, request_id="mine")
    waiting = client.open(request)
    wait_until(lambda: engine.n_admitted == N_MOST_CALLS + 1)
    client.control("Abort", control_pb2.AbortResponse, request_ids=["mine"])
    responses = list(waiting)
    check_stream(request, responses)
    assert finish_of(responses).finish_reason == FinishInfo.ABORTED
    further = client.open(request_of(response=ALL))
    wait_until(lambda: engine.n_admitted == N_MOST_CALLS + 1)
    assert len(engine.generations) == N_MOST_CALLS + 1, "of which the last is the aborted one"
    calls[0].cancel()
    wait_until(lambda: len(engine.generations) == N_MOST_CALLS + 2)
    for call in (*calls, further):
        call.cancel()
    wait_until(lambda: engine.n_admitted == 0)


def test_an_answer_of_more_than_six_mebibytes_reaches_who_takes_as_much(
    scripted: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """GRPC-4: answers have no limit here; a client's own, which it has not raised, is told by it."""
    scripted.reports_distributions, scripted.vocabulary = True, 1 << 18
    served = start(scripted)
    request = request_of(response=ALL, stopping={"max_new_tokens": 3})
    usual = grpc.insecure_channel(served.target)
    served.channels.append(usual)
    for index, client in enumerate((served.client(), Client(usual, scripted))):
        thread = threading.Thread(target=speak, args=(scripted, index, 2))
        thread.start()
        if client.channel is usual:
            with pytest.raises(grpc.RpcError) as caught:
                client.generate_raw(request)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            response = client.generate_raw(request)
            assert response.ByteSize() > 6 << 20
            assert [len(infos.tokens) for infos in response.outputs.candidate_tokens] == [(1 << 18) - 1] * 2 + [0]
        thread.join()
