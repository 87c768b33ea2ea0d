"""Structured requests to compiled grammars, for the tokens and the answer syntax of one model.

It knows the tokenizer and the frontend's syntax data, no request body and no scheduler. Compiling is native code without the
interpreter lock, bounded in size and steps; a compiled grammar serves any number of choices, each with a constraint of its own.
"""

from __future__ import annotations

import enum

from helios.contract.frontend import Frontend
from helios.prompt.grammar.constraint import GrammarConstraint
from helios.prompt.grammar.request import StructuredRequest
from helios.tokenizer.tokenizer import Tokenizer


class Opening(enum.Enum):
    """Where the prompt leaves the assistant's turn."""

    EITHER = "either"  # nothing is open yet: reasoning may come first
    REASONING = "reasoning"  # inside reasoning
    ANSWER = "answer"  # reasoning is over, or there is none


class CompiledGrammar:
    """A grammar that was accepted. Safe to use from several threads."""

    def start(self) -> GrammarConstraint:
        """A constraint at the beginning of the answer."""
        raise NotImplementedError


class Grammars:
    """Made once for an engine. `vocabulary` is the model's, which may be larger than the tokenizer's."""

    def __init__(self, tokenizer: Tokenizer, frontend: Frontend, vocabulary: int) -> None:
        raise NotImplementedError

    def compile(self, request: StructuredRequest, opening: Opening) -> CompiledGrammar | None:
        """The grammar of an answer, None where every token is allowed. InvalidValueError for what cannot be enforced."""
        raise NotImplementedError
