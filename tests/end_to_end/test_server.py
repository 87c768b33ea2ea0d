"""One suite for every device: the engine and the server of `helios serve`, whole, with a tiny model, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Q

from helios.engine import Engine
from helios.errors import SettingError
from helios.settings import Settings
from tests.end_to_end.devices import DEVICES, NAMESPACE, on_every_device, prepared
from tests.ignition.tiny_model import TinyModel
from tests.server.served_model import ServedModel, served_model
from tests.simt.conduct import CONDUCTS, Conduct, conducted

MODELS = {
    "float32": TinyModel(type=Q.F32),
    "float16, grouped heads, biases": TinyModel(type=Q.F16, n_kv_heads=1, biases=("attn_q", "attn_k", "attn_v")),
    "bf16": TinyModel(type=Q.BF16),
    "q8_0": TinyModel(type=Q.Q8_0),
    "q4_0": TinyModel(type=Q.Q4_0),
    "q4_1": TinyModel(type=Q.Q4_1),
}
PROMPTS = [[(i * 7 + 20) % 250 for i in range(20)], [3, 1, 4, 1, 5], [(i * 5 + 1) % 250 for i in range(33)]]
GREEDY = {"temperature": 0, "max_tokens": 10, "ignore_eos": True, "logprobs": 5}
ASKED: list[dict[str, Any]] = [
    GREEDY,
    {"top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 7, "max_tokens": 10, "ignore_eos": True},
    {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "seed": 9,
        "max_tokens": 10,
        "ignore_eos": True,
        "logprobs": 3,
    },
]


@contextmanager
def serving(core: Path, device: str, conduct: Conduct = CONDUCTS[0]) -> Iterator[ServedModel]:
    """A server on `device`; the emulator's blocks run as `conduct` says, and none of them may fail."""
    with served_model(core, device=device, threads=1, context=512, accept=NAMESPACE) as server:
        assert f" on {device}" in server.engine.description
        if device == "simt":
            with conducted(conduct):
                yield server
        else:
            yield server


def answer(server: ServedModel, prompt: list[int], fields: dict[str, Any]) -> dict[str, Any]:
    choice = server.complete(prompt, **fields)["choices"][0]
    return {"text": choice["text"], "logprobs": choice["logprobs"], "finish_reason": choice["finish_reason"]}


def answers(server: ServedModel) -> list[dict[str, Any]]:
    """Of all requests, which are there at once."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda both: answer(server, *both), zip(PROMPTS, ASKED, strict=True)))


@on_every_device
def test_a_request_has_the_same_answer_alone_among_others_and_in_a_stream(device: str, tmp_path: Path) -> None:
    """Design 7, CARD-3; on the emulator in other orders of threads and copies too."""
    core = prepared(tmp_path, MODELS["q4_0"], device)
    with serving(core, device) as server:
        together = answers(server)
        assert [answer(server, *both) for both in zip(PROMPTS, ASKED, strict=True)] == together
        chunks = server.stream("/v1/completions", {"prompt": PROMPTS[0], **ASKED[0]})
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"]) == together[0]["text"]
        assert {each["finish_reason"] for each in together} == {"length"}
    for conduct in (CONDUCTS[-1], CONDUCTS[3]) if device == "simt" else ():
        with serving(core, device, conduct) as server:
            assert answers(server) == together


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("name", MODELS)
def test_the_tokens_are_those_of_the_cpu_device(name: str, device: str, tmp_path: Path) -> None:
    """CARD-3: greedy tokens, up to a step at which two of them are equally likely within the rounding of activations."""

    def asked(on: str) -> list[dict[str, Any]]:
        with serving(prepared(tmp_path, MODELS[name], on), on) as server:
            return [answer(server, prompt, GREEDY) for prompt in PROMPTS]

    for ours, theirs in zip(asked(device), asked("cpu"), strict=True):
        rows = zip(
            *(each["logprobs"][key] for each in (ours, theirs) for key in ("tokens", "token_logprobs")), strict=True
        )
        best = ours["logprobs"]["top_logprobs"]
        for step, (token, logprob, other_token, other_logprob) in enumerate(rows):
            if token != other_token:
                assert best[step][token] - best[step][other_token] < 0.1
                break
            assert logprob == pytest.approx(other_logprob, abs=0.05)


@on_every_device
def test_a_chat_answers_and_a_wrong_request_is_refused(device: str, tmp_path: Path) -> None:
    with serving(prepared(tmp_path, MODELS["q8_0"], device), device) as server:
        reply = server.chat("hello", max_tokens=5, ignore_eos=True)
        assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (5, "length")
        assert server.post("/v1/completions", {"prompt": [1], "max_tokens": -1}, status=400)["error"]


def test_a_core_is_served_only_on_a_device_that_runs_its_programs(tmp_path: Path) -> None:
    """RT-7: a core for a GPU on the CPU device is one sentence, and the other way round."""
    for prepared_for, device, named in (("simt", "cpu", ("host", "cuda")), ("cpu", "simt", ("cuda", "host"))):
        core = prepared(tmp_path, MODELS["float32"], prepared_for)
        words = f"device {device} runs programs for '{named[0]}', this core was prepared for '{named[1]}'"
        with pytest.raises(SettingError, match=words):
            Engine.start(core, Settings(device=device, threads=1, accept=NAMESPACE))
