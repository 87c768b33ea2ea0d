"""What a build step is: one line on the terminal, a stamp that says whether there is anything to do, one sentence on failure.

It knows no particular step. A stamp holds the digest of a step's inputs and is written last, so an interrupted step is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_IS_ERROR = re.compile(r"\berror(:| #\d)", re.IGNORECASE)  # the second is how nvcc numbers them


class BuildError(Exception):
    """A step failed. The message is one sentence that says what to do."""


class Progress:
    """The line of the step that is running. On a terminal it is redrawn; elsewhere a long step adds a line now and then."""

    _REDRAW_S = 0.1
    _LOG_S = 20.0

    def __init__(self, title: str) -> None:
        self._title = title
        self._started_s = self._shown_s = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def show(self, detail: str) -> None:
        """Say how far the step is; cheap to call often."""
        now_s = time.monotonic()
        if now_s - self._shown_s < (self._REDRAW_S if self._is_terminal else self._LOG_S):
            return
        self._shown_s = now_s
        line = f"{self._title:<12} {detail} ({now_s - self._started_s:.0f} s)"
        print(f"\r\x1b[K{line}" if self._is_terminal else line, end="" if self._is_terminal else "\n", flush=True)

    def end(self, detail: str) -> None:
        """Print the step's last word."""
        took_s = time.monotonic() - self._started_s
        start = "\r\x1b[K" if self._is_terminal else ""
        print(f"{start}{self._title:<12} {detail}" + (f" ({took_s:.1f} s)" if took_s >= 0.1 else ""), flush=True)


def digest(*parts: str | bytes | Path | Iterable[Path]) -> str:
    """A digest of strings, bytes and file contents; a directory counts with all files below it, names included."""
    hasher = hashlib.sha256()
    for part in parts:
        if isinstance(part, str | bytes):
            _add(hasher, part.encode() if isinstance(part, str) else part)
            continue
        for path in [part] if isinstance(part, Path) else part:
            for file in files_below(path) if path.is_dir() else [path]:
                _add(hasher, file.name.encode() if file == path else str(file.relative_to(path)).encode())
                _add(hasher, file.read_bytes())
    return hasher.hexdigest()


def _add(hasher: hashlib._Hash, data: bytes) -> None:
    hasher.update(len(data).to_bytes(8, "little"))
    hasher.update(data)


def files_below(directory: Path) -> list[Path]:
    """The files of a source tree in a fixed order, without what Python leaves there."""
    return sorted(p for p in directory.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def run_step(
    title: str, stamp: Path, inputs: str, outputs: Sequence[Path], work: Callable[[Progress], str | None]
) -> None:
    """Do `work` unless `stamp` holds `inputs` and every output is there. `work` returns what to say at the end."""
    progress = Progress(title)
    if stamp.is_file() and stamp.read_text() == inputs and all(output.exists() for output in outputs):
        progress.end("up to date")
        return
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    progress.end(work(progress) or "done")
    stamp.write_text(inputs)


def run_logged(
    command: Sequence[str | Path], what: str, log: Path, progress: Progress, cwd: Path | None = None
) -> None:
    """Run a program with its output in `log`; on failure raise with its most telling line."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd)
        except OSError as error:
            raise BuildError(f"cannot start {command[0]}: {error.strerror}") from None
        try:
            while True:
                progress.show(what)
                try:
                    process.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise BuildError(f"{what} failed: {telling_line(log.read_text(errors='replace'))}; all of it is in {log}")


def telling_line(text: str) -> str:
    """The first line that calls itself an error, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in lines if _IS_ERROR.search(line)), lines[-1])[:300].rstrip(".")


@contextmanager
def only_build(directory: Path) -> Iterator[None]:
    """Hold the checkout's build lock: a second build waits for the first."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build.py is at work here; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
