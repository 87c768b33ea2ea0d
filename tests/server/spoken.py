"""Servers whose model says what a test gives it: one for each rendered answer of tests/output, in a vocabulary with its markers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from helios.contract.frontend import Frontend
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.output.answers import TOOLS, Example
from tests.server.chat_answers import ClientAnswer, of_document, of_events
from tests.server.conftest import RunningServer, run_server
from tests.server.scripted import ScriptedDevice, scripted_engine

TOOL_OBJECTS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}} for name, parameters in TOOLS.items()
]
EOS_TEXT = "<|end|>"


@dataclass
class Speaking:
    """A running server and the device that speaks. `chat` asks for the same answer whole and streamed, and they must agree."""

    server: RunningServer
    device: ScriptedDevice
    tokenizer: Tokenizer

    def chat(self, **fields: Any) -> ClientAnswer:
        fields = {"messages": [{"role": "user", "content": "W?"}], "tools": TOOL_OBJECTS, **fields}
        status, document = self.server.chat(**fields)
        assert status == 200, document
        whole = of_document(document)
        streamed = of_events(self.server.chat_events(**fields))
        assert streamed.shown == whole.shown
        assert streamed.token_ids == whole.token_ids
        assert streamed.logprobs == whole.logprobs
        return whole


def template_of(example: Example) -> str:
    """A template that renders the example's prompt around the first message, and opens the answer with one to be continued."""
    before, _, after = example.prompt.partition("W?")
    return (
        f"{{{{ {before!r} }}}}{{{{ messages[0].content }}}}{{{{ {after!r} }}}}"
        "{% if continue_final_message %}{{ messages[-1].content }}{% endif %}{% if tools %}{% endif %}"
    )


def bound_frontend(frontend: Frontend, tokenizer: Tokenizer) -> Frontend:
    eos = tokenizer.token_id(EOS_TEXT)
    assert eos is not None
    return dataclasses.replace(frontend, eos_tokens=(eos,))


@contextmanager
def speaking(
    tokenizer: Tokenizer, frontend: Frontend, template: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[Speaking]:
    """A server over a scripted device, ended afterwards."""
    device = ScriptedDevice(tokenizer)
    engine = scripted_engine(tokenizer, bound_frontend(frontend, tokenizer), template, device, clock)
    server = run_server(engine, Settings(port=0, drain_timeout=0.2))  # type: ignore[arg-type]
    try:
        yield Speaking(server, device, tokenizer)
    finally:
        server.stop()
        engine.close()
