"""Small vocabularies of both kinds as GGUF files, written with the `gguf` package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
from tokenizers.pre_tokenizers import ByteLevel

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

# "Ġ" is the byte-level alphabet's space.
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "r l", "Ġwo rl", "Ġworl d", "s t", "o p", "st op"]


def byte_level(
    path: Path,
    *,
    pre: str = "gpt-2",
    control: tuple[str, ...] = ("<|end|>",),
    user_defined: tuple[str, ...] = ("<think>",),
    **changes: object,
) -> Path:
    """All 256 bytes, the tokens of MERGES, control tokens, and user-defined tokens; ids in this order.

    A control token that the merges already made keeps its place and becomes control.
    """
    tokens = sorted(ByteLevel.alphabet()) + [merge.replace(" ", "") for merge in MERGES]
    kinds = [NORMAL] * len(tokens)
    for token in control:
        if token in tokens:
            kinds[tokens.index(token)] = CONTROL
        else:
            tokens.append(token)
            kinds.append(CONTROL)
    tokens += user_defined
    kinds += [USER_DEFINED] * len(user_defined)
    fields: dict[str, object] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": kinds,
        "merges": MERGES,
        "eos_token_id": tokens.index(control[0]),
    }
    return _write(path, fields | changes)


# Falling scores, as a trainer gives them; single characters come last. "el" loses to "he" and "ll".
_MADE = ("he", "\u2581he", "ll", "\u2581hell", "\u2581hello", "or", "wor", "\u2581wor", "el")
PIECES = {piece: -1.0 - index for index, piece in enumerate(_MADE)}
CHARACTERS = "\u2581ehlorw<>/s"


def sentencepiece(path: Path, **changes: object) -> Path:
    """<unk> <s> </s>, 256 byte tokens, PIECES, then single characters."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *CHARACTERS]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(PIECES) + len(CHARACTERS))
    scores = [0.0] * 259 + list(PIECES.values()) + [-100.0 - index for index in range(len(CHARACTERS))]
    fields: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": kinds,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _write(path, fields | changes)


def _write(path: Path, fields: Mapping[str, object]) -> Path:
    """Fields under `tokenizer.ggml.`, but `chat_template` where it belongs; None leaves a field out."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in fields.items():
        key = f"tokenizer.{name}" if name == "chat_template" else f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
