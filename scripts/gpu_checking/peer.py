"""The same model through another program, if one that uses the GPU is installed: one line about it."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path


def peer_line(checkpoint: Path, n_new_tokens: int = 128) -> str:
    """Decode of one stream through llama-cpp-python with GPU offload; or what is there instead."""
    if importlib.util.find_spec("llama_cpp") is None:
        found = (
            "vllm is installed, and is not run: it serves other files" if importlib.util.find_spec("vllm") else "none"
        )
        return f"peer: {found}"
    import llama_cpp  # type: ignore[import-not-found]

    if not llama_cpp.llama_supports_gpu_offload():
        return f"peer: none (llama-cpp-python {llama_cpp.__version__} is built without CUDA)"
    model = llama_cpp.Llama(str(checkpoint), n_gpu_layers=-1, n_ctx=1024, verbose=False)
    tokens = model.generate(list(range(100, 116)), temp=0.0)
    next(tokens)
    begin_s = time.perf_counter()
    for _ in range(n_new_tokens):
        next(tokens)
    rate = n_new_tokens / (time.perf_counter() - begin_s)
    return f"peer: llama-cpp-python {llama_cpp.__version__}, one stream: {rate:,.0f} tok/s"
