"""`scripts/evaluate`: lm-eval's clients for local servers against `helios serve`, their numbers against a direct computation.

The direct computation is numpy on the dequantised weights (tests/reference), which shares no code with the server. Everything that
the harness was told has to be near to it, and every run of the harness has to say the same.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from helios.cli.server_process import ServerProcess
from helios.corefile.reader import open_core
from helios.engine import Bootstrap
from helios.ignition.prepared_core import prepared_core
from helios.ignition.pull import pull_default_model
from helios.tokenizer.tokenizer import Tokenizer
from scripts.evaluation.harness import ROOT, Sample, evaluate, harness_python, samples
from tests.reference.llama_numpy import LlamaReference

MOST_DIFFERENCE = 0.10  # of a token's log-probability, in the mean, as tests/runtime/test_reference.py has it
MOST_SINGLE_DIFFERENCE = 0.3  # of one continuation, a token: a token too many or too few is further off
MOST_MARGIN_OF_A_TIE = 0.5
SCORED_TASKS = ["helios_choice", "helios_rolling"]
TASKS = [*SCORED_TASKS, "helios_generation"]
Encode = Callable[[str], list[int]]


class Witness:
    """The direct computation: log-likelihoods of continuations, and whether a text is what greedy decoding gives."""

    def __init__(self, gguf: Path, tokenizer: Tokenizer) -> None:
        self._reference = LlamaReference(gguf)
        self.encode: Encode = lambda text: tokenizer.encode(text, allow_special=True)
        self._first = tokenizer.encode("<|im_start|>", allow_special=True)

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, int]:
        """And the number of tokens. As the harness has it: a context's last blanks belong to the continuation."""
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        whole = self.encode(context + continuation)
        return self._sum(whole, len(self.encode(context)))

    def rolling(self, text: str) -> tuple[float, int]:
        """Of a whole text, behind the first token of all texts."""
        return self._sum(self._first + self.encode(text), len(self._first))

    def least_margin(self, prompt: str, answer: str) -> float:
        """How far from the likeliest the answer's tokens are at most: 0 for greedy decoding, a little where there was a tie."""
        tokens, n_prompt = self.encode(prompt + answer), len(self.encode(prompt))
        rows = self._reference.logprobs(tokens)[n_prompt - 1 : -1]
        return float(
            max((row.max() - row[token] for row, token in zip(rows, tokens[n_prompt:], strict=True)), default=0)
        )

    def _sum(self, tokens: list[int], n_context: int) -> tuple[float, int]:
        rows = self._reference.logprobs(tokens)[n_context - 1 : -1]
        return sum(float(row[token]) for row, token in zip(rows, tokens[n_context:], strict=True)), len(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/evaluate", description=__doc__)
    parser.add_argument(
        "--python", type=Path, help="an interpreter that has lm_eval[api] (default: one of our own, made once)"
    )
    parser.add_argument(
        "--product", metavar="COMMAND", default=f"{sys.executable} {ROOT / 'helios.py'}", help="how to run Helios"
    )
    chosen = parser.parse_args(arguments)
    python = chosen.python or harness_python()
    gguf = pull_default_model(lambda n_done_bytes, n_total_bytes: None)
    with open_core(prepared_core(gguf)) as core:
        witness = Witness(gguf, Bootstrap.load(core, "local").tokenizer)
    command = [*shlex.split(chosen.product), "serve", "--port", "0", "--device", "cpu"]
    with tempfile.TemporaryDirectory() as directory, ServerProcess(command) as server:
        return _evaluate(python, f"http://{server.endpoint.host}:{server.endpoint.port}", Path(directory), witness)


def _evaluate(python: Path, url: str, output: Path, witness: Witness) -> int:
    """Tokens in batches, texts all at once, and conversations."""
    completions, chats = f"{url}/v1/completions", f"{url}/v1/chat/completions"
    tokens, texts, talk = output / "tokens", output / "texts", output / "talk"
    found = evaluate(python, "local-completions", completions, TASKS, tokens, "--batch_size", "4")
    evaluate(python, "local-completions", completions, TASKS, texts, num_concurrent=4, tokenized_requests=False)
    chat_found = evaluate(
        python, "local-chat-completions", chats, ["helios_generation"], talk, "--apply_chat_template", num_concurrent=2
    )
    for task, metrics in found.items():
        _print_metrics(task, metrics)
    _print_metrics("helios_generation, as a conversation", chat_found["helios_generation"])
    is_well = _compare(witness, [samples(tokens, task) for task in SCORED_TASKS])
    for task in TASKS:
        if [each.responses for each in samples(tokens, task)] != [each.responses for each in samples(texts, task)]:
            print(f"{task}: tokens in batches and texts one by one give different answers")
            is_well = False
    margin = max(
        witness.least_margin(each.arguments[0][0], answer)
        for each in samples(tokens, "helios_generation")
        for answer in each.responses
    )
    print(f"greedy answers: at most {margin:.3f} from the likeliest token by the direct computation")
    return 0 if is_well and margin <= MOST_MARGIN_OF_A_TIE else 1


def _compare(witness: Witness, tasks: Sequence[Sequence[Sample]]) -> bool:
    """Print how far the harness's log-likelihoods are from the direct ones, a token."""
    differences: list[float] = []
    for task in tasks:
        for sample in task:
            for given, response in zip(sample.arguments, sample.responses, strict=True):
                is_rolling = len(given) == 1
                found = float(response) if is_rolling else float(response[0])
                direct, n_tokens = witness.rolling(*given) if is_rolling else witness.loglikelihood(*given)
                differences.append(abs(found - direct) / n_tokens)
    mean = sum(differences) / len(differences)
    print(
        f"{len(differences)} log-likelihoods: {mean:.4f} a token from the direct computation, {max(differences):.4f} at most"
    )
    return mean <= MOST_DIFFERENCE and max(differences) <= MOST_SINGLE_DIFFERENCE


def _print_metrics(task: str, metrics: dict[str, float]) -> None:
    shown = {name.partition(",")[0]: value for name, value in metrics.items() if "stderr" not in name}
    print(f"{task}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if isinstance(value, float)))
