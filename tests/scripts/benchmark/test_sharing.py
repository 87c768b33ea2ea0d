"""The measurements in company: which prompts are sent, what counts as the gap, and what is no measurement at all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from helios.cli.figures import CHAT_ANSWER, CHAT_PROMPT, CHATS, LONG_PROMPT, PREFIX_PROMPT
from helios.cli.sharing import SHARING_FIGURES, SharedPrefixes
from helios.cli.streams import Endpoint
from helios.cli.timeline import Timeline
from helios.cli.workload import TASK, Workload
from helios.errors import RemoteError
from scripts.benchmark.contenders import CHAT_PREFIX_TOKENS, PREFIX_TOKENS
from scripts.benchmark.gap import gap_within_s, largest_gap_s

MS = 1_000_000
TEMPLATE_TOKENS = 13


class ScriptedEndpoint(Endpoint):
    """Counts a token a word and TEMPLATE_TOKENS more. A request starts at 0 ms and gets a token every 10 ms."""

    sent: list[Sequence[Mapping[str, Any]]]

    def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        return 200, b'{"data": [{"id": "scripted"}]}'

    def stream(self, bodies: Sequence[Mapping[str, Any]], timeout_s: float) -> list[Timeline]:
        self.sent.append(bodies)
        return [self._timeline(body) for body in bodies]

    def _timeline(self, body: Mapping[str, Any]) -> Timeline:
        n_words = sum(len(message["content"].split()) for message in body["messages"])
        times = tuple((index + 1) * 10 * MS for index in range(body["max_tokens"]))
        return Timeline(0, times, n_words + TEMPLATE_TOKENS, len(times), "")


@pytest.fixture
def workload() -> Workload:
    endpoint = ScriptedEndpoint("127.0.0.1", 1)
    object.__setattr__(endpoint, "sent", [])
    made = Workload(endpoint, seed=5)
    made.random = random.Random(7)
    return made


def sent(workload: Workload) -> list[Sequence[Mapping[str, Any]]]:
    endpoint = workload.endpoint
    assert isinstance(endpoint, ScriptedEndpoint)
    return endpoint.sent


def system_of(body: Mapping[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def question_of(body: Mapping[str, Any]) -> str:
    return str(body["messages"][1]["content"])


def test_the_second_of_two_chats_with_one_beginning_is_timed(workload: Workload) -> None:
    """Issue 4: a repeated prefix of 1,000 tokens, another question."""
    assert SharedPrefixes(workload).prefix_first_token_s() == 0.01
    (first,), (second,) = sent(workload)[-2:]
    assert system_of(first) == system_of(second)
    assert question_of(first) != question_of(second)
    n_tokens = len(system_of(first).split()) + len(question_of(first).split()) + TEMPLATE_TOKENS
    assert n_tokens == PREFIX_PROMPT
    assert PREFIX_PROMPT - len(question_of(first).split()) - TEMPLATE_TOKENS <= PREFIX_TOKENS < PREFIX_PROMPT


def test_chats_have_one_beginning_and_questions_of_their_own(workload: Workload) -> None:
    """Issue 4: 32 chats that share a system prompt; the time is that of all of them."""
    assert SharedPrefixes(workload).chats_tokens_per_s() == pytest.approx(CHATS * CHAT_ANSWER / (CHAT_ANSWER * 0.01))
    chats = sent(workload)[-1]
    assert len(chats) == CHATS
    assert len({system_of(body) for body in chats}) == 1
    assert len({question_of(body) for body in chats}) == CHATS
    assert CHAT_PREFIX_TOKENS < CHAT_PROMPT


def test_no_beginning_is_sent_in_two_measurements(workload: Workload) -> None:
    sharing = SharedPrefixes(workload)
    for name in SHARING_FIGURES * 2:
        sharing.take(name)
    systems = [system_of(bodies[0]) for bodies in sent(workload)[-6:]]
    assert len(set(systems)) == 4  # of which two were sent twice, by intent


def stream(*times_ms: int) -> Timeline:
    return Timeline(0, tuple(at * MS for at in times_ms), 1, len(times_ms), "")


def test_the_gap_is_the_largest_that_touches_the_prompts_time() -> None:
    """The gap before the prompt came and the one after it was read do not count, those across its edges do."""
    assert gap_within_s(stream(0, 400, 410, 450, 460, 900), 405 * MS, 455 * MS) == 0.04
    assert gap_within_s(stream(0, 100, 190, 200), 105 * MS, 195 * MS) == 0.09
    assert gap_within_s(stream(0, 100, 110, 190), 50 * MS, 105 * MS) == 0.1


@pytest.mark.parametrize(("began_ms", "ended_ms"), [(5, 50), (50, 500), (300, 400)])
def test_a_stream_that_did_not_run_all_the_while_is_no_measurement(began_ms: int, ended_ms: int) -> None:
    with pytest.raises(RemoteError, match="not running all the while"):
        gap_within_s(stream(10, 20, 100, 200), began_ms * MS, ended_ms * MS)


def test_a_long_prompt_is_sent_beside_a_stream(workload: Workload) -> None:
    """Issue 4: 4,000 tokens; the scripted server answers every token of both after 10 ms, which is the gap."""
    # The stream begins at 10 ms and the prompt at 0 ms by this clock: the overlap is refused, and both were sent.
    with pytest.raises(RemoteError, match="not running"):
        largest_gap_s(workload)
    (running,), (prompt,) = sent(workload)[-2:]
    assert running["max_tokens"] > 100
    assert len(system_of(prompt).split()) + len(TASK.split()) + TEMPLATE_TOKENS == LONG_PROMPT
    assert prompt["max_tokens"] == 1
