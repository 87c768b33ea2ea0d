"""Text that others wrote, shown in a terminal.

It knows no subject. What it returns is one line and holds nothing that a terminal obeys.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with line ends, control and format characters spelled as in a Python string: names of files and what files say may
    hold any."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
