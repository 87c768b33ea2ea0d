"""How fast a core is loaded with every byte verified, beside the same work without verification, in alternated rounds.

It knows the container and no device: content goes to memory that is there already, as a device's would be. Files are in the page
cache. Three ways, best of the rounds each: `verified`, what serving does; `plain`, reading the stored bytes 4 MiB at a time and
decompressing the frames; `plain zstd`, the same content as one zstd level-3 frame, read and decompressed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zstandard

from helios.cli.model import core_path
from helios.corefile.reader import open_core
from helios.settings import Settings

_READ_NBYTES = 4 << 20


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path, nargs="?", help="a payload core in one file (the default model's)")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    path = arguments.core or core_path(None, Settings.load({}))
    with tempfile.TemporaryDirectory() as directory:
        compressed = Path(directory) / "content.zst"
        frames, n_content_bytes = _store(path, compressed)
        weights = memoryview(bytearray(_tensor_nbytes(path)))
        ways: dict[str, Callable[[], None]] = {
            "verified": lambda: _verified(path, weights),
            "plain": lambda: _plain(path, weights, frames),
            "plain zstd": lambda: _plain_zstd(compressed, n_content_bytes),
        }
        seconds = _measure(ways, arguments.rounds)
    print(f"{path.name}: {n_content_bytes:,} bytes of content")
    for name, best_s in seconds.items():
        print(f"  {name:<10} {best_s * 1e3:8.1f} ms  {n_content_bytes / best_s / 1e9:6.2f} GB/s")
    for name in ("plain", "plain zstd"):
        print(f"  verified runs at {seconds[name] / seconds['verified']:.0%} of {name}")
    return 0


def _measure(ways: dict[str, Callable[[], None]], n_rounds: int) -> dict[str, float]:
    """Best seconds of each way; every round runs each of them once."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(n_rounds):
        for name, run in ways.items():
            start_s = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - start_s)
    return seconds


def _verified(path: Path, weights: memoryview) -> None:
    with open_core(path) as core:
        for resource in core.index.resources:
            core.resource(resource.kind)
        position = 0
        for chunk in core.stream_tensors():
            weights[position : position + len(chunk.data)] = chunk.data
            position += len(chunk.data)


def _plain(path: Path, weights: memoryview, frames: list[tuple[int, int]]) -> None:
    position = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ_NBYTES):
            n_fit = min(len(piece), len(weights) - position)
            weights[position : position + n_fit] = piece[:n_fit]
            position += n_fit
        for offset, nbytes in frames:
            file.seek(offset)
            zstandard.ZstdDecompressor().decompress(file.read(nbytes))


def _plain_zstd(compressed: Path, n_content_bytes: int) -> None:
    content = zstandard.ZstdDecompressor().decompress(compressed.read_bytes())
    if len(content) != n_content_bytes:
        raise ValueError("the content has another length")


def _store(path: Path, compressed: Path) -> tuple[list[tuple[int, int]], int]:
    """Write a core's content as one frame. Returns (offset, bytes) of the core's own frames, and the content's bytes."""
    with open_core(path) as core:
        content = bytearray()
        frames = []
        for resource in core.index.resources:
            place = core.place(resource.id)
            frames.append((place.offset, place.nbytes))
            content += core.resource(resource.kind) or b""
        for chunk in core.stream_tensors():
            content += chunk.data
    compressed.write_bytes(zstandard.ZstdCompressor(level=3).compress(bytes(content)))
    return frames, len(content)


def _tensor_nbytes(path: Path) -> int:
    with open_core(path) as core:
        return sum(tensor.nbytes for tensor in core.index.tensors)
