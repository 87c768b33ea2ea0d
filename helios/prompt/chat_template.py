"""A conversation rendered by the model's own Jinja template and turned into tokens.

It knows no HTTP, no limits and no model names. The template runs in a sandbox without host objects; what it spells as control
tokens becomes control tokens, and what the messages contain never does, however it is spelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from helios.errors import ContractError, InvalidValueError
from helios.prompt.shield import ControlSpellings, Shield
from helios.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is one of the known ones; `content` is anybody's text."""

    role: str
    content: str


class ChatTemplate:
    """The compiled template of one model. Safe to use from several threads; `clock` tells it the date."""

    def __init__(
        self, source: str, tokenizer: Tokenizer, *, bos_text: str, eos_text: str, clock: Callable[[], datetime]
    ) -> None:
        self._source = source
        self._tokenizer = tokenizer
        self._spellings = ControlSpellings(_control_spellings(tokenizer))
        self._constants = {"bos_token": bos_text, "eos_token": eos_text, "tools": None}
        environment = _environment(clock)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ContractError(f"the chat template does not compile, line {error.lineno}: {error.message}") from error

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The prompt tokens of a conversation that the assistant is to continue."""
        shield = Shield(self._spellings, (message.content for message in messages), self._source)
        covered = [{"role": message.role, "content": shield.cover(message.content)} for message in messages]
        text = self._render(covered)
        if not shield.is_used:
            return self._tokenizer.encode(text, allow_special=True)
        tokens: list[int] = []
        for index, piece in enumerate(self._spellings.split(text)):
            is_control = index % 2 == 1
            tokens += self._tokenizer.encode(piece if is_control else shield.uncover(piece), allow_special=is_control)
        return tokens

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._constants)
        except _RefusalError as refusal:
            raise InvalidValueError(str(refusal)[:500], param="messages") from refusal
        except Exception as error:  # a template is a program from the core: what it raises can be anything
            raise InvalidValueError(
                f"the chat template cannot render these messages: {str(error)[:500]}", param="messages"
            ) from error


class _RefusalError(Exception):
    """The template called `raise_exception`: it does not take such a conversation."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's words for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012  (so declared by Jinja)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _control_spellings(tokenizer: Tokenizer) -> Iterator[str]:
    for token_id in range(tokenizer.vocabulary_size):
        if tokenizer.is_special(token_id):
            yield tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")


def _environment(clock: Callable[[], datetime]) -> jinja2.Environment:
    """What Hugging Face gives a template, and nothing more."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
    environment.filters["tojson"] = _to_json
    return environment


def _raise_exception(message: object = "") -> None:
    raise _RefusalError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on: neither HTML-escaped nor ASCII-only, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
