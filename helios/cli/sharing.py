"""Measurements of prompts that share their beginning, which is new in every measurement, so nothing is left from the one before.

It knows a server only through a Workload.
"""

from __future__ import annotations

from helios.cli.figures import CHAT_ANSWER, CHAT_PROMPT, CHAT_QUESTION, CHATS, PREFIX_PROMPT, PREFIX_QUESTION
from helios.cli.timeline import Timeline
from helios.cli.workload import Workload

SHARING_FIGURES = ("prefix_ttft", "chats_32")


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
