"""Numbers of a schema as the grammar library can enforce them to the last digit.

It knows keywords about numbers only. Documents are read as doubles, so between bounds a number has no more digits than doubles tell
apart: what is accepted is never out of the bounds that were asked for, however it is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

EXACT = 1 << 53  # whole numbers up to here are doubles
MAX_MULTIPLE = 65_536  # the library keeps a state for each remainder
_LARGEST = (1 << 63) - 1
_DIGITS = 15  # what doubles tell apart; with 16 the library itself takes 100 for no more than 99.99999999999999
_DECIMALS = 9
_FAR = 10**15  # a bound out here shuts nothing out but numbers that nobody writes
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
BOUNDS = (*_LOW, *_HIGH)


def is_number(value: object) -> bool:
    """True for a finite JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_exact(value: float) -> bool:
    """Whether the library writes this literal as it was given."""
    return abs(value) <= EXACT and (value == 0 or abs(value) >= 1e-15)


def is_countable(value: float) -> bool:
    """Whether the library can count in steps of `value`."""
    number = Decimal(repr(value)).normalize().as_tuple()
    exponent = int(number.exponent)
    steps = int("".join(map(str, number.digits))) * 10 ** max(exponent, 0)
    return value > 0 and steps <= MAX_MULTIPLE and exponent >= -_DECIMALS


def bounded(node: Mapping[str, Any], *, is_integer: bool, is_alone: bool) -> dict[str, float]:
    """Keywords that hold what the four bounds of a schema ask for. ValueError where they cannot be held.

    `is_alone`: no other schema speaks of the same number. The library takes the common multiple of two `multipleOf` in 32 bits,
    so digits are counted only where there is no other.
    """
    given = {name: node[name] for name in BOUNDS if name in node}
    if is_integer:
        lows: list[float] = [_whole(given[name], 1, name == "exclusiveMinimum") for name in _LOW if name in given]
        highs: list[float] = [_whole(given[name], -1, name == "exclusiveMaximum") for name in _HIGH if name in given]
        return ({"minimum": max(lows)} if lows else {}) | ({"maximum": min(highs)} if highs else {})
    largest = max((abs(bound) for bound in given.values() if abs(bound) < _FAR), default=0)
    step = Decimal(1).scaleb(-max(0, min(_DECIMALS, _DIGITS - len(str(int(largest))))))
    result: dict[str, float] = {}
    for name, bound in given.items():
        held, value = _held(name, bound, step, is_counted=is_alone)
        result[held] = max(result.get(held, value), value) if held in _LOW else min(result.get(held, value), value)
    return result | ({"multipleOf": float(step)} if is_alone and "multipleOf" not in node else {})


def _held(name: str, bound: float, step: Decimal, *, is_counted: bool) -> tuple[str, float]:
    """One bound as a multiple of `step`, moved away from what it shuts out. `is_counted`: so are the numbers that it bounds."""
    direction = 1 if name in _LOW else -1
    if bound * direction > _FAR:
        raise ValueError(f"is beyond {_FAR:,}")
    exact = max(Decimal(-_FAR), min(Decimal(_FAR), Decimal(repr(bound))))
    rounded = exact.quantize(step, ROUND_CEILING if direction > 0 else ROUND_FLOOR)
    inclusive = _LOW[0] if direction > 0 else _HIGH[0]
    if rounded != exact or name == inclusive:
        return inclusive, float(rounded)
    return (name, float(rounded)) if is_counted else (inclusive, float(rounded + direction * step))


def _whole(bound: float, direction: int, is_exclusive: bool) -> int:
    """A bound of whole numbers as one that is a double: the library holds it as one."""
    exact = Decimal(bound)
    whole = int(exact.to_integral_value(ROUND_CEILING if direction > 0 else ROUND_FLOOR))
    if is_exclusive and whole == exact:
        whole += direction
    if whole * direction > _LARGEST:
        raise ValueError(f"is beyond {_LARGEST:,}")
    whole = max(-_LARGEST, min(_LARGEST, whole))
    value = float(whole)
    if (int(value) - whole) * direction < 0:
        value = math.nextafter(value, math.inf * direction)
    return int(value)
