"""The log's two forms, and a reader of stderr that takes nothing."""

from __future__ import annotations

import json
import logging
import os
import queue
from collections.abc import Iterator
from contextlib import suppress

import pytest

from helios.cli.logs import JsonFormatter, LineWriter, TextFormatter, logging_to
from helios.settings import Settings

FIELDS = {"status": 200, "path": "/a", "prompts": ['say "hi"\n'], "finish": "stop", "empty": ""}


def record(message: str = "request", **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "helios.x", "levelname": "INFO", "levelno": 20, "msg": message, **extra})
    made.created = 0.5
    return made


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes may be late on a busy machine."""
    monkeypatch.setattr("helios.cli.logs._CLOSE_S", 60.0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_text_is_one_line_of_words() -> None:
    line = TextFormatter().format(record(fields=FIELDS))
    assert line == (
        "1970-01-01T00:00:00.500Z INFO helios.x: request status=200 path=/a "
        'prompts="[\\"say \\\\\\"hi\\\\\\"\\\\n\\"]" finish=stop empty=""'
    )


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record("it is \n a line", fields=FIELDS))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "info",
        "logger": "helios.x",
        "message": "it is \n a line",
        **FIELDS,
    }


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()])
def test_an_exception_comes_with_its_trace(form: logging.Formatter) -> None:
    try:
        raise ValueError("oh")
    except ValueError as error:
        failed = record("failed", exc_info=(type(error), error, error.__traceback__))
    assert "ValueError: oh" in form.format(failed)
    assert form.format(failed).count("\n") == (0 if isinstance(form, JsonFormatter) else 4)


@pytest.mark.parametrize(("form", "level", "n_lines"), [("text", "info", 2), ("json", "info", 2), ("json", "error", 1)])
def test_a_block_logs_as_the_settings_say(pipe: tuple[int, int], form: str, level: str, n_lines: int) -> None:
    """Issue 6.7. Everything is written when the block has ended, and nothing after."""
    reading, writing = pipe
    log = logging.getLogger("helios.test")
    with logging_to(writing, Settings(log_format=form, log_level=level)):
        log.info("one", extra={"fields": {"n": 1}})
        log.error("two")
    log.error("three")
    lines = os.read(reading, 1 << 16).decode().splitlines()
    assert len(lines) == n_lines
    assert [line.startswith("{") for line in lines] == [form == "json"] * n_lines


def test_nobody_waits_for_a_reader_that_takes_nothing(pipe: tuple[int, int]) -> None:
    """A full pipe costs lines; how many is told when it is read again."""
    reading, writing = pipe
    fill(writing)
    writer = LineWriter(writing, n_queued=10)
    writer.setFormatter(TextFormatter())
    for _ in range(200):
        writer.emit(record("x" * 2000))
    received = b""
    while b"lines of the log were lost" not in received:
        received += os.read(reading, 1 << 16)
    n_lost = int(received.splitlines()[-1].split()[0])
    writer.close()
    assert received.count(b"helios.x") + n_lost == 200
    assert n_lost in (189, 190)  # ten are queued, and the writer may have one in hand


def fill(writing: int) -> None:
    """As much as the pipe takes."""
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.set_blocking(writing, True)


def test_what_was_lost_behind_the_last_line_is_told_at_the_end(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may have emptied the queue by the time a line that found it full is counted."""
    writer = LineWriter(pipe[1])
    writer.setFormatter(TextFormatter())

    def put_nowait(line: str) -> None:
        raise queue.Full

    monkeypatch.setattr(writer._lines, "put_nowait", put_nowait)
    writer.emit(record())
    writer.close()
    assert os.read(pipe[0], 1 << 16) == b"1 lines of the log were lost, because nobody read it\n"


def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.cli.logs._CLOSE_S", 0.05)
    reading, writing = os.pipe()
    writer = LineWriter(writing, n_queued=1)
    writer.setFormatter(TextFormatter())
    for _ in range(3):
        writer.emit(record("x" * (1 << 20)))
    writer.close()
    os.close(reading)
    writer._thread.join()  # before another file gets the descriptor that it writes to
    os.close(writing)


def test_a_reader_that_has_gone_is_no_fault() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with logging_to(writing, Settings()):
        for _ in range(3):
            logging.getLogger("helios.test").info("x")
    os.close(writing)


def test_a_line_that_cannot_be_made_stops_nothing(pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    writer = LineWriter(pipe[1])
    writer.setFormatter(TextFormatter())
    writer.emit(record("%d", args=("no number",)))
    writer.emit(record("fine"))
    writer.close()
    assert os.read(pipe[0], 1 << 16).endswith(b"helios.x: fine\n")
    assert "no number" in capsys.readouterr().err
