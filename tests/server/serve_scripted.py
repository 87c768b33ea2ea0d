"""`python -m tests.server.serve_scripted DIRECTORY SETTING=VALUE...`: serve a scripted engine until told to stop.

The engine answers "Hello world"; to a prompt that says "slow" it begins an answer without an end. A file `broken` in the
directory makes it say that its worker is dead.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from helios.errors import HeliosError
from helios.scheduler.request import GenerationRequest
from helios.server.access import read_access
from helios.server.listener import bind
from helios.server.server import serve_until_signal
from helios.settings import Settings
from tests.server.scripted_engine import ScriptedEngine, ScriptedGeneration
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of


@dataclass
class SlowEngine(ScriptedEngine):
    broken_mark: Path = Path("broken")

    def submit(self, request: GenerationRequest, *arrived: float) -> ScriptedGeneration:
        is_slow = "slow" in self.tokenizer.decode(list(request.prompt_tokens))
        self.answer = None if is_slow else "Hello world"
        generation = super().submit(request)
        if is_slow:  # a stream begins with its first token
            generation.give(self.tokenizer.encode("a", allow_special=False)[0])
        return generation

    def is_alive(self) -> bool:
        return not self.broken_mark.exists()


def main(directory: Path, words: list[str]) -> int:
    settings = Settings.load(dict(word.split("=", 1) for word in words))
    path = vocabularies.byte_level(directory / "scripted.gguf", control=("<|im_end|>", "<|im_start|>"))
    engine = SlowEngine(tokenizer_of(path), broken_mark=directory / "broken")
    try:
        with bind(settings) as listener:
            asyncio.run(serve_until_signal(engine, settings, listener, read_access(settings)))  # type: ignore[arg-type]
    except HeliosError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
