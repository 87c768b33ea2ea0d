"""From the vocabulary in a GGUF's metadata to the tokenizer asset of a core (a tokenizer.json), and the facts beside it.

It knows two kinds of vocabulary: byte-level BPE ("gpt2") and SentencePiece BPE with byte fallback ("llama"). Equal metadata
gives equal bytes, and every asset was loaded once before it is returned: each token has the id that the checkpoint gave it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from helios.errors import CheckpointError, CoreError
from helios.ignition.checkpoints.gguf import Gguf
from helios.ignition.preparation.pretokenizers import PreTokenizer, pre_tokenizer
from helios.tokenizer.tokenizer import Tokenizer

_SPACE = "\u2581"  # SentencePiece's visible space
_MAX_PIECE_CHARACTERS = 256
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
# Spellings that end an answer in chat-tuned models. A GGUF names one end token, and tuned models emit others as well.
_END_TEXTS = frozenset(
    {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>"}
)


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """What serving needs to know of the vocabulary. `end_tokens` holds every id that ends an answer, ascending."""

    vocabulary_size: int
    bos_token: int | None
    eos_token: int | None
    eot_token: int | None
    end_tokens: tuple[int, ...]
    bos_text: str
    eos_text: str
    adds_bos: bool
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: list[str]
    ids: dict[str, int]
    kinds: list[TokenKind]
    bos_token: int | None
    eos_token: int | None
    eot_token: int | None


def prepare_tokenizer(gguf: Gguf) -> tuple[bytes, TokenizerFacts]:
    """The tokenizer.json and its facts; CheckpointError when the metadata is incomplete or contradicts itself."""
    vocabulary = _read_vocabulary(gguf)
    model = gguf.text("tokenizer.ggml.model")
    if model == "gpt2":
        style = pre_tokenizer(gguf.text("tokenizer.ggml.pre", "default"))
        settings = _byte_level_settings(vocabulary, _read_merges(gguf, vocabulary), style)
        adds_bos = style.adds_bos
    elif model == "llama":
        settings = _sentencepiece_settings(gguf, vocabulary)
        adds_bos = True
    else:
        raise CheckpointError(
            f"metadata 'tokenizer.ggml.model' is {model[:100]!r}, which this build does not know",
            hint="it knows 'gpt2' and 'llama'",
        )
    asset = json.dumps(settings, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    _check_asset(asset, vocabulary)
    return asset, _facts(gguf, vocabulary, adds_bos=adds_bos)


def _read_vocabulary(gguf: Gguf) -> _Vocabulary:
    tokens = gguf.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise CheckpointError("metadata 'tokenizer.ggml.tokens' is empty")
    ids: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        first = ids.setdefault(token, token_id)
        if first != token_id:
            raise CheckpointError(f"tokens {first:,} and {token_id:,} are both spelled {token[:100]!r}")
    bos_token, eos_token, eot_token = (
        gguf.integer(key, maximum=len(tokens) - 1) if key in gguf.metadata else None
        for key in ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    )
    kinds = _read_kinds(gguf, len(tokens))
    for named in (bos_token, eos_token, eot_token):
        if named is not None:
            kinds[named] = TokenKind.CONTROL  # whatever the file calls it: a user must not be able to type it
    return _Vocabulary(tokens, ids, kinds, bos_token, eos_token, eot_token)


def _read_kinds(gguf: Gguf, n_tokens: int) -> list[TokenKind]:
    key = "tokenizer.ggml.token_type"
    if key not in gguf.metadata:
        return [TokenKind.NORMAL] * n_tokens
    values: list[int] = gguf.integers(key).tolist()
    if len(values) != n_tokens:
        raise CheckpointError(f"metadata {key!r} has {len(values):,} elements for {n_tokens:,} tokens")
    known = {kind.value: kind for kind in TokenKind}
    for token_id, value in enumerate(values):
        if value not in known:
            raise CheckpointError(f"element {token_id:,} of metadata {key!r} is {value:,}, it must be 1 to 6")
    return [known[value] for value in values]


def _read_merges(gguf: Gguf, vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """The merges, each known to join two tokens into a third."""
    key = "tokenizer.ggml.merges"
    merges: list[tuple[str, str]] = []
    for rank, merge in enumerate(gguf.texts(key)):
        left, _, right = merge.partition(" ")
        if not (left in vocabulary.ids and right in vocabulary.ids and left + right in vocabulary.ids):
            raise CheckpointError(
                f"element {rank:,} of metadata {key!r}, {merge[:100]!r}, does not join tokens into one"
            )
        merges.append((left, right))
    return merges


def _byte_level_settings(vocabulary: _Vocabulary, merges: list[tuple[str, str]], style: PreTokenizer) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        "normalizer": None,
        "pre_tokenizer": style.to_json(),
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocabulary, merges) | {"ignore_merges": style.ignores_merges},
    }


def _sentencepiece_settings(gguf: Gguf, vocabulary: _Vocabulary) -> dict[str, Any]:
    """A SentencePiece BPE vocabulary as the library's BPE: what merges is what is in the vocabulary, best score first.

    As in llama.cpp and the published Llama files, each run of text between added tokens gets the leading space; SentencePiece
    itself gives it to the first run only.
    """
    prefix: list[dict[str, Any]] = []
    strip: list[dict[str, Any]] = []
    if gguf.flag("tokenizer.ggml.add_space_prefix", True):
        prefix.append({"type": "Prepend", "prepend": _SPACE})
        strip.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    to_space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    from_space = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    unknown = [
        token for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True) if kind is TokenKind.UNKNOWN
    ]
    model = _bpe(vocabulary, _piece_merges(gguf, vocabulary))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, to_space]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [from_space, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": model | {"unk_token": unknown[0] if unknown else None, "fuse_unk": True, "byte_fallback": True},
    }


def _piece_merges(gguf: Gguf, vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """Every way to make a normal piece from two, in the order in which SentencePiece would merge: by falling score.

    Control, unknown and byte tokens take no part, so that no text can build one.
    """
    key = "tokenizer.ggml.scores"
    scores: list[float] = gguf.numbers(key).tolist()
    if len(scores) != len(vocabulary.tokens):
        raise CheckpointError(f"metadata {key!r} has {len(scores):,} elements for {len(vocabulary.tokens):,} tokens")
    pieces: dict[str, int] = {}
    for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        if kind is TokenKind.BYTE and not _BYTE_TOKEN.fullmatch(token):
            raise CheckpointError(f"token {token_id:,} is a byte token spelled {token[:100]!r}, not <0xNN>")
        if kind is TokenKind.NORMAL:
            if len(token) > _MAX_PIECE_CHARACTERS:
                raise CheckpointError(
                    f"token {token_id:,} has {len(token):,} characters, the limit is {_MAX_PIECE_CHARACTERS}"
                )
            pieces[token] = token_id
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, token_id in pieces.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                ranked.append((-scores[token_id], pieces[left], pieces[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(ranked)]


def _bpe(vocabulary: _Vocabulary, merges: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary.ids,
        "merges": merges,
    }


def _added_tokens(vocabulary: _Vocabulary) -> list[dict[str, Any]]:
    """Tokens that are found in text before it is cut into words. Special ones are found only where they are allowed."""
    special = (TokenKind.CONTROL, TokenKind.UNKNOWN)
    return [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind in special,
        }
        for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in special or kind is TokenKind.USER_DEFINED
    ]


def _check_asset(asset: bytes, vocabulary: _Vocabulary) -> None:
    try:
        tokenizer = Tokenizer.from_bytes(asset)
    except CoreError as error:
        raise CheckpointError(f"the vocabulary does not make a tokenizer: {error}") from error
    if tokenizer.vocabulary_size != len(vocabulary.tokens):
        raise CheckpointError(
            f"the vocabulary has {len(vocabulary.tokens):,} tokens and makes a tokenizer of {tokenizer.vocabulary_size:,}"
        )
    for token_id, token in enumerate(vocabulary.tokens):
        if tokenizer.token_id(token) != token_id:
            raise CheckpointError(f"token {token_id:,}, {token[:100]!r}, does not keep its id in a tokenizer")


def _facts(gguf: Gguf, vocabulary: _Vocabulary, *, adds_bos: bool) -> TokenizerFacts:
    tokens, kinds, bos_token, eos_token = (
        vocabulary.tokens,
        vocabulary.kinds,
        vocabulary.bos_token,
        vocabulary.eos_token,
    )
    adds_bos = gguf.flag("tokenizer.ggml.add_bos_token", adds_bos and bos_token is not None)
    if adds_bos and bos_token is None:
        raise CheckpointError(
            "metadata 'tokenizer.ggml.add_bos_token' is true, and 'tokenizer.ggml.bos_token_id' is missing"
        )
    named = {token_id for token_id in (eos_token, vocabulary.eot_token) if token_id is not None}
    spelled = {
        token_id
        for token_id, token in enumerate(tokens)
        if token in _END_TEXTS and kinds[token_id] is TokenKind.CONTROL
    }
    template_key = "tokenizer.chat_template"
    return TokenizerFacts(
        vocabulary_size=len(tokens),
        bos_token=bos_token,
        eos_token=eos_token,
        eot_token=vocabulary.eot_token,
        end_tokens=tuple(sorted(named | spelled)),
        bos_text="" if bos_token is None else tokens[bos_token],
        eos_text="" if eos_token is None else tokens[eos_token],
        adds_bos=adds_bos,
        chat_template=gguf.text(template_key) if template_key in gguf.metadata else None,
    )
