"""What a C++ source is made of: itself and the headers of the checkout that it includes.

It knows the `#include "..."` line, no conditions: a header counts also where a compiler would skip it. So what it finds is all that
the compiler reads of the checkout, and maybe more; a test compares it with what the compiler says.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def with_headers(source: Path, include_root: Path) -> list[Path]:
    """`source`, and the headers that it and they name: of their own folder first, else below `include_root`. In order of names."""
    found, unread = {source}, [source]
    while unread:
        path = unread.pop()
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            places = (Path(os.path.normpath(directory / name)) for directory in (path.parent, include_root))
            header = next((place for place in places if place.is_file()), None)
            if header is not None and header not in found:
                found.add(header)
                unread.append(header)
    return sorted(found)
