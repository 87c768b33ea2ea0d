"""The error object of the Anthropic API, for refusals and for the last event of a stream that failed.

It knows statuses and no endpoint: the status, which `status.py` decides, has its type there.
"""

from __future__ import annotations

from helios.errors import HeliosError
from helios.server.status import status_of

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def message_error(error: HeliosError) -> dict[str, object]:
    """The body, or the event."""
    number = status_of(error).number
    kind = _TYPES.get(number, "api_error" if number >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}
