"""`stopping`: when an answer ends.

It knows the fields and their limits and matches nothing. Stops of both kinds may be combined, with each other and with a form.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import InvalidValueError
from helios.server.grpc.fields import checked_count, checked_ids
from helios.server.grpc.schema import inference_pb2
from helios.server.stop_fields import MAX_STOP_BYTES, MAX_STOP_TOKENS

MAX_STOP_STRINGS = 64


@dataclass(frozen=True, slots=True)
class Stopping:
    """`n_most` new tokens, None: as many as the context holds. `n_least`: none of the others before so many."""

    n_most: int | None
    n_least: int
    token_ids: tuple[int, ...]
    strings: tuple[str, ...]
    shows_stop: bool
    ignores_eos: bool


def read_stopping(stopping: inference_pb2.StoppingCriteria, vocabulary: int, n_default: int | None) -> Stopping:
    """`n_default` stands for a limit of 0."""
    return Stopping(
        n_most=stopping.max_new_tokens or n_default,
        n_least=stopping.min_new_tokens,
        token_ids=_read_tokens(stopping, vocabulary),
        strings=_read_strings(stopping),
        shows_stop=stopping.include_stop_strings,
        ignores_eos=stopping.ignore_eos,
    )


def _read_tokens(stopping: inference_pb2.StoppingCriteria, vocabulary: int) -> tuple[int, ...]:
    param = "stopping.stop_token_ids"
    checked_count(stopping.stop_token_ids, param, MAX_STOP_TOKENS, "ids")
    return tuple(dict.fromkeys(checked_ids(stopping.stop_token_ids, param, vocabulary)))


def _read_strings(stopping: inference_pb2.StoppingCriteria) -> tuple[str, ...]:
    param, strings = "stopping.stop_strings", tuple(stopping.stop_strings)
    checked_count(strings, param, MAX_STOP_STRINGS, "strings")
    if "" in strings:
        raise InvalidValueError(f"{param}[{strings.index('')}] is empty", param=param)
    n_bytes = sum(len(string.encode()) for string in strings)
    if n_bytes > MAX_STOP_BYTES:
        raise InvalidValueError(f"{param} has {n_bytes:,} bytes, the limit is {MAX_STOP_BYTES:,}", param=param)
    return strings
