"""How each tool syntax writes calls, as grammars: what follows the opener, to the end of the last call.

It knows the tags of the syntaxes and enforceable parameter schemas, no reasoning and no content. What these grammars allow, the
parsers of helios/output read back as calls whose arguments fit the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helios.contract.enums import ToolSyntax
from helios.contract.frontend import ToolMarkers
from helios.errors import InvalidValueError
from helios.prompt.grammar.lark import LarkText, any_of, quoted
from helios.prompt.grammar.values import ValuePlace, alternatives, json_value, string_value

_NEVER_IN_NAMES = frozenset('<>"\n\r\t')
_OBJECT_WORDS = frozenset(("type", "properties", "required", "additionalProperties", "$defs"))


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool with the schema of its arguments as it is enforced. `param` names the request field of the schema."""

    name: str
    parameters: Mapping[str, Any]
    param: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a call in tags."""

    key: str
    schema: Any
    is_required: bool


def calls_behind_opener(
    lark: LarkText, syntax: ToolSyntax, markers: ToolMarkers, tools: Sequence[CallableTool], *, is_parallel: bool
) -> str:
    """An expression for what follows the opener of the first call, or of the section of calls."""
    pair = markers.call
    write = _BODIES[syntax]
    # Inside of a section its tags are lines of their own; around a single call the markers count their newlines themselves.
    line = markers.tag_separator if syntax in _IN_SECTION else ""
    begin = "\n" * pair.newlines_after_opener or line
    closer = lark.markup(("\n" * pair.newlines_before_closer or line) + pair.closer)
    first = lark.rule(any_of([write(lark, markers, tool, begin) for tool in tools]))
    if not is_parallel:
        return f"{first} {closer}"
    if syntax in _IN_SECTION:
        more = any_of([write(lark, markers, tool, markers.call_separator) for tool in tools])
    else:
        more = f"{closer} {lark.markup(markers.call_separator + pair.opener)} {first}"
    return f"{first} ({more})* {closer}"


def invocation(lark: LarkText, markers: ToolMarkers, tool: CallableTool, lead: str) -> str:
    """`lead` and one <PREFIXinvoke> element: DSML says of each value whether it is a string, ATEM leaves it to the schema."""
    prefix, line = section_prefix(markers.call.opener), markers.tag_separator
    end = f"</{prefix}parameter>{line}"
    place = ValuePlace(end, (f"<{prefix}parameter", f"</{prefix}"), tool.param)
    says_kind = prefix != "atem:"

    def written(parameter: Parameter) -> str:
        head = f'<{prefix}parameter name="{parameter.key}"'
        if says_kind:
            return _by_kind(lark, place, parameter, tool, (f'{head} string="true">', f'{head} string="false">'))
        return f"{lark.markup(head + '>')} {_by_schema(lark, place, parameter, tool)}"

    head = lark.markup(f'{lead}<{prefix}invoke name="{tool.name}">{line}')
    return f"{head} {_in_order(lark, tool, written)} {lark.markup(f'</{prefix}invoke>')}"


def section_prefix(opener: str) -> str:
    """What the tags of a section have in common: "atem:" of "<atem:function_calls>"."""
    return opener.removeprefix("<").removesuffix(">").rstrip("abcdefghijklmnopqrstuvwxyz_")


def _json_object(lark: LarkText, markers: ToolMarkers, tool: CallableTool, lead: str) -> str:
    parameters = dict(tool.parameters)
    definitions = parameters.pop("$defs", {})
    schema = {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    return f"{lark.markup(lead)} {lark.json({**schema, '$defs': definitions} if definitions else schema)}"


def _function_tags(lark: LarkText, markers: ToolMarkers, tool: CallableTool, lead: str) -> str:
    line = markers.tag_separator
    place = ValuePlace(f"{line}</parameter>{line}", ("<parameter=", "</function>"), tool.param)

    def written(parameter: Parameter) -> str:
        return f"{lark.markup(f'<parameter={parameter.key}>{line}')} {_by_schema(lark, place, parameter, tool)}"

    head = lark.markup(f"{lead}<function={tool.name}>{line}")
    return f"{head} {_in_order(lark, tool, written)} {lark.markup('</function>')}"


def _argument_tags(lark: LarkText, markers: ToolMarkers, tool: CallableTool, lead: str) -> str:
    line = markers.tag_separator
    place = ValuePlace("</arg_value>", ("<arg_key>", markers.call.closer), tool.param)

    def written(parameter: Parameter) -> str:
        head = lark.markup(f"{line}<arg_key>{parameter.key}</arg_key>{line}")
        return f"{head} {lark.markup('<arg_value>')} {_by_schema(lark, place, parameter, tool)}"

    return f"{quoted(lead + tool.name)} {_in_order(lark, tool, written)}"


def _xtml_call(lark: LarkText, markers: ToolMarkers, tool: CallableTool, lead: str) -> str:
    place = ValuePlace("<|close|>argument<|sep|>", (), tool.param)

    def written(parameter: Parameter) -> str:
        options = []
        for name, schema in alternatives(parameter.schema, _definitions(tool), tool.param):
            kinds = _XTML_KINDS if name == "any" else {"integer": "number"}.get(name, name)
            for kind in kinds if isinstance(kinds, tuple) else (kinds,):
                head = lark.markup(f'<|open|>argument key="{attribute(parameter.key)}" type="{kind}"<|sep|>')
                if kind == "string":
                    value = string_value(lark, place, {} if name == "any" else schema, is_plain=False)
                else:
                    value = json_value(lark, [{"type": kind} if name == "any" else schema], _definitions(tool), place)
                options.append(f"{head} {value}")
        return any_of(options)

    head = lark.markup(f'{lead}<|open|>call tool="{attribute(tool.name)}" index="')
    index = lark.terminal("/[1-9][0-9]{0,3}/")
    head_end, end = lark.markup('"<|sep|>'), lark.markup("<|close|>call<|sep|>")
    return f"{head} {index} {head_end} {_in_order(lark, tool, written)} {end}"


_XTML_KINDS = ("string", "number", "boolean", "null", "object", "array")
_IN_SECTION = frozenset((ToolSyntax.DSML, ToolSyntax.XTML, ToolSyntax.RECIPIENT_FRAMES))
_BODIES: Mapping[ToolSyntax, Callable[[LarkText, ToolMarkers, CallableTool, str], str]] = {
    ToolSyntax.FUNCTION_TAGS: _function_tags,
    ToolSyntax.ARGUMENT_TAGS: _argument_tags,
    ToolSyntax.DSML: invocation,
    ToolSyntax.XTML: _xtml_call,
    ToolSyntax.RECIPIENT_FRAMES: invocation,
    ToolSyntax.JSON_TAGS: _json_object,
}


def attribute(text: str) -> str:
    """Text in an attribute of XTML."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _in_order(lark: LarkText, tool: CallableTool, written: Callable[[Parameter], str]) -> str:
    """The parameters one after another as the schema names them; an optional one may be left out."""
    parts = []
    for parameter in _parameters(tool):
        rule = lark.rule(written(parameter))
        parts.append(rule if parameter.is_required else rule + "?")
    return " ".join(parts)


def _parameters(tool: CallableTool) -> list[Parameter]:
    schema = tool.parameters
    if schema.keys() == {"$ref", "$defs"}:
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    for keyword in schema.keys() - _OBJECT_WORDS:
        raise InvalidValueError(
            f"{tool.param}: the schema keyword {keyword!r} at $ cannot be enforced in this model's calls",
            hint="describe the parameters by type, properties and required",
            param=tool.param,
        )
    properties, required = schema.get("properties", {}), schema.get("required", [])
    for key in [*properties, *required]:
        if not key or key != key.strip() or not _NEVER_IN_NAMES.isdisjoint(key):
            raise InvalidValueError(
                f"{tool.param} has the parameter {key[:60]!r}, which this model cannot write", param=tool.param
            )
    others = [key for key in required if key not in properties]
    open_schema = schema.get("additionalProperties", True)
    return [Parameter(key, properties[key], key in required) for key in properties] + [
        Parameter(key, open_schema, True) for key in others
    ]


def _by_schema(lark: LarkText, place: ValuePlace, parameter: Parameter, tool: CallableTool) -> str:
    """A value whose type the reader takes from the schema, and where that has none from the text."""
    found = list(alternatives(parameter.schema, _definitions(tool), tool.param))
    if any(name == "any" for name, _ in found):
        return string_value(lark, place, {}, is_plain=False)
    others = [schema for name, schema in found if name != "string"]
    is_plain = any(name not in ("string", "null") for name, _ in found)
    options = [string_value(lark, place, schema, is_plain=is_plain) for name, schema in found if name == "string"]
    if others:
        options.append(json_value(lark, others, _definitions(tool), place))
    return any_of(options)


def _by_kind(
    lark: LarkText, place: ValuePlace, parameter: Parameter, tool: CallableTool, heads: tuple[str, str]
) -> str:
    """A value before which its markup says whether it is a string."""
    found = list(alternatives(parameter.schema, _definitions(tool), tool.param))
    others = [schema for name, schema in found if name != "string"]
    texts = [{} if name == "any" else schema for name, schema in found if name in ("string", "any")]
    options = [f"{lark.markup(heads[0])} {string_value(lark, place, text, is_plain=False)}" for text in texts]
    if others:
        options.append(f"{lark.markup(heads[1])} {json_value(lark, others, _definitions(tool), place)}")
    return any_of(options)


def _definitions(tool: CallableTool) -> Mapping[str, Any]:
    definitions: Mapping[str, Any] = tool.parameters.get("$defs", {})
    return definitions
