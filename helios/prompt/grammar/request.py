"""The structured part of a request body, read into one frozen value: the answer's form, the tools, and how they may be called.

It knows JSON and the OpenAI and vLLM field names, no grammar and no tokens. A form that contradicts another, or that nobody could
read, is an InvalidValueError that names the field; whether a schema can be enforced is settled when it is compiled.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError

MAX_TOOLS = 128
MAX_CHOICES = 10_000
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


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
    """The form of the answer text. `definition` is the schema, the pattern, the choices, the grammar's text or the tags; `param` is
    the request field that holds it."""

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
    """A function that the model may call. `parameters` is its JSON schema, None without one; its calls must fit if `is_strict`."""

    name: str
    parameters: Any
    is_strict: bool
    param: str


@dataclass(frozen=True, slots=True)
class StructuredRequest:
    """Everything of a request that says what the answer may be. `named`: the one tool that has to be called, None for any.
    `is_parallel`: one answer may hold several calls."""

    answer: AnswerForm | None = None
    tools: tuple[Tool, ...] = ()
    tool_use: ToolUse = ToolUse.NONE
    named: str | None = None
    is_parallel: bool = True

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that the answer may call; none of the others is shown to the model."""
        return self.tools if self.tool_use is not ToolUse.NONE else ()

    @property
    def is_constrained(self) -> bool:
        """Whether tokens have to be masked."""
        if self.answer is not None or self.tool_use is ToolUse.REQUIRED:
            return True
        may_call = self.tool_use is ToolUse.AUTO
        return may_call and (not self.is_parallel or any(tool.is_strict for tool in self.tools))

    @property
    def param(self) -> str:
        """The request field that the constraint comes from."""
        return self.answer.param if self.answer is not None else "tools"


def read_structured(body: Mapping[str, Any]) -> StructuredRequest:
    """Read `response_format`, `structured_outputs`, `tools`, `tool_choice` and `parallel_tool_calls`."""
    answers = [form for form in (_response_format(body), _structured_outputs(body)) if form is not None]
    if len(answers) == 2:
        raise _refusal("structured_outputs", "cannot be given beside a response_format that is not text")
    tools = read_tools(body.get("tools"), _chat_tool)
    tool_use, named = read_tool_choice(body.get("tool_choice"), tools)
    is_parallel = body.get("parallel_tool_calls")
    if is_parallel is not None and not isinstance(is_parallel, bool):
        raise _refusal("parallel_tool_calls", "must be true or false")
    return StructuredRequest(answers[0] if answers else None, tools, tool_use, named, is_parallel is not False)


def _refusal(param: str, problem: str) -> InvalidValueError:
    return InvalidValueError(f"{param} {problem}", param=param)


def _object(value: Any, param: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refusal(param, "must be an object")
    return value


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise _refusal(param, "must be text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(param, "has a lone surrogate, which is not valid Unicode") from None
    return value


def _parsed(value: Any, param: str) -> Any:
    """JSON, or text that holds it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _refusal(param, f"is no JSON: {error}") from error


def _schema(value: Any, param: str) -> Any:
    if not isinstance(value, (dict, bool)):
        raise _refusal(param, "must be a JSON schema: an object, true or false")
    return value


def _schema_text(value: Any, param: str) -> Any:
    return _schema(_parsed(value, param), param)


def _response_format(body: Mapping[str, Any]) -> AnswerForm | None:
    if body.get("response_format") is None:
        return None
    table = _object(body["response_format"], "response_format")
    kind = table.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        if table.get("schema") is None:
            return AnswerForm(Form.JSON_OBJECT, None, "response_format")
        return AnswerForm(
            Form.JSON_SCHEMA, _schema(table["schema"], "response_format.schema"), "response_format.schema"
        )
    if kind == "json_schema":
        inner = _object(table.get("json_schema"), "response_format.json_schema")
        param = "response_format.json_schema.schema"
        if inner.get("strict") is not None and not isinstance(inner["strict"], bool):
            raise _refusal("response_format.json_schema.strict", "must be true or false")
        return AnswerForm(Form.JSON_SCHEMA, _schema(inner.get("schema"), param), param)
    if kind == "structural_tag":
        return AnswerForm(Form.STRUCTURAL_TAG, _structural_tag(table, "response_format"), "response_format")
    raise _refusal("response_format.type", "must be 'text', 'json_object', 'json_schema' or 'structural_tag'")


def _structured_outputs(body: Mapping[str, Any]) -> AnswerForm | None:
    place = "structured_outputs"
    if body.get(place) is None:
        return None
    table = _object(body[place], place)
    given = {name: value for name, value in table.items() if value is not None and value is not False}
    for name in given.keys() - set(STRUCTURED):
        raise _refusal(f"{place}.{name}"[:100], "is not supported")
    if len(given) != 1:
        raise _refusal(place, f"must hold exactly one of {', '.join(_READERS)}, not {len(given)}")
    name, value = next(iter(given.items()))
    return read_answer_form(name, value, place)


def read_answer_form(name: str, value: Any, place: str) -> AnswerForm:
    """The form that field `name` of `place` asks for, one of vLLM's six."""
    param = f"{place}.{name}"
    if name == "json_object":
        if value is not True:
            raise _refusal(param, "must be true or false")
        return AnswerForm(Form.JSON_OBJECT, None, param)
    form, read = _READERS[name]
    return AnswerForm(form, read(value, param), param)


def _choices(value: Any, param: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHOICES:
        raise _refusal(param, f"must be a list of 1 to {MAX_CHOICES:,} texts")
    return tuple(_text(each, f"{param}[{index}]") for index, each in enumerate(value))


def _structural_tag(value: Any, param: str) -> dict[str, Any]:
    """{"structures": [{"begin", "schema", "end"}], "triggers": [...]}, each tag behind one of the triggers."""
    table = _object(_parsed(value, param), param)
    triggers, structures = table.get("triggers"), table.get("structures")
    if not isinstance(triggers, list) or not 1 <= len(triggers) <= MAX_TOOLS:
        raise _refusal(f"{param}.triggers", f"must be a list of 1 to {MAX_TOOLS} texts")
    if not isinstance(structures, list) or not 1 <= len(structures) <= MAX_TOOLS:
        raise _refusal(f"{param}.structures", f"must be a list of 1 to {MAX_TOOLS} tags")
    texts = [_text(each, f"{param}.triggers[{index}]") for index, each in enumerate(triggers)]
    tags = []
    for index, each in enumerate(structures):
        place = f"{param}.structures[{index}]"
        tag = _object(each, place)
        begin = _text(tag.get("begin"), f"{place}.begin")
        if not any(begin.startswith(trigger) for trigger in texts):
            raise _refusal(f"{place}.begin", "must begin with one of the triggers")
        end = _text(tag.get("end"), f"{place}.end") if tag.get("end") else ""
        tags.append({"begin": begin, "schema": _schema(tag.get("schema", True), f"{place}.schema"), "end": end})
    return {"structures": tags, "triggers": list(dict.fromkeys(texts))}


_READERS: Mapping[str, tuple[Form, Callable[[Any, str], Any]]] = {
    "json": (Form.JSON_SCHEMA, _schema_text),
    "regex": (Form.REGEX, _text),
    "choice": (Form.CHOICE, _choices),
    "grammar": (Form.GRAMMAR, _text),
    "structural_tag": (Form.STRUCTURAL_TAG, _structural_tag),
}
STRUCTURED = (*_READERS, "json_object")  # what `structured_outputs` can hold, one of them


def read_tools(value: Any, read: Callable[[Mapping[str, Any], str], Tool]) -> tuple[Tool, ...]:
    """The `tools` of a body. `read` makes one of an object, given its place."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise _refusal("tools", f"must be a list of at most {MAX_TOOLS} functions")
    tools = tuple(read(_object(each, f"tools[{index}]"), f"tools[{index}]") for index, each in enumerate(value))
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            place = tool.param.rpartition(".")[0]
            raise _refusal(f"{place}.name", f"is {tool.name!r} for the second time")
        names.add(tool.name)
    return tools


def _chat_tool(table: Mapping[str, Any], place: str) -> Tool:
    if table.get("type") != "function":
        raise _refusal(f"{place}.type", "must be 'function'")
    return read_tool(_object(table.get("function"), f"{place}.function"), f"{place}.function")


def read_tool(function: Mapping[str, Any], place: str, schema_name: str = "parameters") -> Tool:
    """The function described by an object of the body. `schema_name` is its field for the schema of the arguments."""
    name = function.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise _refusal(f"{place}.name", "must be 1 to 128 letters, digits, underscores, dots, colons or hyphens")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _refusal(f"{place}.strict", "must be true or false")
    param = f"{place}.{schema_name}"
    parameters = function.get(schema_name)
    return Tool(name, None if parameters is None else _object(parameters, param), strict is True, param)


def read_tool_choice(value: Any, tools: tuple[Tool, ...]) -> tuple[ToolUse, str | None]:
    """Whether tools may or must be called, and the one that must; `value` as chat has it."""
    if value is None or value == "auto":
        return (ToolUse.AUTO if tools else ToolUse.NONE), None
    if value == "none":
        return ToolUse.NONE, None
    if not tools:
        raise _refusal("tool_choice", "asks for a call, but there are no tools")
    if value == "required":
        return ToolUse.REQUIRED, None
    if isinstance(value, dict) and value.get("type") == "function" and isinstance(value.get("function"), dict):
        name = value["function"].get("name")
        if name not in [tool.name for tool in tools]:
            raise _refusal("tool_choice", f"names {str(name)[:130]!r}, which is none of the tools")
        return ToolUse.REQUIRED, str(name)
    raise _refusal("tool_choice", "must be 'none', 'auto', 'required' or a named function")
