"""The same model through another program, if one that uses the GPU is installed. Each runs in a process of its own.

It knows no device of ours. A peer that is there and does not take the file is told as such, never left out in silence.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROMPT_TOKENS, NEW_TOKENS = 512, 128
PROMPT = list(range(100, 100 + PROMPT_TOKENS))


def peer_lines(checkpoint: Path, limit_s: float) -> list[str]:
    """A line for each peer that is installed."""
    installed = [name for name in _PEERS if importlib.util.find_spec(name)]
    return [_asked(name, checkpoint, limit_s / len(installed)) for name in installed] or ["peer: none is installed"]


def _asked(name: str, checkpoint: Path, limit_s: float) -> str:
    command = [sys.executable, "-m", "scripts.gpu_checking.peer", name, str(checkpoint)]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"peer: {name} took more than {limit_s:.0f} s"
    lines = (result.stdout if result.returncode == 0 else result.stderr).split("\n")
    said = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return f"peer: {said}" if result.returncode == 0 else f"peer: {name} failed: {said}"


def _llama_cpp(checkpoint: str) -> str:
    import llama_cpp  # type: ignore[import-not-found]

    name = f"llama-cpp-python {llama_cpp.__version__}"
    if not llama_cpp.llama_supports_gpu_offload():
        return f"none ({name} is built for the CPU)"
    model = llama_cpp.Llama(checkpoint, n_gpu_layers=-1, n_ctx=1024, n_batch=PROMPT_TOKENS, verbose=False)
    model.eval(PROMPT)
    model.reset()
    begin_s = time.perf_counter()
    model.eval(PROMPT)
    prefill_s = time.perf_counter() - begin_s
    tokens = model.generate(PROMPT[:16], temp=0.0)
    next(tokens)
    begin_s = time.perf_counter()
    for _ in range(NEW_TOKENS):
        next(tokens)
    decode_s = time.perf_counter() - begin_s
    return f"{name}: prefill {PROMPT_TOKENS / prefill_s:,.0f} tok/s, decode 1 lane {NEW_TOKENS / decode_s:,.0f} tok/s"


def _vllm(checkpoint: str) -> str:
    import vllm  # type: ignore[import-not-found]

    model = vllm.LLM(checkpoint, skip_tokenizer_init=True, max_model_len=1024, enable_prefix_caching=False)

    def run_s(n_lanes: int, n_prompt: int, n_new: int) -> float:
        how: Any = vllm.SamplingParams(temperature=0.0, max_tokens=n_new, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": [100 + lane, *PROMPT[1:n_prompt]]} for lane in range(n_lanes)]
        model.generate(prompts, how, use_tqdm=False)
        begin_s = time.perf_counter()
        model.generate(prompts, how, use_tqdm=False)
        return time.perf_counter() - begin_s

    rates = [f"prefill {PROMPT_TOKENS / run_s(1, PROMPT_TOKENS, 1):,.0f} tok/s"]
    for n_lanes in (1, 8, 32, 128, 256):
        elapsed_s = run_s(n_lanes, 16, 1 + NEW_TOKENS // 2) - run_s(n_lanes, 16, 1)
        rates.append(f"decode {n_lanes} lanes {n_lanes * (NEW_TOKENS // 2) / elapsed_s:,.0f} tok/s")
    return f"vllm {vllm.__version__}: {', '.join(rates)}"


_PEERS = {"llama_cpp": _llama_cpp, "vllm": _vllm}

if __name__ == "__main__":
    print(_PEERS[sys.argv[1]](sys.argv[2]))
