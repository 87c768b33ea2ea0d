"""One curve as SVG text: a logarithmic x axis with a tick at every value, a linear y axis from zero, medians with their spread.

It knows no measurement. The picture is read on light and dark pages alike: grey axes, one colour, no background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 36, 340
_GREY, _COLOUR = "#888888", "#3b7dd8"


@dataclass(frozen=True, slots=True)
class Value:
    """A median at `x` > 0, with the least and most of its rounds."""

    x: int
    y: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Values with ascending x; `name` is the file's, without its ending."""

    name: str
    x_label: str
    values: Sequence[Value]


def plot(curve: Curve, y_label: str, caption: str) -> str:
    """The SVG document; `caption` says in one line above it where the values are from."""
    step = _tick_step(max(value.most for value in curve.values))
    n_ticks = math.ceil(max(value.most for value in curve.values) / step)
    first, last = math.log(curve.values[0].x), math.log(curve.values[-1].x)

    def across(x: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (math.log(x) - first) / (last - first or 1)

    def up(y: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * y / (n_ticks * step)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        _text(_LEFT, 20, caption, "start"),
    ]
    for tick in range(n_ticks + 1):
        y = up(tick * step)
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="{_GREY}" stroke-opacity="0.35"/>')
        lines.append(_text(_LEFT - 8, y + 4, f"{tick * step:g}", "end"))
    free = -math.inf  # where the next label may begin
    for value in curve.values:
        x = across(value.x)
        lines.append(f'<path d="M{x:.1f} {_BOTTOM}v5" stroke="{_GREY}"/>')
        if x > free:
            lines.append(_text(x, _BOTTOM + 20, f"{value.x:,}", "middle"))
            free = x + 34
        lines.append(
            f'<path d="M{x:.1f} {up(value.least):.1f}V{up(value.most):.1f}" stroke="{_COLOUR}" stroke-opacity="0.5"/>'
        )
        lines.append(f'<circle cx="{x:.1f}" cy="{up(value.y):.1f}" r="3" fill="{_COLOUR}"/>')
    path = "L".join(f"{across(value.x):.1f} {up(value.y):.1f}" for value in curve.values)
    lines.append(f'<path d="M{path}" fill="none" stroke="{_COLOUR}" stroke-width="1.5"/>')
    lines.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 45, curve.x_label, "middle"))
    middle = (_TOP + _BOTTOM) / 2
    lines.append(f'<g transform="rotate(-90 16 {middle:g})">{_text(16, middle, y_label, "middle")}</g>')
    return "\n".join([*lines, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{_GREY}" text-anchor="{anchor}">{escape(text)}</text>'


def _tick_step(most: float) -> float:
    """1, 2 or 5 times a power of ten, at most eight of them up to `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(step for step in (power / 10, power / 5, power / 2, power, 2 * power) if most / step <= 8)
