"""A tree of text, drawn with lines.

It knows no meaning. Every branch is one line; those below it are drawn under it, the last one with a corner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Branch:
    """One line and what hangs under it."""

    text: str
    branches: Sequence[Branch] = field(default_factory=tuple)


def tree_lines(root: Branch, indent: str = "") -> Iterator[str]:
    """The root's line, then its branches."""
    yield root.text
    for index, branch in enumerate(root.branches):
        is_last = index == len(root.branches) - 1
        for n_lines, line in enumerate(tree_lines(branch)):
            corner = ("└─ " if is_last else "├─ ") if n_lines == 0 else ("   " if is_last else "│  ")
            yield f"{indent}{corner}{line}"


def table_lines(head: list[str], rows: Iterable[list[object]]) -> Iterator[str]:
    """Columns as wide as their widest cell: text to the left, numbers to the right."""
    table = [head, *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    is_text = [not row.replace(",", "").isdigit() for row in table[-1]]
    for row in table:
        cells = (
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, is_text, strict=True)
        )
        yield "  ".join(cells).rstrip()
