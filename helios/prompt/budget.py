"""What one rendering of a chat template may cost, so that a stranger's template ends soon whatever it does.

It knows sizes and no template. Everything is counted in characters: a step of a loop or a call costs as much as making 64 of
them. The count depends on the template and its input alone; a deadline stands behind it for work that cannot be counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

STEP_CHARACTERS = 64
# Shipped templates need about 100 characters for each of their input, most of them for steps over short messages.
BASE_CHARACTERS = 32 << 20
CHARACTERS_FOR_EACH = 256
TIMEOUT_S = 10.0
_MAX_INTEGER_BITS = 4096
_SCALAR_CHARACTERS = 8
_NESTED_FIELD = re.compile(r"\{[^{}]*:[^{}]*\{")
_DIGITS = re.compile(r"\d{1,18}")


class BudgetError(Exception):
    """The template wants more than it may have."""


class RenderingBudget:
    """One rendering's allowance. Each method raises BudgetError once it is used up, before the work is done where that can be."""

    def __init__(self, n_input_characters: int, clock: Callable[[], float]) -> None:
        self._n_left = BASE_CHARACTERS + CHARACTERS_FOR_EACH * n_input_characters
        self._clock = clock
        self._deadline_s = clock() + TIMEOUT_S

    def characters(self, n: int) -> None:
        self._n_left -= n
        if self._n_left < 0:
            raise BudgetError("it makes too much text")

    def steps(self, n: int = 1) -> None:
        self._n_left -= n * STEP_CHARACTERS
        if self._n_left < 0:
            raise BudgetError("it takes too many steps")
        if self._clock() > self._deadline_s:
            raise BudgetError(f"it takes more than {TIMEOUT_S:g} seconds")

    def weigh(self, value: Any) -> int:
        """Pay for spelling a value out, what is shared inside it as often as it occurs; its characters, about."""
        n_before = self._n_left
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, Mapping | list | tuple | set | frozenset):
                self.steps()
                pending.extend(item)
            if isinstance(item, Mapping):
                pending.extend(item.values())
            self.characters(len(item) if isinstance(item, str | bytes) else _SCALAR_CHARACTERS)
        return n_before - self._n_left

    def result(self, value: Any) -> Any:
        """Pay for a value that was made."""
        if isinstance(value, str | bytes | list | tuple | dict):
            self.characters(len(value))
        return value

    def operation(self, operator: str, left: Any, right: Any) -> None:
        """Pay for `left operator right` before it is computed."""
        if operator == "%" and isinstance(left, str):
            self.format(left, "%", right)
        elif operator == "*" and isinstance(left, str | list | tuple | bytes) and isinstance(right, int):
            self.characters(len(left) * max(right, 0))
        elif operator == "*" and isinstance(right, str | list | tuple | bytes) and isinstance(left, int):
            self.characters(len(right) * max(left, 0))
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            n_bits = left.bit_length() * (max(right, 0) if operator == "**" else 1) + right.bit_length()
            if n_bits > _MAX_INTEGER_BITS:
                raise BudgetError(f"it computes an integer of more than {_MAX_INTEGER_BITS:,} bits")

    def format(self, pattern: str, field_sign: str, values: Any) -> None:
        """Pay for the longest text that formatting can make: any field may show all values, at any width that is named."""
        if _NESTED_FIELD.search(pattern):
            raise BudgetError("it formats to a width that is computed")
        n_most = self.weigh(values) + max(_integers(values), default=0)
        n_most += max((int(digits) for digits in _DIGITS.findall(pattern)), default=0)
        self.characters(len(pattern) + pattern.count(field_sign) * n_most)

    def replace(self, text: str, old: str, new: str) -> None:
        """Pay for `text.replace(old, new)`."""
        self.characters(len(text) + text.count(old) * len(new))

    def join(self, separator: str, items: list[Any]) -> None:
        """Pay for joining the items."""
        self.weigh(items)
        self.characters(len(separator) * len(items))

    def arguments(self, values: tuple[Any, ...]) -> None:
        """Pay for the integers among the arguments of a call, each of which may be a width or a count."""
        for value in values:
            if isinstance(value, int) and value > STEP_CHARACTERS:
                self.characters(value)


def _integers(values: Any) -> Iterator[int]:
    items = (
        values.values() if isinstance(values, Mapping) else values if isinstance(values, list | tuple) else (values,)
    )
    return (item for item in items if isinstance(item, int))
