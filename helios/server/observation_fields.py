"""What a caller wants to know of an answer besides its text: raw tokens, their times, usage while it streams.

It knows fields and no response. Nothing asked here changes a token, and flags are booleans or null (OBS-1, OBS-2, OBS-4).
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import InvalidValueError
from helios.server.fields import Fields


@dataclass(frozen=True, slots=True)
class Observation:
    """`includes_usage`: a last chunk of a stream with usage alone. Times come with token ids only."""

    has_token_ids: bool = False
    has_times: bool = False
    includes_usage: bool = False


def read_observation(fields: Fields) -> Observation:
    """The observation flags in a request body."""
    has_token_ids = fields.boolean("return_token_ids")
    has_times = fields.boolean("return_token_timestamps")
    if has_times and not has_token_ids:
        raise InvalidValueError(
            "return_token_timestamps needs return_token_ids to be true", param="return_token_timestamps"
        )
    stream_options = fields.object("stream_options")
    includes_usage = stream_options is not None and stream_options.boolean("include_usage")
    return Observation(has_token_ids, has_times, includes_usage)
