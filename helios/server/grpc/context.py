"""One call as the service sees it: its status, its metadata, its flow control, around the library's own context.

It knows grpcio and the error tree. Every call ends with exactly one status: what a handler raises becomes the status of its class
with a short sentence, and what nobody meant is logged here and becomes INTERNAL.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from helios.errors import HeliosError, InternalError, InvalidValueError
from helios.server.access_log import Outcome, log_request
from helios.server.grpc.message_room import MessageRoom, Turn
from helios.server.grpc.stall_watch import StallWatch
from helios.server.services import Services
from helios.server.status import status_of

MAX_DETAIL_CHARACTERS = 1000
# Each is up to three bytes of a trailer; of more than about 8 KiB clients report another error than ours.
_MAX_DETAIL_NBYTES = 1300
_MAX_METADATA_CHARACTERS = 2000
_LOG = logging.getLogger(__name__)
_HARMLESS = re.compile(r"[\x21-\x7e]{1,200}")
_RANK = "x-data-parallel-rank"
_ZERO = re.compile(r"0{1,10}")

Handler = Callable[[Any, "CallContext"], Awaitable[Any]]


class CallContext:
    """What a handler may do with its call, and what becomes known of it. `arrived_s`: when its message was there whole;
    `request_id`: the caller's where it can be shown, else a new one."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], services: Services) -> None:
        self._context = context
        self._clock = services.clock
        self._turn: Turn | None = None
        self._stall_watch = StallWatch(services.settings.stall_timeout)
        self.request_id = f"req-{secrets.token_hex(12)}"
        self.arrived_s: float | None = None
        self.outcome = Outcome()
        self.headers = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}

    async def read(self, room: MessageRoom) -> Any:
        """The call's message, when it is its turn; the turn lasts until `end_turn`, or until the call ends."""
        self._turn = await room.take(self._context.peer())
        message = await self._turn.read(self._context)
        self.arrived_s = self._clock()
        return message

    def end_turn(self) -> None:
        """The message is prepared: the next one may be read."""
        if self._turn is not None:
            self._turn.end()

    async def write(self, message: Any) -> None:
        """Send one message of a stream; waits while the reader takes nothing, and not for ever."""
        await self._stall_watch.watch(self._context.write(message))

    def close(self) -> None:
        self.end_turn()
        self._stall_watch.close()

    def tell(self, request_id: str, unknown_actions: Sequence[tuple[str, str]] = ()) -> None:
        """Trailing metadata: the request's name, and the hints that had no effect."""
        metadata = []
        if _HARMLESS.fullmatch(request_id):
            self.request_id = request_id
            metadata.append(("x-request-id", request_id))
        if unknown_actions:
            metadata.append(("x-kv-hints-ignored", _listed(unknown_actions)))
        self._context.set_trailing_metadata(tuple(metadata))

    def log(self, path: str, status: str) -> None:
        """The line of this call, with the name of its status."""
        began_s, facts = self.arrived_s, self.outcome.facts(self.arrived_s or 0.0)
        log_request(self.request_id, "gRPC", path, status, None if began_s is None else self._clock() - began_s, facts)

    def check_rank(self) -> None:
        """A router may name the rank that is to answer; there is one, 0."""
        rank = self.headers.get(_RANK, "0")
        if not _ZERO.fullmatch(rank):
            raise InvalidValueError(f"{_RANK} is {rank[:40]!r}, this server has rank 0 only", param=_RANK)


def short(detail: str) -> str:
    """As much of a sentence as fits into a status."""
    return detail[:MAX_DETAIL_CHARACTERS].encode(errors="replace")[:_MAX_DETAIL_NBYTES].decode(errors="ignore")


def _listed(actions: Sequence[tuple[str, str]]) -> str:
    """JSON in ASCII, as many of them as are short enough for a header."""
    entries: list[str] = []
    n_characters = 0
    for action_id, action_type in actions:
        entry = json.dumps({"action_id": action_id[:200], "action_type": action_type[:200]})
        n_characters += len(entry) + 2
        if n_characters > _MAX_METADATA_CHARACTERS:
            break
        entries.append(entry)
    return f"[{', '.join(entries)}]"


def answering(path: str, handler: Handler, services: Services, room: MessageRoom, *, is_generating: bool) -> Any:
    """A method for grpcio: `handler` for callers who have a key and for whom there is room, whose message is read in `room` and not
    before, and after it exactly one status, counted under the method's own path, and one line of the log."""
    count = services.metrics.count_request

    async def answer(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        call = CallContext(context, services)
        error: HeliosError | None = None
        status = "CANCELLED"  # unless it ends otherwise: the caller has gone, or its deadline has passed
        try:
            services.access.check(call.headers)
            if is_generating:
                services.engine.admit().release()  # only asks: a slow message must not hold a permit
            result = await handler(await call.read(room), call)
            status = "OK"
            return result
        except HeliosError as caught:
            error = caught
            if isinstance(error, InternalError):
                _LOG.error("%s failed: %s", path, error)
            status = status_of(error).grpc_code
        except Exception:
            _LOG.exception("%s failed", path)
            error = InternalError("the server failed while it answered")
            status = "INTERNAL"
        finally:
            call.close()
            count(path, status)
            if error is not None:
                call.outcome.error_code = error.code
            call.log(path, status)
        return await context.abort(grpc.StatusCode[status], short(str(error)))

    return answer
