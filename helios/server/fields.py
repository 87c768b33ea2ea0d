"""Strict reading of one JSON object: each field has a type and a range, and null counts as absent.

It knows JSON and the error tree, no endpoint. A wrong value is always an InvalidValueError that names the field by its path;
nothing is converted on the caller's behalf, so "0" is no number and true is no integer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from helios.errors import InvalidValueError


class Fields:
    """The fields of one request body, or of an object inside it; `path` is what comes before a field's name in messages."""

    def __init__(self, table: Mapping[str, Any], path: str = "") -> None:
        self._table = table
        self._path = path

    @property
    def table(self) -> Mapping[str, Any]:
        """The object itself."""
        return self._table

    def param(self, name: str) -> str:
        """The path of field `name`, for messages."""
        return self._path + name

    def value(self, name: str) -> Any:
        """The raw JSON value, None when absent or null."""
        return self._table.get(name)

    def refuse(self, name: str, expected: str) -> InvalidValueError:
        """The error for field `name`, which is not `expected`."""
        param = self.param(name)
        return InvalidValueError(f"{param} must be {expected}, not {_shown(self.value(name))}", param=param)

    def is_neutral(self, name: str, values: Sequence[object]) -> bool:
        """Whether field `name` asks for nothing: it is absent, or one of `values`, of the same type."""
        value = self.value(name)
        return value is None or any(type(value) is type(other) and value == other for other in values)

    def boolean(self, name: str) -> bool:
        """True or false; absent is false."""
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.refuse(name, "true or false")

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(name, f"a whole number from {low:,} to {high:,}")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.value(name)
        if value is None:
            return None
        if not is_number(value) or not low <= value <= high:
            raise self.refuse(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, name: str) -> str | None:
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.refuse(name, "text")
        return checked_text(value, self._path + name)

    def list(self, name: str) -> list[Any] | None:
        value = self.value(name)
        if value is None or isinstance(value, list):
            return value
        raise self.refuse(name, "a list")

    def object(self, name: str) -> Fields | None:
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refuse(name, "an object")
        return Fields(value, f"{self._path}{name}.")


def is_number(value: object) -> bool:
    """True for a JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def checked_text(text: str, param: str) -> str:
    """`text`, which must be real Unicode: JSON can spell lone surrogates, which have no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{param} has a lone surrogate at character {error.start:,}", param=param) from error
    return text


def read_token_ids(values: list[Any], param: str, vocabulary: int) -> tuple[int, ...]:
    """A list of token ids, each inside the model's own vocabulary."""
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary:
            name = f"{param}[{index}]"
            raise InvalidValueError(f"{name} must be a token id from 0 to {vocabulary - 1:,}", param=name)
    return tuple(values)


def parse_body(body: bytes) -> Fields:
    """The JSON object that a request body must be."""
    try:
        value = parse_json(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"the body is not UTF-8 at byte {error.start:,}") from error
    except json.JSONDecodeError as error:
        raise InvalidValueError(f"the body is not JSON: {fault_of(error)}") from error
    except RecursionError as error:
        raise InvalidValueError("the body is nested too deeply") from error
    except ValueError as error:  # a number with thousands of digits
        raise InvalidValueError("the body is not JSON: a number is too long") from error
    if not isinstance(value, dict):
        raise InvalidValueError(f"the body must be a JSON object, not {_shown(value)}")
    return Fields(value)


def parse_json(text: str) -> Any:
    """The value of JSON text; json.JSONDecodeError, RecursionError or ValueError when it is none."""
    return json.loads(text, parse_constant=_refuse_constant)


def fault_of(error: json.JSONDecodeError) -> str:
    """What is wrong with JSON text, and where."""
    return f"{error.msg.removesuffix(' at')} at character {error.pos:,}"


def _refuse_constant(name: str) -> None:
    raise InvalidValueError(f"the body is not JSON: {name} is no number")


def _shown(value: object) -> str:
    """A value for a message, shortened: containers by their kind and length, so that nobody's document is echoed."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"a list of {len(value):,}" if value else "an empty list"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
