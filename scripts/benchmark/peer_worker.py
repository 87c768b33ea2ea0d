"""The peer's side of scripts/bench: llama.cpp in process, driven by one JSON line a command on stdin.

It runs in the bench environment, knows nothing of Helios, and imports nothing but numpy and llama_cpp. Between commands it
waits in a read, so it takes no processor time while the product is measured; every time it reports was taken in here.
"""

from __future__ import annotations

import ctypes
import json
import random
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import llama_cpp  # type: ignore[import-not-found]
import numpy

PLAIN_TOKENS = range(1000, 40000)  # ordinary words of the vocabulary, no control tokens


class Peer:
    """One llama.cpp model and context. Sequences are numbered 0 to n_sequences - 1 and start empty in every measurement."""

    def __init__(
        self, gguf: str, n_threads: int, n_sequences: int, n_context: int, is_repacked: bool, is_unified: bool
    ):
        self.log = _Log()
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.use_extra_bufts = is_repacked
        self.model = llama_cpp.llama_model_load_from_file(gguf.encode(), model)
        if not self.model:
            raise SystemExit(f"the peer cannot load {gguf}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = n_context
        context.n_batch = context.n_ubatch = 512
        context.n_seq_max = n_sequences
        context.n_threads = context.n_threads_batch = n_threads
        context.kv_unified = is_unified
        context.no_perf = True
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        if not self.context:
            raise SystemExit(f"the peer cannot make a context of {n_context:,} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.n_sequences = n_sequences
        self.n_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, n_streams: int, n_prompt: int, n_new: int, seed: int) -> dict[str, Any]:
        """Greedy decode of n_streams sequences in one batch a step; times of the first and the last step's tokens."""
        pending = self._prompts(n_streams, n_prompt, seed)
        started_ns = time.perf_counter_ns()
        for step in range(n_new - 1):
            position = n_prompt + step
            self._submit([(token, position, stream, True) for stream, token in enumerate(pending)])
            pending = [self._greedy(row) for row in range(n_streams)]
        elapsed_s = (time.perf_counter_ns() - started_ns) / 1e9
        return {"tokens_per_s": n_streams * (n_new - 1) / elapsed_s}

    def first_token(self, n_prompt: int, seed: int) -> dict[str, Any]:
        """Time from a prompt of n_prompt tokens to its first token, on an empty context."""
        started_ns = time.perf_counter_ns()
        self._prompts(1, n_prompt, seed)
        return {"seconds": (time.perf_counter_ns() - started_ns) / 1e9}

    def prefix_first_token(self, n_prefix: int, n_new_prompt: int, seed: int) -> dict[str, Any]:
        """Time to first token of a prompt whose first n_prefix tokens are in the cache from the prompt before it."""
        self._prompts(1, n_prefix + n_new_prompt, seed)
        started_ns = time.perf_counter_ns()
        llama_cpp.llama_memory_seq_rm(self.memory, 0, n_prefix, -1)
        self._prompt(0, n_prefix, random.Random(seed + 1).choices(PLAIN_TOKENS, k=n_new_prompt))
        return {"seconds": (time.perf_counter_ns() - started_ns) / 1e9}

    def chats(self, n_chats: int, n_prefix: int, n_question: int, n_new: int, seed: int) -> dict[str, Any]:
        """n_chats greedy answers behind one prefix, which is computed once and copied to every sequence. As many chats at a time as
        there are sequences: their questions in one batch, their answers in step."""
        llama_cpp.llama_memory_clear(self.memory, False)
        generator = random.Random(seed)
        started_ns = time.perf_counter_ns()
        self._prompt(0, 0, generator.choices(PLAIN_TOKENS, k=n_prefix))
        for sequence in range(1, self.n_sequences):
            llama_cpp.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        for first in range(0, n_chats, self.n_sequences):
            sequences = range(min(self.n_sequences, n_chats - first))
            rows = []
            for sequence in sequences:
                llama_cpp.llama_memory_seq_rm(self.memory, sequence, n_prefix, -1)
                question = generator.choices(PLAIN_TOKENS, k=n_question)
                rows += [(token, n_prefix + at, sequence, at == n_question - 1) for at, token in enumerate(question)]
            self._submit(rows)
            pending = [self._greedy((sequence + 1) * n_question - 1) for sequence in sequences]
            for step in range(n_new - 1):
                position = n_prefix + n_question + step
                self._submit(
                    [(token, position, sequence, True) for sequence, token in zip(sequences, pending, strict=True)]
                )
                pending = [self._greedy(row) for row in sequences]
        elapsed_s = (time.perf_counter_ns() - started_ns) / 1e9
        return {"tokens_per_s": n_chats * n_new / elapsed_s}

    def facts(self) -> dict[str, Any]:
        """The build's version and processor features, the model's size (tied weights counted once), and the MiB of weights in
        each kind of buffer: beside those mapped from the file, what was laid out anew for this processor."""
        return {
            "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode().strip(" |\n"),
            "weights_mib": self.log.weights_mib(),
            "weight_bytes": llama_cpp.llama_model_size(self.model),
            "n_parameters": llama_cpp.llama_model_n_params(self.model),
            "n_head_parameters": self.n_vocabulary * llama_cpp.llama_model_n_embd(self.model),
        }

    def _prompts(self, n_streams: int, n_prompt: int, seed: int) -> list[int]:
        """Fill n_streams emptied sequences with random prompts; the first token of each."""
        llama_cpp.llama_memory_clear(self.memory, False)
        generator = random.Random(seed)
        first = []
        for stream in range(n_streams):
            first.append(self._prompt(stream, 0, generator.choices(PLAIN_TOKENS, k=n_prompt)))
        return first

    def _prompt(self, sequence: int, position: int, tokens: list[int]) -> int:
        """Compute tokens from `position` of a sequence on; the greedy next one."""
        last = len(tokens) - 1
        rows = [(token, position + at, sequence, at == last) for at, token in enumerate(tokens)]
        for start in range(0, len(rows), 512):
            self._submit(rows[start : start + 512])
        return self._greedy(-1)

    def _submit(self, rows: list[tuple[int, int, int, bool]]) -> None:
        batch = self.batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, has_logits) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = has_logits
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise SystemExit(f"llama_decode answered {status} for {len(rows)} tokens")

    def _greedy(self, row: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(numpy.argmax(numpy.ctypeslib.as_array(logits, shape=(self.n_vocabulary,))))


class _Log:
    """Takes the library's log, hundreds of lines, off stderr, and keeps what it says of the buffers of weights."""

    def __init__(self) -> None:
        self._buffers: list[str] = []
        self._callback = llama_cpp.llama_log_callback(self._take)  # the library calls it as long as the process lives
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _take(self, level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
        if b"model buffer size" in text:
            self._buffers.append(text.decode(errors="replace"))

    def weights_mib(self) -> dict[str, float]:
        found = re.findall(r"(\S+) model buffer size = +([\d.]+) MiB", "\n".join(self._buffers))
        return {kind: float(size) for kind, size in found}


def main() -> None:
    peer = Peer(**json.loads(sys.argv[1]))
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "decode": peer.decode,
        "first_token": peer.first_token,
        "prefix_first_token": peer.prefix_first_token,
        "chats": peer.chats,
        "facts": peer.facts,
    }
    for line in sys.stdin:
        command = json.loads(line)
        answer = commands[command.pop("do")](**command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
