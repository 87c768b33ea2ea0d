"""Golden cores: where they lie, who signed them, what they were asked, and how they are asked again.

A golden core is a core as some release of Helios wrote it, with the tokens that it answered then. It is never written again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.engine import Engine
from helios.scheduler.request import Failed, GenerationRequest, SamplingParameters, Token
from helios.settings import Settings

DATA = Path(__file__).parent / "data"
NAMESPACE = "golden.test"

# These keys guard nothing: whoever has this file can sign a core under this namespace, which only these tests accept.
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"golden cores, signing key of the tests").digest())
CORE_KEY = hashlib.sha256(b"golden cores, content key of the tests").digest()


@dataclass(frozen=True)
class Case:
    """A prompt and its answer. `margin` is the least difference of the two best log-probabilities; None for a sampled case."""

    prompt: str
    n_tokens: int
    sampling: dict[str, float | int] = field(default_factory=dict)  # SamplingParameters, greedy when empty
    prompt_tokens: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    text: str = ""
    margin: float | None = None

    def to_request(self, candidates: int | None = None) -> GenerationRequest:
        parameters = SamplingParameters(**(self.sampling or {"temperature": 0.0}))  # type: ignore[arg-type]
        return GenerationRequest(self.prompt_tokens, self.n_tokens, (), replace(parameters, candidates=candidates))


@dataclass(frozen=True)
class Golden:
    """What is kept beside a core: the hash of its file, by which release it was written, and its cases."""

    sha256: str
    written_by: str
    cases: tuple[Case, ...]

    def save(self, name: str) -> None:
        head = {"sha256": self.sha256, "written_by": self.written_by}
        cases = ",\n".join(json.dumps(asdict(case)) for case in self.cases)
        text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "cases": [\n{cases}\n ]\n}}\n'
        (DATA / f"{name}.json").write_text(text)

    @classmethod
    def load(cls, name: str) -> Golden:
        raw = json.loads((DATA / f"{name}.json").read_text())
        cases = (
            Case(**case | {"prompt_tokens": tuple(case["prompt_tokens"]), "tokens": tuple(case["tokens"])})
            for case in raw.pop("cases")
        )
        return cls(**raw, cases=tuple(cases))


def names() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.json"))


def core_path(name: str) -> Path:
    return DATA / f"{name}.core"


def start(path: Path, threads: int = 1) -> Engine:
    """The engine as `serve` starts it. The caller has set HELIOS_HOME and, for sealed cores, HELIOS_CORE_KEY."""
    return Engine.start(path, Settings(device="cpu", threads=threads, accept=NAMESPACE))


def ask(engine: Engine, requests: Iterable[GenerationRequest]) -> list[list[Token]]:
    """All requests at once; the tokens of each."""
    return asyncio.run(_ask(engine, list(requests)))


async def _ask(engine: Engine, requests: list[GenerationRequest]) -> list[list[Token]]:
    generations = [engine.submit(request) for request in requests]
    answers: list[list[Token]] = []
    for generation in generations:
        tokens: list[Token] = []
        while True:
            batch = await generation.next_batch()
            tokens += [event for event in batch if isinstance(event, Token)]
            if isinstance(batch[-1], Failed):
                raise batch[-1].error
            if not isinstance(batch[-1], Token):
                break
        answers.append(tokens)
    return answers
