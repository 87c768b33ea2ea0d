"""Requests for scheduler tests: strategies, host decisions with a memory, and what each request must yield in any company."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from helios.errors import InvalidValueError
from helios.scheduler.request import GenerationRequest, PromptScores, SamplingParameters
from tests.scheduler.hashing_device import MASK_WORDS, VOCABULARY, fold, next_token, score

CONTEXT = 96


@dataclass
class StopAfter:
    """A host stop with a memory: the n-th token, or one that is divisible, completes the text. Feeding a token twice moves it."""

    n_tokens: int
    divisor: int = 1000
    fed: list[int] = field(default_factory=list)

    def __call__(self, token: int) -> bool:
        self.fed.append(token)
        return len(self.fed) >= self.n_tokens or token % self.divisor == self.divisor - 1


@dataclass
class Rule:
    """A constraint with a memory: what it allows next depends on every token before. Fails after `n_most` tokens."""

    stride: int
    n_most: int = 1000
    fed: list[int] = field(default_factory=list)
    n_masks: int = 0

    def mask(self) -> NDArray[np.uint32] | None:
        self.n_masks += 1
        total = sum(self.fed) + len(self.fed)
        if total % 5 == 4:
            return None
        words = np.zeros(MASK_WORDS, np.uint32)
        for token in range(total % self.stride, VOCABULARY, self.stride):
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return words

    def advance(self, token_id: int) -> None:
        self.fed.append(token_id)
        if len(self.fed) >= self.n_most:
            raise InvalidValueError(f"the grammar gave up after {len(self.fed)} tokens")


def fresh(request: GenerationRequest) -> GenerationRequest:
    """The same request, with host decisions of its own."""
    return replace(request, host_stop=copy.deepcopy(request.host_stop), constraint=copy.deepcopy(request.constraint))


def tokens_alone(request: GenerationRequest, context_tokens: int = CONTEXT, *, is_recurrent: bool = False) -> list[int]:
    """What the request must yield in any company."""
    request = fresh(request)
    history = list(request.prompt_tokens)
    state = b""
    for token in history:
        state = fold(state, token)
    output: list[int] = []
    for _ in range(min(request.output_limit, context_tokens - len(history))):
        mask = request.constraint.mask() if request.constraint is not None else None
        token = next_token(history, state if is_recurrent else b"", request.sampling.seed, mask)
        output.append(token)
        history.append(token)
        state = fold(state, token)
        if token in request.eos_tokens or (request.host_stop is not None and request.host_stop(token)):
            break
        try:
            if request.constraint is not None:
                request.constraint.advance(token)
        except InvalidValueError:
            break
    return output


def scores_alone(request: GenerationRequest) -> list[PromptScores]:
    """The scores that come before its first token: none, or one event."""
    n_candidates, prompt = request.prompt_candidates, request.prompt_tokens
    if n_candidates is None:
        return []
    scores = [score(prompt[:at], prompt[at]) for at in range(1, len(prompt))]
    return [PromptScores(tuple(s._replace(candidates=s.candidates[:n_candidates]) for s in scores))]


host_stops = st.builds(StopAfter, st.integers(1, 12), st.sampled_from([7, 1000]))
constraints = st.builds(Rule, st.integers(2, 6), st.sampled_from([3, 1000, 1000, 1000]))

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=CONTEXT - 1).map(tuple)
requests = st.builds(
    GenerationRequest,
    prompt_tokens=prompts,
    output_limit=st.integers(1, 40),
    eos_tokens=st.sampled_from([(), (3,), tuple(range(16))]),
    sampling=st.builds(SamplingParameters, seed=st.integers(0, 3)),
    host_stop=st.one_of(st.none(), st.none(), st.none(), host_stops),
    constraint=st.one_of(st.none(), st.none(), st.none(), st.none(), constraints),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    prompt_candidates=st.sampled_from([None, None, None, 0, 3]),
)
