"""The default model over both protocols: the same tokens, in company and alone, seeded and greedy."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from helios.engine import Engine
from helios.server.grpc.schema import inference_pb2
from helios.settings import Settings
from tests.server.grpc.conftest import (
    Client,
    GenerateRequest,
    GenerateResponse,
    RunningGrpc,
    finish_of,
    ids_of,
    request_of,
    run_grpc,
    text_of,
)
from tests.server.grpc.validator import FinishInfo, check_stream

PROMPT = "The capital of France is"
SEEDED: dict[str, Any] = {"temperature": 0.75, "top_p": 0.875, "top_k": 40, "seed": 11}


@pytest.fixture(scope="module")
def served(default_core: Path) -> Iterator[RunningGrpc]:
    settings = Settings(port=0, grpc_port=0, context=512, cache_gb=0.1, drain_timeout=0.2)
    with Engine.start(default_core, settings) as engine, run_grpc(engine, settings) as server:
        yield server


@pytest.fixture
def client(served: RunningGrpc) -> Client:
    return served.client()


def completion(served: RunningGrpc, **fields: Any) -> Any:
    """`POST /v1/completions`: the choices, with their token ids."""
    body = json.dumps({"prompt": PROMPT, "return_token_ids": True, **fields}).encode()
    request = urllib.request.Request(f"{served.http_url}/v1/completions", body)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"]


def to_fields(options: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's names as those of the schema."""
    sampling = {name: options[name] for name in ("top_p", "top_k", "seed") if name in options}
    return {"temperature": options["temperature"], "sampling": sampling}


@pytest.mark.parametrize("options", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
def test_the_same_prompt_gives_the_same_tokens_over_http_and_grpc(
    served: RunningGrpc, client: Client, options: dict[str, Any]
) -> None:
    """GRPC-1: whole and streamed."""
    (choice,) = completion(served, max_tokens=24, **options)
    fields = {**to_fields(options), "stopping": {"max_new_tokens": 24}, "response": {"output_token_ids": True}}
    whole = client.generate(PROMPT, **fields)
    responses = client.stream(PROMPT, **fields)
    assert list(whole.outputs.token_ids) == choice["token_ids"] == ids_of(responses)
    assert whole.outputs.text == choice["text"] == text_of(responses)


def test_four_seeded_sequences_are_distinct_and_can_be_had_again(client: Client) -> None:
    """GRPC-1: as they were, together or each alone by its own seed."""
    fields: dict[str, Any] = {"temperature": 1.0, "response": {"output_token_ids": True}}
    both = [client.stream(PROMPT, sampling={"num_sequences": 4, "seed": 5}, **fields) for _ in range(2)]
    sequences = [[ids_of(responses, index) for index in range(4)] for responses in both]
    assert sequences[0] == sequences[1]
    assert len({tuple(ids) for ids in sequences[0]}) == 4
    alone = client.stream(PROMPT, sampling={"seed": 7}, **fields)
    assert ids_of(alone) == sequences[0][2]


def test_logprobs_are_the_same_over_both(served: RunningGrpc, client: Client) -> None:
    """GRPC-3: the sampled token's, and those of the likeliest."""
    (choice,) = completion(served, max_tokens=8, temperature=0, logprobs=3)
    options = {"output_logprobs": True, "output_candidates": {"top_n": 3}, "output_token_ids": True}
    outputs = client.generate(PROMPT, temperature=0.0, stopping={"max_new_tokens": 8}, response=options).outputs
    n_shown = len(choice["logprobs"]["token_logprobs"])
    assert outputs.logprobs[:n_shown] == pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-6)
    assert list(outputs.ranks) == [1] * len(outputs.ranks), "greedy takes the likeliest"
    assert all([info.rank for info in infos.tokens] == [2, 3] for infos in outputs.candidate_tokens)


def test_ranks_count_from_the_likeliest(client: Client) -> None:
    """GRPC-3: a sampled token that is not the likeliest has the likeliest among its candidates."""
    options = {"output_logprobs": True, "output_candidates": {"top_n": 5}, "output_token_ids": True}
    outputs = client.generate(
        PROMPT, temperature=1.5, sampling={"seed": 3}, stopping={"max_new_tokens": 40}, response=options
    ).outputs
    assert max(outputs.ranks) > 1
    for rank, logprob, infos in zip(outputs.ranks, outputs.logprobs, outputs.candidate_tokens, strict=True):
        assert len(infos.tokens) == (4 if rank <= 5 else 5)
        better = [info for info in infos.tokens if info.logprob > logprob]
        assert len(better) == min(rank - 1, 5)


def test_a_least_length_holds_and_a_stop_string_ends(client: Client) -> None:
    """GRPC-2: on the real sampler."""
    prompt = "Count: one, two, three,"
    (stopped,) = (client.generate(prompt, temperature=0.0, stopping={"stop_strings": [","], "max_new_tokens": 40}),)
    assert stopped.outputs.finish_info.stop_string == ","
    assert "," not in stopped.outputs.text
    longer = client.generate(
        prompt, temperature=0.0, stopping={"stop_strings": [","], "max_new_tokens": 40, "min_new_tokens": 8}
    )
    assert longer.outputs.num_tokens > stopped.outputs.num_tokens
    assert longer.outputs.text.startswith(stopped.outputs.text)


def test_a_form_is_kept(client: Client) -> None:
    """GRPC-2: structured output on the real sampler."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    outputs = client.generate(
        "Give a number: ", decoding={"json": json.dumps(schema)}, stopping={"max_new_tokens": 60}
    ).outputs
    if outputs.finish_info.finish_reason == FinishInfo.STOP:
        assert isinstance(json.loads(outputs.text)["n"], int)
    else:
        assert outputs.text.lstrip().startswith("{")


def test_a_crowd_gets_the_answers_that_each_would_get_alone(served: RunningGrpc, client: Client) -> None:
    """GRPC-1, GRPC-4: thirty streams at once on one channel, many more than slots."""
    prompts = [f"{PROMPT} number {number % 6}:" for number in range(30)]
    fields: dict[str, Any] = {"stopping": {"max_new_tokens": 6}, "response": {"output_token_ids": True}}
    alone = {prompt: ids_of(client.stream(prompt, **fields)) for prompt in set(prompts)}

    async def stream(channel: grpc.aio.Channel, prompt: str) -> list[Any]:
        method = channel.unary_stream(
            "/vllm.Inference/GenerateStream",
            request_serializer=GenerateRequest.SerializeToString,
            response_deserializer=GenerateResponse.FromString,
        )
        return [response async for response in method(request_of(prompt, **fields))]

    async def crowd() -> list[list[Any]]:
        async with grpc.aio.insecure_channel(served.target) as channel:
            return list(await asyncio.gather(*(stream(channel, prompt) for prompt in prompts)))

    for prompt, responses in zip(prompts, asyncio.run(crowd()), strict=True):
        check_stream(request_of(prompt, **fields), responses)
        assert ids_of(responses) == alone[prompt]
        assert finish_of(responses).num_output_tokens == len(alone[prompt])


def test_prompt_scores_are_the_same_over_both(served: RunningGrpc, client: Client) -> None:
    """GRPC-3: and the answer is that of an unscored prompt."""
    assert served.engine.scores_prompts
    (choice,) = completion(served, max_tokens=4, temperature=0, prompt_logprobs=2)
    options = {
        "prompt_logprobs": True,
        "prompt_candidates": {"top_n": 2},
        "prompt_token_ids": True,
        "output_token_ids": True,
    }
    response = client.generate(PROMPT, temperature=0.0, stopping={"max_new_tokens": 4}, response=options)
    info = response.prompt_info
    for position, entry in enumerate(choice["prompt_logprobs"][1:], start=1):
        own = entry[str(info.token_ids[position])]
        assert info.logprobs[position] == pytest.approx(own["logprob"], abs=1e-6)
        assert info.ranks[position] == own["rank"]
        others = {str(each.id): each.rank for each in info.candidate_tokens[position].tokens}
        assert others == {key: value["rank"] for key, value in entry.items() if key != str(info.token_ids[position])}
    assert list(response.outputs.token_ids) == choice["token_ids"]


def test_named_candidates_and_all_of_them_agree_with_the_likeliest(served: RunningGrpc, client: Client) -> None:
    """GRPC-3: whole and streamed, and the tokens are those of a request that asks for none."""
    assert served.engine.reports_distributions

    def ask(**selector: Any) -> GenerateResponse:
        options = {"output_logprobs": True, "output_token_ids": True, "output_candidates": selector}
        return client.generate(PROMPT, stopping={"max_new_tokens": 4}, response=options, **to_fields(SEEDED))

    top, whole = ask(top_n=20).outputs, ask(all=True).outputs
    (alone,) = completion(served, max_tokens=4, **SEEDED)
    assert list(top.token_ids) == list(whole.token_ids) == alone["token_ids"]
    for likeliest, every in zip(top.candidate_tokens, whole.candidate_tokens, strict=True):
        assert list(every.tokens[:19]) == list(likeliest.tokens[:19])
        assert len(every.tokens) == served.engine.vocabulary - 1
        assert [each.rank for each in every.tokens] == sorted(each.rank for each in every.tokens)
    named = ask(token_ids={"ids": [11, 40_000, 11]}).outputs
    for few, every in zip(named.candidate_tokens, whole.candidate_tokens, strict=True):
        assert list(few.tokens) == [each for each in every.tokens if each.id in (11, 40_000)]
    streamed = client.stream(
        PROMPT,
        stopping={"max_new_tokens": 4},
        response={"output_logprobs": True, "output_candidates": {"all": True}},
        **to_fields(SEEDED),
    )
    infos = [info for response in streamed for info in response.outputs.candidate_tokens]
    assert infos == list(whole.candidate_tokens)


def test_candidates_of_the_prompt_agree_with_the_likeliest_and_with_a_softmax(
    served: RunningGrpc, client: Client
) -> None:
    """GRPC-3, CACHE-3: by id and all of them, whatever the cache holds; every position's probabilities add up to one."""
    assert served.engine.reports_prompt_distributions

    def ask(selector: dict[str, Any], n_tokens: int | None = None, **fields: Any) -> inference_pb2.PromptInfo:
        options = {"prompt_logprobs": True, "prompt_token_ids": True, "prompt_candidates": selector}
        return client.generate(
            prompt[:n_tokens], response=options, stopping={"max_new_tokens": 1}, **fields
        ).prompt_info

    prompt = served.engine.tokenizer.encode(PROMPT * 9, allow_special=False)
    top = ask({"top_n": 20}, kv={"bypass_prefix_cache": True})
    ids = [11, 40_000, prompt[5]]
    named = ask({"token_ids": {"ids": ids}})
    whole = ask({"all": True}, 6)
    assert named == ask({"token_ids": {"ids": ids}})
    assert list(named.logprobs) == list(top.logprobs)
    assert list(whole.logprobs) == list(top.logprobs)[:6]
    for position in range(1, 6):
        own = (top.token_ids[position], top.logprobs[position], top.ranks[position])
        every = {each.id: each for each in whole.candidate_tokens[position].tokens}
        assert len(every) == served.engine.vocabulary - 1
        total = math.fsum(math.exp(each.logprob) for each in every.values()) + math.exp(own[1])
        assert total == pytest.approx(1, abs=1e-5)
        assert [every[each.id] for each in top.candidate_tokens[position].tokens] == list(
            top.candidate_tokens[position].tokens
        )
        assert list(named.candidate_tokens[position].tokens) == [
            every[token_id] for token_id in sorted(set(ids) - {own[0]}, key=lambda i: every[i].rank)
        ]
