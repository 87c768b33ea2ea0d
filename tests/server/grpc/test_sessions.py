"""A session's pages are found again after others have used the whole cache."""

from __future__ import annotations

import pytest

from tests.server.grpc.conftest import Client
from tests.server.scripted import CONTEXT_TOKENS, PAGE_TOKENS, ScriptedDevice

LENGTH = CONTEXT_TOKENS - PAGE_TOKENS
MINE = [2] * LENGTH


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_session_finds_its_pages_after_others_have_used_the_whole_cache(
    client: Client, device: ScriptedDevice, is_kept: bool
) -> None:
    """GRPC-2: session_id; without one the least recently used pages go."""
    session = {"session_id": "mine"} if is_kept else {}
    client.generate(MINE, **session)
    for number in range(3, 8):
        client.generate([number] * LENGTH)
    n_before = client.engine.statistics()["cache_reused_tokens_total"]
    client.generate(MINE, **session)
    n_reused = client.engine.statistics()["cache_reused_tokens_total"] - n_before
    assert n_reused == (LENGTH - PAGE_TOKENS if is_kept else 0)
