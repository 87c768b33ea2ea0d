"""State tables: what leads nowhere is refused when the table is made."""

from __future__ import annotations

import pytest

from helios.output.pattern import Delimiter
from helios.output.states import Exit, Phase, Sink, State, StateTable

LOST = Exit(Delimiter(("<a>",)), "lost")


@pytest.mark.parametrize(
    ("state", "initial", "routes"),
    [
        (State(Sink.CONTENT, Phase.CONTENT, (LOST,)), "here", {}),
        (State(Sink.CONTENT, Phase.CONTENT, after_text="lost"), "here", {}),
        (State(Sink.CONTENT, Phase.CONTENT, after_failure="lost"), "here", {}),
        (State(Sink.CONTENT, Phase.CONTENT), "lost", {}),
        (State(Sink.CONTENT, Phase.CONTENT), "here", {"self": "lost"}),
    ],
)
def test_a_table_that_leads_nowhere_is_refused(state: State, initial: str, routes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="leads to state 'lost', which it does not have"):
        StateTable({"here": state}, initial, routes=routes)
