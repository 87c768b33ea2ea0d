"""One line of the log for each request: what was asked, how it ended, its tokens and times.

It knows no format; `helios.cli.logs` writes the line. A line holds nothing that a client wrote but the path and a request id, both
checked or escaped, and the prompt only where the setting asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from helios.scheduler.request import Event, Finished, Token, Usage

if TYPE_CHECKING:
    from helios.engine import Generation

_LOG = logging.getLogger("helios.access")
_MOST_PATH = 200
CLIENT_GONE = 499  # as other servers log a client that left before any response


class Tally:
    """Stands between a generation and whoever reads it, and remembers counts and times whichever way it ends."""

    def __init__(self, generation: Generation, clock: Callable[[], float]) -> None:
        self._generation = generation
        self._clock = clock
        self.n_output_tokens = 0
        self.first_token_s: float | None = None
        self.usage: Usage | None = None

    async def next_batch(self) -> list[Event]:
        batch = await self._generation.next_batch()
        for event in batch:
            self.n_output_tokens += isinstance(event, Token)
        if self.first_token_s is None and self.n_output_tokens:
            self.first_token_s = self._clock()
        if isinstance(last := batch[-1], Finished):
            self.usage = last.usage
        return batch

    def cancel(self) -> None:
        self._generation.cancel()


@dataclass(slots=True)
class Outcome:
    """What becomes known of a request while it is answered. Times are of the services' clock."""

    n_prompt_tokens: int | None = None
    tallies: list[Tally] = field(default_factory=list)
    finish_reasons: dict[int, str | None] = field(default_factory=dict)
    error_code: str | None = None
    prompts: list[str] | None = None

    def facts(self, arrived_s: float) -> dict[str, object]:
        """As the line has them, none that is not known."""
        reused = [tally.usage.reused_prompt_tokens for tally in self.tallies if tally.usage is not None]
        first_s = min((tally.first_token_s for tally in self.tallies if tally.first_token_s is not None), default=None)
        ends = [self.finish_reasons.get(index) or "unfinished" for index in range(len(self.tallies))]
        facts = {
            "prompt_tokens": self.n_prompt_tokens,
            "reused_tokens": max(reused, default=None),
            "output_tokens": sum(tally.n_output_tokens for tally in self.tallies) if self.tallies else None,
            "first_token_s": None if first_s is None else round(first_s - arrived_s, 4),
            "finish": ",".join(ends) or None,
            "error": self.error_code,
            "prompts": self.prompts,
        }
        return {name: value for name, value in facts.items() if value is not None}


def log_request(
    request_id: str, method: str, path: str, status: int | str | None, total_s: float | None, facts: dict[str, object]
) -> None:
    """Write the line. `status`: a number, the name of a gRPC status, or None where the client left before there was a response;
    `total_s` None: it was never read."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    fields = {
        "request_id": request_id,
        "method": quote(method, safe="")[:40],
        "path": quote(path, safe="/:@!$&'()*+,;=")[:_MOST_PATH],
        "status": CLIENT_GONE if status is None else status,
        **({} if total_s is None else {"total_s": round(total_s, 4)}),
        **facts,
    }
    _LOG.info("request", extra={"fields": fields})
