"""Where the prompt leaves the assistant's turn, and so where the grammar of an answer begins.

It knows no grammar: who asks for an answer without one loads none. The parts that follow are in `envelope.py`.
"""

from __future__ import annotations

import enum


class Opening(enum.Enum):
    """What of the turn is open already."""

    PLAIN = "plain"  # no assistant's turn: a raw prompt is completed
    EITHER = "either"  # nothing is open yet: reasoning may come first
    REASONING = "reasoning"  # inside reasoning
    ANSWER = "answer"  # reasoning is over or there is none; where an answer has markup of its own, it is open
