"""The log on stderr: as text for people, or one JSON object a line.

It knows formats and no subject; a record's `fields` come from whoever logs. Nobody waits for the reader of stderr: a thread of its
own writes, and when the reader takes nothing, lines are dropped and their number is told as soon as it goes on.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from helios.settings import Settings

_N_QUEUED_LINES = 10_000
_CLOSE_S = 2.0  # for the last lines; a reader that takes nothing does not hold up the end
_PLAIN = frozenset("!#$%&'()*+,-./:;<>?@[]^_`{|}~")


class TextFormatter(logging.Formatter):
    """`2026-11-30T02:12:02.123Z INFO helios.access: request status=200 ...`; a value with spaces or quotes is a JSON string."""

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{pairs}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": "info", "logger": ..., "message": ...}` and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)


class LineWriter(logging.Handler):
    """Hands formatted lines to a thread that writes them to a descriptor."""

    def __init__(self, descriptor: int, n_queued: int = _N_QUEUED_LINES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(n_queued)
        self._n_lost = 0  # so far; only who emits counts, under the handler's lock
        self._thread = threading.Thread(target=self._write_all, name="helios-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            self._n_lost += 1
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write what is queued, or give up on a reader that takes nothing."""
        try:
            self._lines.put(None, timeout=_CLOSE_S)
            self._thread.join(_CLOSE_S)
        except queue.Full:
            pass
        super().close()

    def _write_all(self) -> None:
        n_told, is_closed = 0, False
        while not is_closed:
            line = self._lines.get()
            is_closed, text = line is None, line or ""
            n_lost = self._n_lost
            if n_lost > n_told and self._lines.empty():
                text += f"{n_lost - n_told} lines of the log were lost, because nobody read it\n"
                n_told = n_lost
            if not self._write(text.encode(errors="backslashreplace")):
                return

    def _write(self, line: bytes) -> bool:
        """False once nobody can read any more."""
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except OSError:
                return False
        return True


@contextmanager
def logging_to(descriptor: int, settings: Settings) -> Iterator[None]:
    """Log as the settings say until the block ends."""
    writer = LineWriter(descriptor)
    writer.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    root, package = logging.getLogger(), logging.getLogger("helios")
    root.addHandler(writer)
    package.setLevel(settings.log_level.upper())
    try:
        yield
    finally:
        root.removeHandler(writer)
        package.setLevel(logging.NOTSET)
        writer.close()


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    is_plain = all(character in _PLAIN or (character.isascii() and character.isalnum()) for character in text)
    return text if text and is_plain else json.dumps(text)
