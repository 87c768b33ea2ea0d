"""`python -m scripts.loading.scripted_server SLOTS ROUND_MS SETTING=VALUE...`: serve a device that says letters, one round a beat.

Everything but the device is the product: scheduler, worker, engine and the edge (gRPC too where grpc_port is set), so what
it costs is what they cost.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from helios.cache.books import CacheShape
from helios.scheduler.round import LaneCompletion, Round
from helios.server.access import read_access
from helios.server.grpc.address import take_address
from helios.server.listener import bind
from helios.server.server import serve_until_signal
from helios.settings import Settings
from tests.server.scripted import CONTEXT_TOKENS, PAGE_TOKENS, ScriptedDevice, scripted_engine
from tests.server.scripted_engine import TEMPLATE, plain_frontend
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

LETTERS = [ord(letter) for letter in "the quick brown fox jumps over the lazy dog "]


class PacedDevice(ScriptedDevice):
    """Says the same sentence for ever; a round takes `round_s`."""

    round_s = 0.0
    _next_s = 0.0

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self.round_s, now_s)
        time.sleep(self._next_s - now_s)
        result = super().complete()
        self.requests.clear()
        return result


def main(n_slots: int, round_s: float, words: list[str]) -> None:
    settings = Settings.load(dict(word.split("=", 1) for word in words))
    with tempfile.TemporaryDirectory() as directory:
        marks = ("<|im_end|>", "<|im_start|>")
        tokenizer = tokenizer_of(vocabularies.byte_level(Path(directory) / "letters.gguf", control=marks))
    letters = [tokenizer.encode(chr(letter), allow_special=False)[0] for letter in LETTERS]
    device = PacedDevice(tokenizer, lambda request, said, mask: letters[len(said) % len(letters)])
    device.round_s = round_s
    shape = CacheShape(PAGE_TOKENS, n_slots * CONTEXT_TOKENS // PAGE_TOKENS, 0, 0, 0, True)
    engine = scripted_engine(tokenizer, plain_frontend(), TEMPLATE, device, time.monotonic, shape, settings, n_slots)
    grpc = nullcontext() if settings.grpc_port is None else take_address(settings, settings.grpc_port)
    with engine, bind(settings) as listener, grpc as grpc_address:
        asyncio.run(serve_until_signal(engine, settings, listener, read_access(settings), grpc_address))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) / 1000, sys.argv[3:])
