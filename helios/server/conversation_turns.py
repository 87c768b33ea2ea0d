"""Messages that are one turn, joined: other APIs give a turn in pieces that chat templates want whole.

It knows messages and no field of any request; what belongs together is the API's to say. Nothing is lost: texts are joined with a
blank line, calls in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from helios.prompt.conversation import Message

_BETWEEN = "\n\n"


def joined_turns(messages: Iterable[Message], is_one_turn: Callable[[Message, Message], bool]) -> list[Message]:
    """The messages, each joined to the turn before it where `is_one_turn(turn, message)`."""
    turns: list[Message] = []
    for message in messages:
        if turns and is_one_turn(turns[-1], message):
            turns[-1] = _joined(turns[-1], message)
        else:
            turns.append(message)
    return turns


def _joined(turn: Message, message: Message) -> Message:
    return dataclasses.replace(
        turn,
        content=_joined_texts(turn.content, message.content),
        reasoning=_joined_texts(turn.reasoning or "", message.reasoning or "") or None,
        tool_calls=turn.tool_calls + message.tool_calls,
    )


def _joined_texts(*texts: str) -> str:
    return _BETWEEN.join(text for text in texts if text)
