"""Random requests, good and bad, and where each client vanishes. Pure: the same seed and index make the same shape."""

from __future__ import annotations

import enum
import json
import random
from dataclasses import dataclass
from typing import Any

from helios.cli.workload import WORDS

HTTP_PATH = "/v1/chat/completions"


class Drop(enum.Enum):
    """Where the client closes its connection. NEVER reads the answer to its end."""

    NEVER = "never"
    CONNECTED = "before it sends a byte"
    IN_HEAD = "inside its headers"
    IN_BODY = "inside its body"
    SENT = "as soon as the request is sent"
    FIRST_BYTES = "at the first bytes of the answer"
    IN_ANSWER = "some bytes into the answer"


@dataclass(frozen=True, slots=True)
class Shape:
    """One request as bytes. `is_good` means that the server has to accept it; `body` is then what was asked."""

    head: bytes
    content: bytes
    body: dict[str, Any]
    is_good: bool
    drop: Drop
    is_reset: bool  # vanish with a reset rather than an orderly close
    answer_bytes: int  # how much IN_ANSWER reads first


def random_shape(seed: int, index: int, model: str, context_tokens: int) -> Shape:
    """The shape number `index` of a run."""
    dice = random.Random(f"{seed}/{index}")
    body = _good_body(dice, model)
    is_good = dice.random() >= 0.15
    path, content = HTTP_PATH, json.dumps(body).encode()
    if not is_good:
        path, content = _spoil(dice, body, context_tokens)
    drop = Drop.NEVER if dice.random() >= 0.3 else dice.choice([drop for drop in Drop if drop is not Drop.NEVER])
    return Shape(
        head=request_head(path, len(content)),
        content=content,
        body=body,
        is_good=is_good,
        drop=drop,
        is_reset=dice.random() < 0.5,
        answer_bytes=dice.randint(1, 4000),
    )


def request_head(path: str, content_bytes: int) -> bytes:
    """The headers of one POST that closes its connection."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: soak",
        "Content-Type: application/json",
        f"Content-Length: {content_bytes}",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _good_body(dice: random.Random, model: str) -> dict[str, Any]:
    n_words = dice.randint(1, 60) if dice.random() < 0.9 else dice.randint(100, 300)
    text = " ".join(dice.choices(WORDS, k=n_words))
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": dice.randint(1, 24),
        "temperature": 0 if dice.random() < 0.4 else round(dice.uniform(0.1, 1.5), 2),
        "stream": dice.random() < 0.6,
    }
    options: dict[str, Any] = {
        "n": dice.randint(2, 3),
        "top_p": round(dice.uniform(0.1, 1.0), 2),
        "top_k": dice.randint(1, 100),
        "min_p": round(dice.uniform(0.0, 0.3), 2),
        "frequency_penalty": round(dice.uniform(-1, 1), 2),
        "presence_penalty": round(dice.uniform(-1, 1), 2),
        "repetition_penalty": round(dice.uniform(1.0, 1.5), 2),
        "seed": dice.getrandbits(31),
        "logit_bias": {str(dice.randint(10, 40000)): dice.randint(-100, 10)},
        "stop": dice.sample([".", " the", "\n", "story", "zzz"], k=dice.randint(1, 3)),
        "stream_options": {"include_usage": True},
    }
    for name, value in options.items():
        if dice.random() < 0.15 and (name != "stream_options" or body["stream"]):
            body[name] = value
    return body


def _spoil(dice: random.Random, body: dict[str, Any], context_tokens: int) -> tuple[str, bytes]:
    """A path and content that the server has to refuse with a 4xx status."""
    wrong: list[dict[str, Any]] = [
        {"model": "no-such-model"},
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"role": "nobody", "content": "x"}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": "word " * (context_tokens * 2)}]},
        {"max_tokens": -1},
        {"max_tokens": "many"},
        {"temperature": "hot"},
        {"temperature": -1},
        {"top_p": 7},
        {"n": 0},
        {"stop": 5},
        {"logit_bias": {"x": 1}},
        {"stream": "yes"},
    ]
    choice = dice.randrange(len(wrong) + 3)
    if choice < len(wrong):
        return HTTP_PATH, json.dumps(body | wrong[choice]).encode()
    whole = json.dumps(body).encode()
    return [
        (HTTP_PATH, whole[: dice.randint(0, len(whole) - 1)]),
        (HTTP_PATH, dice.randbytes(dice.randint(1, 200))),
        ("/v1/no/such/route", whole),
    ][choice - len(wrong)]
