"""Where the prompt of a conversation may be cut, so that others go on from there: behind messages whose role has a rule (FE-4).

It knows the core's rules and its template, no cache. A cut is seen and not believed: the messages before it, rendered alone, are
what the whole prompt begins with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from helios.contract.enums import RenderingConstraint
from helios.contract.frontend import Frontend
from helios.errors import InvalidValueError
from helios.prompt.chat_template import ChatTemplate
from helios.prompt.conversation import Conversation, Message
from helios.tokenizer.tokenizer import Tokenizer


class PrefixBoundaries:
    """The rules of one core, for prompts that `template` makes. Each cut takes a rendering of its own."""

    def __init__(self, frontend: Frontend, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._rules = {role.name.lower(): constraint for role, constraint in frontend.prefix_boundaries}
        self._template = template
        self._tokenizer = tokenizer
        end = "" if frontend.assistant is None else frontend.assistant.message_end
        self._message_end = tokenizer.encode(end, allow_special=True)

    def of(self, conversation: Conversation, tokens: Sequence[int]) -> tuple[int, ...]:
        """Numbers of the prompt's `tokens`, ascending: those before the first cut, with which other conversations begin too, and
        before the last one, where the next prompt of this conversation goes on."""
        ends = [n for n, message in enumerate(conversation.messages, 1) if self._may_end(message)]
        cuts = {self._cut(conversation, n, tokens) for n in {*ends[:1], *ends[-1:]}}
        return tuple(sorted(cuts - {0}))

    def _may_end(self, message: Message) -> bool:
        rule = self._rules.get(message.role)
        return rule is not None and not (rule is RenderingConstraint.WITHOUT_REASONING and message.reasoning)

    def _cut(self, conversation: Conversation, n_messages: int, tokens: Sequence[int]) -> int:
        """Tokens of the first messages, 0 where the prompt does not begin with them or the rule does not hold."""
        messages = conversation.messages[:n_messages]
        beginning = dataclasses.replace(
            conversation, messages=messages, adds_generation_prompt=False, continues_final_message=False
        )
        try:
            first = self._template.encode(beginning)
        except InvalidValueError:  # not every beginning of a conversation is one that the template takes
            return 0
        if self._rules[messages[-1].role] is not RenderingConstraint.NONE and not self._is_closed(first):
            return 0
        return len(first) if len(first) < len(tokens) and list(tokens[: len(first)]) == first else 0

    def _is_closed(self, tokens: Sequence[int]) -> bool:
        """Whether a message's end marker is all that they end with, but for blanks."""
        n_marker = len(self._message_end)
        end = len(tokens)
        while end and self._tokenizer.token_bytes(tokens[end - 1]).isspace():
            end -= 1
        return bool(n_marker) and list(tokens[max(0, end - n_marker) : end]) == self._message_end
