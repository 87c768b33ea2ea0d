"""What ends an answer early: string stops, stop tokens and stop sequences, checked into StopRules.

It knows the fields and their limits (STOP-1, STOP-4) and matches nothing. A request has string stops or token stops, never both,
and no string stops where the answer's form is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helios.errors import InvalidValueError
from helios.server.fields import Fields, checked_text, read_token_ids

MAX_STOPS = 4
MAX_STOP_BYTES = 4096
MAX_STOP_TOKENS = 1024
MAX_SEQUENCES = 16
MAX_SEQUENCE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class StopRules:
    """`token_ids` are sequences of one; both kinds of token stops are left out of what is shown."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    sequences: tuple[tuple[int, ...], ...] = ()

    @property
    def token_sequences(self) -> tuple[tuple[int, ...], ...]:
        """Every token stop as a sequence."""
        return (*((token_id,) for token_id in self.token_ids), *self.sequences)


def read_stops(fields: Fields, vocabulary: int, stop_name: str = "stop") -> StopRules:
    """The stops in a request body; string stops are in field `stop_name`."""
    rules = StopRules(
        _read_strings(fields, stop_name), _read_stop_tokens(fields, vocabulary), _read_sequences(fields, vocabulary)
    )
    if rules.strings and rules.token_sequences:
        name = "stop_token_ids" if rules.token_ids else "stop_token_sequences"
        raise InvalidValueError(f"{stop_name} cannot be combined with {name}", hint="use one of them", param=stop_name)
    return rules


def check_ending(rules: StopRules, form_param: str | None, *, ignores_eos: bool, stop_name: str = "stop") -> None:
    """What cannot stand beside structured output, which the field `form_param` asks for: string stops (STOP-1), since the form ends
    the answer, and no end at all."""
    if form_param is None:
        return
    name = form_param.partition(".")[0]
    if rules.strings:
        raise InvalidValueError(
            f"{stop_name} cannot be combined with {name}", hint="the form ends the answer", param=stop_name
        )
    if ignores_eos:
        raise InvalidValueError(
            f"ignore_eos cannot be combined with {name}", hint="the form ends the answer", param="ignore_eos"
        )


def _read_strings(fields: Fields, name: str) -> tuple[str, ...]:
    """STOP-1: null, one nonempty string, or up to four totalling at most 4096 UTF-8 bytes; an empty list disables."""
    value = fields.value(name)
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise fields.refuse(name, f"a nonempty text or a list of at most {MAX_STOPS} of them")
    n_bytes = sum(len(checked_text(stop, name).encode()) for stop in stops)
    if n_bytes > MAX_STOP_BYTES:
        raise InvalidValueError(f"{name} has {n_bytes:,} bytes, the limit is {MAX_STOP_BYTES:,}", param=name)
    return tuple(stops)


def _read_stop_tokens(fields: Fields, vocabulary: int) -> tuple[int, ...]:
    values = fields.list("stop_token_ids") or []
    if len(values) > MAX_STOP_TOKENS:
        raise InvalidValueError(
            f"stop_token_ids has {len(values):,} ids, the limit is {MAX_STOP_TOKENS:,}", param="stop_token_ids"
        )
    return tuple(dict.fromkeys(read_token_ids(values, "stop_token_ids", vocabulary)))


def _read_sequences(fields: Fields, vocabulary: int) -> tuple[tuple[int, ...], ...]:
    """STOP-4: at most 16 sequences of 1 to 64 token ids."""
    name = "stop_token_sequences"
    values = fields.list(name) or []
    if len(values) > MAX_SEQUENCES:
        raise InvalidValueError(f"{name} has {len(values):,} sequences, the limit is {MAX_SEQUENCES}", param=name)
    return tuple(_read_sequence(value, f"{name}[{index}]", vocabulary) for index, value in enumerate(values))


def _read_sequence(value: Any, param: str, vocabulary: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SEQUENCE_TOKENS:
        raise InvalidValueError(f"{param} must be a list of 1 to {MAX_SEQUENCE_TOKENS} token ids", param=param)
    return read_token_ids(value, param, vocabulary)
