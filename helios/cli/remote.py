"""An assistant behind a server's URL: streamed chat requests over the standard library's HTTP client.

It knows the OpenAI wire and nothing of Helios. Closing an answer closes its connection, which cancels it on the server.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator
from typing import Any

from helios.cli.piece import Piece
from helios.cli.streams import Endpoint
from helios.errors import RemoteError

_TIMEOUT_S = 600.0


class RemoteAssistant:
    """See `chat.Assistant`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def reply(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        """The answer's text as it arrives. Raises RemoteError with the server's own message when it refuses."""
        connection = self._endpoint.connection(_TIMEOUT_S)
        headers = {"Content-Type": "application/json", **self._endpoint.headers}
        given = {name: value for name, value in body.items() if value is not None}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(given), headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise RemoteError(_message(response.read(), response.status))
            yield from _pieces(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._endpoint.unreachable(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Nothing is kept between answers."""


def _pieces(response: http.client.HTTPResponse) -> Iterator[Piece]:
    for line in response:
        data = line.decode("utf-8").rstrip("\r\n").removeprefix("data: ")
        if data == "[DONE]":
            return
        if not line.startswith(b"data: "):
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise RemoteError(str(chunk["error"]["message"]))
        for choice in chunk["choices"]:
            delta = choice["delta"]
            reasoning = delta.get("reasoning_content")
            yield Piece(reasoning, is_reasoning=True) if reasoning else Piece(delta.get("content") or "")
    raise RemoteError("the server ended the answer before it was complete")


def _message(body: bytes, status: int) -> str:
    """What an error response says, as far as it can be read."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}"
