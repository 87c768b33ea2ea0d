"""Judging what came back: the soak's client believes no answer that is not whole."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from helios.cli.timeline import Answer
from scripts.soaking.client import judge
from scripts.soaking.shapes import Drop, Shape

GOOD = Shape(b"", b"", {"max_tokens": 4, "n": 2, "stream": False}, True, Drop.NEVER, False, 0)
STREAMED = dataclasses.replace(GOOD, body=GOOD.body | {"stream": True})
BAD = dataclasses.replace(GOOD, is_good=False)


def answer(body: bytes | dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, ((0, body if isinstance(body, bytes) else json.dumps(body).encode()),))


def whole(n_choices: int, n_tokens: int, finish: str | None = "length") -> Answer:
    choices = [{"index": index, "finish_reason": finish} for index in range(n_choices)]
    return answer({"choices": choices, "usage": {"completion_tokens": n_tokens}})


def streamed(*finished: int, end: bytes = b"data: [DONE]\n\n") -> Answer:
    events = [{"choices": [{"index": index, "finish_reason": "stop"}]} for index in finished]
    return answer(b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events) + end)


def test_whole_answers_are_answers() -> None:
    assert judge(GOOD, whole(2, 8)).kind == "answered"
    assert judge(STREAMED, streamed(1, 0)).kind == "answered"


@pytest.mark.parametrize(
    "given", [whole(1, 4), whole(2, 9), whole(2, 1), whole(2, 8, None), answer({}, 500), answer({}, 404)]
)
def test_a_good_request_wants_every_choice_finished_within_its_limit(given: Answer) -> None:
    assert judge(GOOD, given).kind == "wrong"


@pytest.mark.parametrize(
    "given", [streamed(0), streamed(0, 0), streamed(0, 1, end=b""), streamed(0, 1, 2), answer(b"")]
)
def test_a_stream_wants_every_choice_once_and_its_end(given: Answer) -> None:
    assert judge(STREAMED, given).kind == "wrong"


def test_busy_is_no_fault() -> None:
    assert judge(GOOD, answer({}, 429)).kind == "busy"


def test_a_bad_request_wants_a_4xx_with_a_message() -> None:
    assert judge(BAD, answer({"error": {"message": "no"}}, 400)).kind == "refused"
    assert judge(BAD, answer({"error": {"message": "no"}}, 500)).kind == "wrong"
    assert judge(BAD, whole(2, 8)).kind == "wrong"
