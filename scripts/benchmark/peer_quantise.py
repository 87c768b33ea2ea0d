"""A checkpoint in another format, written by the peer's own quantiser: peer_quantise.py GGUF FORMAT OUTPUT.

It runs in the bench environment. Matrices become FORMAT whatever they were; the head gets what the quantiser gives it.
"""

from __future__ import annotations

import sys

import llama_cpp  # type: ignore[import-not-found]


def main() -> int:
    source, name, output = sys.argv[1:]
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name.upper()}")
    parameters.allow_requantize = True
    return int(llama_cpp.llama_model_quantize(source.encode(), output.encode(), parameters))


if __name__ == "__main__":
    sys.exit(main())
