"""Candidates that are the whole vocabulary, as they go over the wire: some 13 bytes a token of it, for each token of an answer
or its prompt.

It knows the fields' numbers and a distribution, no flow. It writes what the messages' own serialiser would, by columns and not by
objects: an object a candidate would take hundreds of megabytes where these take tens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.scheduler.distribution import Distribution
from helios.scheduler.request import PromptScores, Token
from helios.server.grpc.schema import inference_pb2

MAX_REPORTED = 4 << 20  # candidates of one request: 4 bytes each while they wait, 13 in the answer
N_MOST_CALLS = 2  # calls that may report so many at once; others wait for their turn

_Part = tuple[NDArray[np.uint8], NDArray[np.bool_]]  # columns of bytes, and which of them there are in each row
_ALWAYS = np.ones((1, 1), np.bool_)
_VARINT_NBYTES = 4  # ids and ranks are below 2**28
_PROMPT_INFO = bytes([inference_pb2.GenerateResponse.PROMPT_INFO_FIELD_NUMBER << 3 | 2])
_PROMPT_CANDIDATES = bytes([inference_pb2.PromptInfo.CANDIDATE_TOKENS_FIELD_NUMBER << 3 | 2])
_OUTPUTS = bytes([inference_pb2.GenerateResponse.OUTPUTS_FIELD_NUMBER << 3 | 2])
_CANDIDATES = bytes([inference_pb2.SequenceOutput.CANDIDATE_TOKENS_FIELD_NUMBER << 3 | 2])
_TOKEN, _ID, _LOGPROB, _RANK = 1 << 3 | 2, 1 << 3, 2 << 3 | 5, 3 << 3  # CandidateTokenInfo and its TokenInfo


def serialized(
    response: inference_pb2.GenerateResponse, scores: PromptScores | None = None, tokens: Sequence[Token] = ()
) -> bytes:
    """The response with every candidate of each of `tokens`, and of each of the prompt's, whose first has none, by `scores`."""
    parts: list[bytes] = []
    if response.HasField("prompt_info"):
        infos = [] if scores is None else [b"", *map(_info, scores.tokens)]
        parts += _with_candidates(_PROMPT_INFO, response.prompt_info, _PROMPT_CANDIDATES, infos)
    if response.HasField("outputs"):
        parts += _with_candidates(_OUTPUTS, response.outputs, _CANDIDATES, [_info(token) for token in tokens])
    return b"".join(parts)


def _with_candidates(field: bytes, message: Any, candidates_field: bytes, infos: Sequence[bytes]) -> list[bytes]:
    """A field of a message, that message having a field of candidates for each of `infos`."""
    parts = [message.SerializeToString()]
    for info in infos:
        parts += (candidates_field, _length(len(info)), info)
    return [field, _length(sum(map(len, parts))), *parts]


def _info(token: Token) -> bytes:
    return b"" if token.distribution is None else candidates(token.distribution, token.token_id)


def candidates(distribution: Distribution, chosen: int) -> bytes:
    """A CandidateTokenInfo: every token but the `chosen` one, most likely first, with its rank among all."""
    ids = distribution.ids_by_rank()
    ranks = np.flatnonzero(ids != chosen) + 1
    ids = ids[ranks - 1]
    id_bytes, id_kept = _varints(ids)
    rank_bytes, rank_kept = _varints(ranks)
    n = len(ids)
    entry_nbytes = id_kept.sum(1) + rank_kept.sum(1) + 7  # three tags and a float
    logprobs = distribution.logprobs(ids).astype("<f4").view(np.uint8).reshape(n, 4)
    parts: list[_Part] = [
        (_column(_TOKEN, n), _ALWAYS),
        (entry_nbytes.astype(np.uint8)[:, np.newaxis], _ALWAYS),
        (_column(_ID, n), _ALWAYS),
        (id_bytes, id_kept),
        (_column(_LOGPROB, n), _ALWAYS),
        (logprobs, _ALWAYS),
        (_column(_RANK, n), _ALWAYS),
        (rank_bytes, rank_kept),
    ]
    rows = np.concatenate([part for part, _ in parts], axis=1)
    is_kept = np.concatenate([np.broadcast_to(kept, part.shape) for part, kept in parts], axis=1)
    return bytes(rows[is_kept].data)


def _column(byte: int, n: int) -> NDArray[np.uint8]:
    return np.full((n, 1), byte, np.uint8)


def _varints(values: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Each value's bytes, seven bits in each, and which of them there are."""
    shifted = values[:, np.newaxis] >> (7 * np.arange(_VARINT_NBYTES))
    is_kept = shifted > 0
    is_kept[:, 0] = True
    return ((shifted & 0x7F) | (shifted > 0x7F) << 7).astype(np.uint8), is_kept


def _length(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])
