"""Fields in combinations that are drawn by chance: an answer is the same whole, streamed, among others and over HTTP, and it ends
where its own tokens say.
"""

from __future__ import annotations

import codecs
import json
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helios.engine import Engine
from helios.server.grpc.schema import inference_pb2
from helios.settings import Settings
from tests.server.grpc.conftest import Client, GenerateRequest, RunningGrpc, finish_of, ids_of, run_grpc, text_of
from tests.server.grpc.validator import FinishInfo, check_stream, check_whole

N_DRAWN, N_AT_ONCE = 32, 8
CONTEXT = 256
PROMPTS = ["The capital of France is", "Count: one, two, three,", "Grüße aus Köln! 你好 🙂 ", "Say yes or no: "]
STOPS = [",", ".", " ", " the", "e", "\n", "is", "aris", "é", "<|im_end|>", "}", "1", " a", "ü"]
FORMS: list[dict[str, Any]] = [
    {"json": json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})},
    {"regex": "[0-9]{1,4}"},
    {"choice": {"choices": ["yes", "no", "née"]}},
    {"grammar": 'start: "a"+'},
    {"json_object": True},
    {"json_object": False},
]


@pytest.fixture(scope="module")
def served(default_core: Path) -> Iterator[RunningGrpc]:
    """Its cache is so small that requests take pages and slots from one another."""
    settings = Settings(port=0, grpc_port=0, context=CONTEXT, cache_gb=0.01, max_active=4, drain_timeout=0.2)
    with Engine.start(default_core, settings) as engine, run_grpc(engine, settings) as server:
        yield server


def drawn(random: Random, engine: Engine) -> GenerateRequest:
    """A request that nobody would refuse."""

    def some(chance: float, **fields: Any) -> dict[str, Any]:
        return fields if random.random() < chance else {}

    prompt = engine.tokenizer.encode(random.choice(PROMPTS) * random.choice([1, 1, 12]), allow_special=False)
    form = random.choice(FORMS) if random.random() < 0.3 else {}
    n_most = random.choice([1, 2, 8, 24])
    common = engine.tokenizer.encode(" ".join(PROMPTS), allow_special=False)
    ends = [*engine.eos_tokens, *random.sample(common, 12)]
    return GenerateRequest(
        token_ids={"ids": prompt},
        sampling={"seed": random.randrange(100), **some(0.5, top_k=20), **some(0.3, top_p=0.9), **some(0.2, min_p=0.1)},
        decoding={
            **form,
            **some(0.2, presence_penalty=0.5),
            **some(0.2, repetition_penalty=1.3),
            **some(0.2, logit_bias={random.choice(ends): random.choice([-100.0, 5.0])}),
            **(some(0.2, allowed_token_ids=common) if not form else {}),
        },
        stopping={
            "max_new_tokens": n_most,
            **some(0.4, min_new_tokens=random.randrange(n_most + 1)),
            **some(0.5, stop_token_ids=ends),
            **some(0.5, stop_strings=random.sample(STOPS, random.choice([1, 6]))),
            **some(0.4, include_stop_strings=True),
            **(some(0.2, ignore_eos=True) if not form else {}),
        },
        response={
            "output_token_ids": True,
            **some(0.4, output_logprobs=True, output_candidates={"top_n": 3}),
            **some(0.3, prompt_logprobs=True, prompt_candidates={"token_ids": {"ids": ends}}),
            **some(0.3, skip_special_tokens=False),
        },
        kv={**some(0.2, bypass_prefix_cache=True), **some(0.2, cache_salt="mine")},
        **some(0.7, temperature=random.choice([0.0, 0.8, 1.5])),
        **some(0.2, truncate_prompt_tokens=random.choice([1, 4])),
        **some(0.2, priority=random.choice([-1, 1])),
        **some(0.3, session_id=random.choice("ab")),
    )


def check_ending(request: GenerateRequest, output: inference_pb2.SequenceOutput, engine: Engine) -> None:
    """The text and the finish that these tokens have by the words of the schema, told from all of them at once."""
    stopping, tokens, finish = request.stopping, list(output.token_ids), output.finish_info
    eos_tokens = set() if stopping.ignore_eos else set(engine.eos_tokens)
    endings = eos_tokens | set(stopping.stop_token_ids)
    is_special_skipped = request.response.skip_special_tokens or not request.response.HasField("skip_special_tokens")
    table = engine.tokenizer.byte_table(skip_special=is_special_skipped)

    def text(tokens: Sequence[int]) -> tuple[str, str]:
        """And the stop string in it."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = [*(decoder.decode(table[token]) for token in tokens), decoder.decode(b"", True)]
        unwatched, watched = (
            "".join(part) for part in (pieces[: stopping.min_new_tokens], pieces[stopping.min_new_tokens :])
        )
        found = [
            (watched.index(stop) + len(stop), -len(stop), stop) for stop in stopping.stop_strings if stop in watched
        ]
        end, _, stop = min(found, default=(len(watched), 0, ""))
        return unwatched + watched[: end if stopping.include_stop_strings else end - len(stop)], stop

    *earlier, last = tokens
    assert not endings.intersection(earlier)
    assert text(earlier)[1] == ""
    expected, stop = text(tokens if last not in endings or stopping.include_stop_strings else earlier)
    assert output.text == expected
    kind = finish.WhichOneof("stop_reason")
    reason = None if kind is None else (kind, getattr(finish, kind))
    if last in eos_tokens:
        assert reason == ("eos_token_id", last)
    elif last in endings:
        assert reason == ("stop_token_id", last)
    elif stop:
        assert reason == ("stop_string", stop)
    else:
        assert (finish.finish_reason, reason) == (FinishInfo.LENGTH, None)
        assert len(tokens) == min(stopping.max_new_tokens, CONTEXT - len(request.token_ids.ids))


def check_over_http(request: GenerateRequest, output: inference_pb2.SequenceOutput, served: RunningGrpc) -> None:
    """The same by a completion, where that has words for it."""
    stopping, decoding, sampling = request.stopping, request.decoding, request.sampling
    form = (
        None
        if decoding.HasField("json_object") and not decoding.json_object
        else decoding.WhichOneof("structured_output")
    )
    if (
        stopping.min_new_tokens
        or stopping.include_stop_strings
        or decoding.allowed_token_ids
        or request.truncate_prompt_tokens
        or len(stopping.stop_strings) > 4
        or (stopping.stop_strings and (form or stopping.stop_token_ids))
        or request.response.HasField("skip_special_tokens")
    ):
        return
    body = {
        "prompt": list(request.token_ids.ids),
        "temperature": request.temperature,
        "seed": sampling.seed,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p or 1,
        "min_p": sampling.min_p,
        "presence_penalty": decoding.presence_penalty,
        "repetition_penalty": decoding.repetition_penalty or 1,
        "logit_bias": {str(token_id): bias for token_id, bias in decoding.logit_bias.items()},
        "max_tokens": stopping.max_new_tokens,
        "stop": list(stopping.stop_strings),
        "stop_token_ids": list(stopping.stop_token_ids),
        "ignore_eos": stopping.ignore_eos,
        "return_token_ids": True,
    }
    if form is not None:
        body["structured_outputs"] = {
            form: list(decoding.choice.choices) if form == "choice" else getattr(decoding, form)
        }
    http_request = urllib.request.Request(f"{served.http_url}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(http_request) as response:
        (choice,) = json.load(response)["choices"]
    assert (choice["token_ids"], choice["text"]) == (list(output.token_ids), output.text)
    assert (choice["finish_reason"] == "length") == (output.finish_info.finish_reason == FinishInfo.LENGTH)


def streamed(client: Client, request: GenerateRequest) -> list[tuple[list[int], str, FinishInfo]]:
    """Each sequence."""
    responses = list(client.open(request))
    check_stream(request, responses)
    return [
        (ids_of(responses, index), text_of(responses, index), finish_of(responses, index))
        for index in range(request.sampling.num_sequences or 1)
    ]


def check_combination(random: Random, served: RunningGrpc, client: Client) -> None:
    request = drawn(random, served.engine)
    try:
        whole = client.generate_raw(request)
        output = whole.outputs
        check_whole(request, whole)
        check_ending(request, output, served.engine)
        check_over_http(request, output, served)
        alone = (list(output.token_ids), output.text, output.finish_info)
        assert streamed(client, request) == [alone]
        request.sampling.num_sequences = 2
        first, second = streamed(client, request)
        request.sampling.num_sequences = 0
        request.sampling.seed += 1
        assert first == alone
        assert [second] == streamed(client, request)
    except Exception as error:
        error.add_note(str(request))
        raise


def test_fields_in_combination_do_what_each_says(served: RunningGrpc, seeds: Sequence[int]) -> None:
    """GRPC-1, GRPC-2, GRPC-3: among others, which take slots and pages from them."""
    client = served.client()
    for seed in seeds:
        randoms = [Random(f"{seed} {number}") for number in range(N_DRAWN)]
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            list(pool.map(lambda random: check_combination(random, served, client), randoms))
