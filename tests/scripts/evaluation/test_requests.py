"""The requests of the lm-eval harness, version 0.4.13, as it sends them to a local server, without the harness.

`scripts/evaluate` runs the harness itself; this keeps what it needs true on every run of the suite. Its clients are
`local-completions`, with tokens in batches or texts one by one, and `local-chat-completions`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.evaluation.harness import TASKS
from scripts.evaluation.main import MOST_DIFFERENCE, MOST_MARGIN_OF_A_TIE, MOST_SINGLE_DIFFERENCE, Witness
from tests.server.served_model import ServedModel, served_model

CHOICES = [json.loads(line) for line in (TASKS / "choice.jsonl").read_text(encoding="utf-8").splitlines()]
QUESTIONS = [json.loads(line) for line in (TASKS / "generation.jsonl").read_text(encoding="utf-8").splitlines()]
PAIRS = [(each["question"], " " + ending) for each in CHOICES for ending in each["endings"]]


@pytest.fixture(scope="module")
def model(default_core: Path) -> Iterator[ServedModel]:
    with served_model(default_core) as served:
        yield served


@pytest.fixture(scope="module")
def witness(model: ServedModel, default_gguf: Path) -> Witness:
    return Witness(default_gguf, model.tokenizer)


def encode(model: ServedModel, text: str) -> list[int]:
    """RemoteTokenizer.encode."""
    tokens: list[int] = model.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    return tokens


def encode_pair(model: ServedModel, context: str, continuation: str) -> tuple[list[int], int]:
    """TemplateLM._encode_pair: the whole, split where the context's tokens end."""
    return encode(model, context + continuation), len(encode(model, context))


def scored(prompt: Any) -> dict[str, Any]:
    """LocalCompletionsAPI._create_payload for log-likelihoods."""
    return {
        "model": None,
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }


def parsed(choice: Any, n_context: int) -> tuple[float, bool]:
    """LocalCompletionsAPI.parse_logprobs."""
    lists = choice["logprobs"]
    own, best = lists["token_logprobs"][n_context:-1], lists["top_logprobs"][n_context:-1]
    return sum(own), all(logprob == max(top.values()) for logprob, top in zip(own, best, strict=True))


def test_the_tokenizer_is_the_servers(model: ServedModel) -> None:
    """check_remote_tokenizer_support and RemoteTokenizer, with the header that it sends without a key."""
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=60)
    connection.request(
        "GET", "/tokenizer_info", headers={"Authorization": "Bearer ", "Content-Type": "application/json"}
    )
    information = json.loads(connection.getresponse().read())
    connection.close()
    (end,) = encode(model, information["eos_token"])
    assert end in model.engine.eos_tokens
    assert len(encode(model, information["bos_token"])) == 1
    assert model.post("/detokenize", {"tokens": encode(model, "a né 😀")}) == {"prompt": "a né 😀"}


def test_loglikelihoods_are_those_of_a_direct_computation(model: ServedModel, witness: Witness) -> None:
    """Item 6: batches of tokens and single texts give the same numbers, and they are near to exact ones."""
    pairs = [encode_pair(model, *pair) for pair in PAIRS]
    found: list[tuple[float, bool]] = []
    for first in range(0, len(pairs), 4):
        batch = pairs[first : first + 4]
        choices = model.post("/v1/completions", scored([tokens for tokens, _ in batch]))["choices"]
        assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
        for choice, (tokens, _) in zip(choices, batch, strict=True):
            assert len(choice["logprobs"]["token_logprobs"]) == len(tokens) + 1  # also where an end token was generated
        found += [parsed(choice, n_context) for choice, (_, n_context) in zip(choices, batch, strict=True)]
    for (context, continuation), (_, n_context), expected in list(zip(PAIRS, pairs, found, strict=True))[:4]:
        (choice,) = model.post("/v1/completions", scored(context + continuation))["choices"]
        assert parsed(choice, n_context) == expected
    differences = []
    for pair, (logprob, is_greedy) in list(zip(PAIRS, found, strict=True))[:12]:
        direct, n_tokens = witness.loglikelihood(*pair)
        differences.append(abs(logprob - direct) / n_tokens)
        assert not is_greedy or witness.least_margin(*pair) <= MOST_MARGIN_OF_A_TIE
    assert sum(differences) / len(differences) <= MOST_DIFFERENCE
    assert max(differences) <= MOST_SINGLE_DIFFERENCE
    likelier = [found[2 * i][0] < found[2 * i + 1][0] for i in range(len(CHOICES))]
    assert sum(index == each["answer"] for index, each in zip(likelier, CHOICES, strict=True)) >= 8


def test_generations_are_greedy_and_end_at_their_stops(model: ServedModel, witness: Witness) -> None:
    """LocalCompletionsAPI._create_payload for generate_until, with tokens in a batch and with texts."""
    fields = {"model": None, "max_tokens": 16, "temperature": 0, "stop": ["\n", ".", "<|im_end|>"], "seed": 1234}
    questions = [each["question"] for each in QUESTIONS[:4]]
    batch = model.post("/v1/completions", {"prompt": [encode(model, each) for each in questions], **fields})
    texts = [choice["text"] for choice in batch["choices"]]
    for question, text in zip(questions, texts, strict=True):
        (choice,) = model.post("/v1/completions", {"prompt": question, **fields})["choices"]
        assert choice["text"] == text
        assert not {"\n", "."} & set(text)
        assert witness.least_margin(question, text) <= MOST_MARGIN_OF_A_TIE


def test_conversations(model: ServedModel) -> None:
    """LocalChatCompletion._create_payload: no tokenizer, so no end text among the stops, and none at all without `until`."""
    for stop in ([], ["\n", "."]):
        messages = [{"role": "user", "content": QUESTIONS[0]["question"]}]
        fields = {"messages": messages, "model": None, "max_tokens": 16, "temperature": 0, "stop": stop, "seed": 1234}
        (choice,) = model.post("/v1/chat/completions", fields)["choices"]
        assert choice["message"]["content"]
