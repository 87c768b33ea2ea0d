"""The structured part of a request body, read into one frozen value: the answer's form, the tools, and how they may be called.

It knows JSON and the OpenAI and vLLM field names, no grammar and no tokens. A form that contradicts another, or that nobody could
enforce, is an InvalidValueError that names the field; what is read here needs no second look.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Form(enum.Enum):
    """How the answer's form is described."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of the answer text. `definition` is the schema, the pattern, the choices, the grammar's text or the tags."""

    form: Form
    definition: Any
    param: str


class ToolUse(enum.Enum):
    """Whether the answer may or must call tools."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is its JSON schema; `is_strict`: its calls must always fit."""

    name: str
    parameters: Any
    is_strict: bool
    description: str
    param: str


@dataclass(frozen=True, slots=True)
class StructuredRequest:
    """Everything of a request that says what the answer may be. `named`: the one tool that has to be called, None for any."""

    answer: AnswerForm | None = None
    tools: tuple[Tool, ...] = ()
    tool_use: ToolUse = ToolUse.NONE
    named: str | None = None
    is_parallel: bool = True

    @property
    def is_constrained(self) -> bool:
        """Whether tokens have to be masked."""
        raise NotImplementedError


def read_structured(body: Mapping[str, Any]) -> StructuredRequest:
    """Read `response_format`, `structured_outputs`, `tools`, `tool_choice` and `parallel_tool_calls`."""
    raise NotImplementedError
