"""The one place where errors become statuses: class -> HTTP status, OpenAI error type, extra headers, gRPC code.

It knows the error tree and nothing of requests. The nearest class in the table decides, never a message's text; a class that
is not in the table is ours to answer for and becomes a 500, or INTERNAL.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import (
    AccessError,
    CapacityError,
    FeatureError,
    HeliosError,
    OutOfMemoryError,
    QueueFullError,
    RequestError,
    StreamsFullError,
    UnknownModelError,
    UnsupportedError,
    WaitingFullError,
)


class WireError(RequestError):
    """The HTTP message itself is refused, with its own status."""

    code = "bad_http"

    def __init__(self, status: int, message: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Status:
    """How an error looks on the wire. `grpc_code` is the name of the code there."""

    number: int
    type: str
    grpc_code: str
    headers: tuple[tuple[str, str], ...] = ()


_RETRY = (("Retry-After", "1"),)
_CHALLENGE = (("WWW-Authenticate", 'Bearer realm="helios"'),)
_SERVER_ERROR = Status(500, "server_error", "INTERNAL")

# The most derived class that matches wins: an error's classes are tried in method resolution order.
_TABLE: dict[type[HeliosError], Status] = {
    AccessError: Status(401, "authentication_error", "UNAUTHENTICATED", _CHALLENGE),
    UnknownModelError: Status(404, "invalid_request_error", "NOT_FOUND"),
    UnsupportedError: Status(400, "invalid_request_error", "UNIMPLEMENTED"),
    FeatureError: Status(400, "invalid_request_error", "FAILED_PRECONDITION"),
    RequestError: Status(400, "invalid_request_error", "INVALID_ARGUMENT"),
    QueueFullError: Status(429, "rate_limit_error", "RESOURCE_EXHAUSTED", _RETRY),
    WaitingFullError: Status(429, "rate_limit_error", "RESOURCE_EXHAUSTED", _RETRY),
    StreamsFullError: Status(429, "rate_limit_error", "RESOURCE_EXHAUSTED", _RETRY),
    OutOfMemoryError: _SERVER_ERROR,
    CapacityError: Status(503, "service_unavailable_error", "UNAVAILABLE", _RETRY),
}

_REASONS = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_encoding",
    431: "headers_too_large",
}


def status_of(error: HeliosError) -> Status:
    """The status of `error`."""
    if isinstance(error, WireError):
        return Status(error.status, "invalid_request_error", "INVALID_ARGUMENT", error.headers)
    return next((_TABLE[kind] for kind in type(error).__mro__ if kind in _TABLE), _SERVER_ERROR)


def error_body(error: HeliosError) -> dict[str, object]:
    """The OpenAI error object. `param` is null unless the error names a field."""
    status = status_of(error)
    code = _REASONS.get(error.status, error.code) if isinstance(error, WireError) else error.code
    return {"error": {"message": str(error), "type": status.type, "param": error.param, "code": code}}
