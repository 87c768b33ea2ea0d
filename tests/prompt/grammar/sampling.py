"""Answers drawn straight from a constraint: any allowed token, the longest, or the strangest."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ImageLayout, ImagePreparation, ReasoningSyntax, ToolSyntax
from helios.contract.frontend import AssistantBoundary, Frontend, Markers, ReasoningMarkers, ToolMarkers
from helios.prompt.grammar.constraint import GrammarConstraint
from helios.tokenizer.tokenizer import Tokenizer

Choice = Callable[[NDArray[np.int64]], int]

HERMES = ToolMarkers(Markers("<tool_call>", "</tool_call>", 1, 1, 1, 1), "", "\n", "")
THINK = ReasoningMarkers(Markers("<think>", "</think>", 0, 1, 1, 2), ())
CHAT = AssistantBoundary("<|im_start|>assistant\n", "<|im_end|>", "", "")


def frontend(
    *,
    tool_markers: ToolMarkers | None = None,
    reasoning_markers: ReasoningMarkers | None = None,
    eos_tokens: tuple[int, ...] = (2,),
) -> Frontend:
    """Calls as JSON in tags and reasoning between think tags, where their markers are given."""
    return Frontend(
        tool_syntax=ToolSyntax.JSON_TAGS if tool_markers else ToolSyntax.NONE,
        reasoning_syntax=ReasoningSyntax.THINK_TAGS if reasoning_markers else ReasoningSyntax.NONE,
        image_preparation=ImagePreparation.NONE,
        image_layout=ImageLayout.NONE,
        eos_tokens=eos_tokens,
        bos_text="",
        eos_text="",
        adds_bos=False,
        tool_markers=tool_markers,
        reasoning_markers=reasoning_markers,
        assistant=CHAT if tool_markers or reasoning_markers else None,
        prefix_boundaries=(),
        image_tokens=None,
    )


def allowed(constraint: GrammarConstraint) -> NDArray[np.int64]:
    """The ids of the allowed tokens."""
    return np.flatnonzero(np.unpackbits(constraint.mask().view(np.uint8), bitorder="little"))


def longest(tokenizer: Tokenizer) -> Choice:
    return _most(tokenizer, len)


def strangest(tokenizer: Tokenizer) -> Choice:
    """Parts of characters, blanks, quotes, signs and exponents before anything else."""
    odd = frozenset(range(33)) | frozenset(range(127, 256)) | frozenset(b"\\\"-+eE<'")
    return _most(tokenizer, lambda piece: sum(byte in odd for byte in piece))


def anyone(seed: int) -> Choice:
    source = random.Random(seed)
    return lambda ids: int(source.choice(ids))


def _most(tokenizer: Tokenizer, worth: Callable[[bytes], int]) -> Choice:
    table = tokenizer.byte_table(skip_special=False)
    worths = np.array([worth(piece) * len(table) + token_id for token_id, piece in enumerate(table)])
    return lambda ids: int(ids[worths[ids].argmax()])


def drawn(
    constraint: GrammarConstraint, choose: Choice, eos_tokens: tuple[int, ...], *, n_most: int, seed: int = 0
) -> tuple[list[int], bool]:
    """The tokens of an answer, and whether it ended. Where it may end it does at every other chance."""
    ends = random.Random(seed)
    tokens: list[int] = []
    for _ in range(n_most):
        ids = allowed(constraint)
        may_end = np.isin(ids, eos_tokens)
        assert may_end.sum() == (len(eos_tokens) if constraint.is_complete else 0)
        others = ids[~may_end]
        if constraint.is_complete and (not len(others) or ends.random() < 0.5):
            return tokens, True
        tokens.append(choose(others))
        constraint.advance(tokens[-1])
    return tokens, False


def text_of(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Their text, which must be whole characters."""
    return b"".join(map(tokenizer.token_bytes, tokens)).decode("utf-8")


def refused_at(constraint: GrammarConstraint, tokens: list[int]) -> int | None:
    """The index of the first token that is not allowed, None when all are."""
    for index, token_id in enumerate(tokens):
        if token_id not in allowed(constraint):
            return index
        constraint.advance(token_id)
    return None
