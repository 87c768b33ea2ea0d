"""Boundaries of prompts on their way from a conversation to the cache (FE-4)."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from helios.cache.books import CacheShape
from helios.contract.enums import MessageRole, RenderingConstraint
from helios.contract.frontend import Frontend
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import RunningServer, run_server
from tests.server.scripted import CACHE, ScriptedDevice, scripted_engine
from tests.server.scripted_engine import TEMPLATE, ScriptedEngine, plain_frontend

SYSTEM = {"role": "system", "content": "be brief"}
HEAD = "<|im_start|>system\nbe brief<|im_end|>\n"


def frontend(tokenizer: Tokenizer) -> Frontend:
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    rules = ((MessageRole.SYSTEM, RenderingConstraint.NONE),)
    return dataclasses.replace(plain_frontend(), prefix_boundaries=rules, eos_tokens=(end,))


def ask(server: RunningServer, question: str, **fields: Any) -> Any:
    status, document = server.chat(messages=[SYSTEM, {"role": "user", "content": question}], **fields)
    assert status == 200
    return document


@pytest.mark.parametrize("saves", [True, False])
def test_the_boundaries_of_a_prompt_are_with_its_first_choice(tokenizer: Tokenizer, saves: bool) -> None:
    """The others share the prompt. Where nothing would be saved, none are looked for."""
    engine = ScriptedEngine(tokenizer, frontend=frontend(tokenizer), saves_boundaries=saves)
    server = run_server(engine, Settings(port=0, drain_timeout=0.2))
    ask(server, "hi", n=2)
    server.stop()
    first, second = (generation.request for generation in engine.generations)
    assert [tokenizer.decode(first.prompt_tokens[:end]) for end in first.boundaries] == ([HEAD] if saves else [])
    assert second.boundaries == ()


@pytest.mark.parametrize(("n_rows", "is_truncatable"), [(8, False), (0, False), (8, True)])
def test_another_conversation_goes_on_behind_the_system_message(
    tokenizer: Tokenizer, n_rows: int, is_truncatable: bool
) -> None:
    """CACHE-5: where state sums up its tokens and can be saved. Where it can be cut short, pages do."""
    device = ScriptedDevice(tokenizer)
    device.says("Hello")
    shape = CacheShape(CACHE.page_tokens, CACHE.n_pages, n_rows, 0, 0, is_truncatable)
    engine = scripted_engine(tokenizer, frontend(tokenizer), TEMPLATE, device, time.monotonic, shape)
    server = run_server(engine, Settings(port=0, drain_timeout=0.2))  # type: ignore[arg-type]
    ask(server, "hi")
    n_cached = ask(server, "who are you?")["usage"]["prompt_tokens_details"]["cached_tokens"]
    server.stop()
    engine.close()
    n_head = len(tokenizer.encode(HEAD, allow_special=True))
    if is_truncatable:
        assert (device.requests[0].boundaries, n_cached) == ((), n_head // shape.page_tokens * shape.page_tokens)
    elif n_rows:
        assert (device.requests[0].boundaries, n_cached) == ((n_head,), n_head)
    else:
        assert (device.requests[0].boundaries, n_cached) == ((), 0)
