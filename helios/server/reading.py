"""How the answers of one call are read and presented, decided once and the same for every choice.

It knows the request's tools and form, no JSON and no tokens' meaning. Choices differ in their tokens only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """`opening` is what the prompt holds of the answer already, for the parser. `is_parsed` False: the answer is plain text.

    `tools` maps the names that may be called to the schemas of their parameters. `names_tool`: one was called for by name, which
    clients are told as an ordinary stop. `is_silent`: nothing that is generated is shown.
    """

    is_parsed: bool = False
    opening: str = ""
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_structured: bool = False
    names_tool: bool = False
    is_silent: bool = False
