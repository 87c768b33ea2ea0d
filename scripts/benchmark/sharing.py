"""Measurements of a server in company: prompts that share their beginning, and a long prompt beside a running stream.

It knows a server only through a Workload. Shared beginnings are new in every measurement, so nothing is left from the one before.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise

from helios.cli.figures import (
    CHAT_ANSWER,
    CHAT_PROMPT,
    CHAT_QUESTION,
    CHATS,
    LONG_PROMPT,
    PREFIX_PROMPT,
    PREFIX_QUESTION,
)
from helios.cli.timeline import Timeline
from helios.cli.workload import Workload
from helios.errors import RemoteError

SHARING_FIGURES = ("prefix_ttft", "chats_32")
STREAM_PROMPT = 32
STREAM_TOKENS = 1000  # enough to go on until a long prompt has been read
STREAM_LEAD_S = 0.5  # the stream is decoding by then


class SharedPrefixes:
    """Chats whose system messages are the same and whose questions are not."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._template_tokens = workload.overhead(workload.words(CHAT_QUESTION)) - CHAT_QUESTION

    def take(self, name: str) -> float:
        """The figure called `name`, one of SHARING_FIGURES."""
        return self.prefix_first_token_s() if name == "prefix_ttft" else self.chats_tokens_per_s()

    def prefix_first_token_s(self) -> float:
        """Time to first token of the second of two chats."""
        system = self._system(PREFIX_PROMPT, PREFIX_QUESTION)
        for _ in range(2):
            (timeline,) = self._ask(system, 1, PREFIX_PROMPT, PREFIX_QUESTION, 1)
        return timeline.first_token_s

    def chats_tokens_per_s(self) -> float:
        """Answer tokens of all chats divided by the time from the first request to the last token."""
        system = self._system(CHAT_PROMPT, CHAT_QUESTION)
        timelines = self._ask(system, CHATS, CHAT_PROMPT, CHAT_QUESTION, CHAT_ANSWER)
        began_ns = min(timeline.started_ns for timeline in timelines)
        ended_ns = max(timeline.event_ns[-1] for timeline in timelines)
        return sum(timeline.n_output_tokens for timeline in timelines) / (ended_ns - began_ns) * 1e9

    def _system(self, n_prompt_tokens: int, n_question_words: int) -> str:
        return self._workload.words(n_prompt_tokens - n_question_words - self._template_tokens)

    def _ask(
        self, system: str, n_chats: int, n_prompt_tokens: int, n_question_words: int, n_new_tokens: int
    ) -> list[Timeline]:
        workload = self._workload
        bodies = [workload.body(system, workload.words(n_question_words), n_new_tokens) for _ in range(n_chats)]
        return workload.answer(bodies, n_prompt_tokens)


def largest_gap_s(workload: Workload) -> float:
    """The largest gap between two tokens of a stream while a long prompt is read. Raises RemoteError when they did not overlap."""
    streamed: list[Timeline] = []
    running = threading.Thread(target=lambda: streamed.extend(workload.run(1, STREAM_PROMPT, STREAM_TOKENS)))
    running.start()
    try:
        time.sleep(STREAM_LEAD_S)
        (prompt,) = workload.run(1, LONG_PROMPT, 1)
    finally:
        running.join()
    if not streamed:
        raise RemoteError("the running stream failed")
    return gap_within_s(streamed[0], prompt.started_ns, prompt.event_ns[0])


def gap_within_s(stream: Timeline, began_ns: int, ended_ns: int) -> float:
    """The largest gap between two events of a stream that touches the time from `began_ns` to `ended_ns`."""
    times = stream.event_ns
    gaps = [end - start for start, end in pairwise(times) if end > began_ns and start < ended_ns]
    if not gaps or times[0] > began_ns or times[-1] < ended_ns:
        raise RemoteError("the stream was not running all the while that the prompt was read")
    return max(gaps) / 1e9
