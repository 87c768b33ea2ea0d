"""Ranges of numbers and lists in a request message; zero is what a field has that was left out.

It knows no field by name. A wrong value is always an InvalidValueError that names the field by its path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from helios.errors import InvalidValueError


def checked_number(value: float, param: str, low: float, high: float) -> float:
    """A finite number of the range, whose ends are as the wire has them: in single precision."""
    if not np.float32(low) <= value <= np.float32(high):
        raise InvalidValueError(
            f"{param} is {np.float32(value)!s}, it must be a number from {low:g} to {high:g}", param=param
        )
    return value


def checked_count(items: Collection[object], param: str, n_most: int, noun: str) -> None:
    if len(items) > n_most:
        raise InvalidValueError(f"{param} has {len(items):,} {noun}, the limit is {n_most:,}", param=param)


def checked_ids(values: Iterable[int], param: str, vocabulary: int) -> tuple[int, ...]:
    """Token ids, each of the model's own vocabulary."""
    token_ids = tuple(values)
    for index, token_id in enumerate(token_ids):
        if token_id >= vocabulary:
            name = f"{param}[{index}]"
            raise InvalidValueError(f"{name} is {token_id}, the vocabulary has {vocabulary:,} tokens", param=name)
    return token_ids
