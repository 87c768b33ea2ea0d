"""Numbers of a schema as the grammar library can enforce them to the last digit.

It knows keywords about numbers only. The library holds bounds as doubles and documents are read as doubles, so a bound moves
inwards to a number that both represent: what is accepted then is never out of the bounds that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

EXACT = 1 << 53  # whole numbers up to here are doubles
_LARGEST = (1 << 63) - 1
_QUANTUM = Decimal("1e-15")  # more digits behind the point make the grammar long and readers disagree
MAX_MULTIPLE = 65_536  # the library keeps a state for each remainder


def is_number(value: object) -> bool:
    """True for a finite JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_exact(value: float) -> bool:
    """Whether the library writes this literal as it was given."""
    return abs(value) <= EXACT and (value == 0 or abs(value) >= 1e-15)


def bounds(node: Mapping[str, Any], *, is_integer: bool) -> dict[str, float]:
    """`minimum` and `maximum` that hold the four bounds of a schema. ValueError where they cannot be held."""
    lows = [_inward(node[name], 1, name.startswith("ex"), is_integer) for name in _LOW if name in node]
    highs = [_inward(node[name], -1, name.startswith("ex"), is_integer) for name in _HIGH if name in node]
    return ({"minimum": max(lows)} if lows else {}) | ({"maximum": min(highs)} if highs else {})


_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def _inward(bound: float, direction: int, is_exclusive: bool, is_integer: bool) -> float:
    """The nearest bound that both sides can hold, in the direction away from the bound."""
    if is_integer:
        exact = Decimal(bound)
        whole = int(exact.to_integral_value(ROUND_CEILING if direction > 0 else ROUND_FLOOR))
        if is_exclusive and whole == exact:
            whole += direction
        return _as_double(whole, direction)
    value = float(bound)
    if is_exclusive or (value - bound) * direction < 0:
        value = math.nextafter(value, math.inf * direction)
    if value * direction < -EXACT:
        return -EXACT * direction
    if value * direction > EXACT:
        raise ValueError(f"is beyond {EXACT:,}")
    rounded = Decimal(repr(value)).quantize(_QUANTUM, ROUND_CEILING if direction > 0 else ROUND_FLOOR)
    return float(rounded) if abs(value) < 1 else value


def _as_double(whole: int, direction: int) -> int:
    if abs(whole) <= EXACT:
        return whole
    if abs(whole) > _LARGEST:
        if whole * direction > 0:
            raise ValueError(f"is beyond {_LARGEST:,}")
        whole = -_LARGEST * direction
    value = float(whole)
    if (int(value) - whole) * direction < 0:
        value = math.nextafter(value, math.inf * direction)
    return int(value)


def multiple(value: float) -> bool:
    """Whether the library can count in steps of `value`."""
    numerator = Decimal(repr(value)).normalize().as_tuple()
    digits = int("".join(map(str, numerator.digits)))
    exponent = int(numerator.exponent)
    return value > 0 and digits * 10 ** max(exponent, 0) <= MAX_MULTIPLE and exponent >= -9
