"""The command: runs every part, prints what it does to stderr and one table last; 1 when something is wrong.

It knows the parts and nothing of what they do. Speed is never wrong: only kernels that fail their tests, answers that depend
on their company, and a device that is not there are.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from helios.device.device import Device
from helios.errors import HeliosError
from helios.ignition.pull import pull_default_model
from scripts.gpu_checking import kernels, launches, model
from scripts.gpu_checking.peer import peer_line


def main() -> int:
    arguments = _parser().parse_args()
    try:
        checkpoint = arguments.model or pull_default_model(lambda n_done_bytes, n_total_bytes: None)
        lines, wrong = check(checkpoint, arguments.device, arguments.kernel_tests)
    except HeliosError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    print("\n".join(f"WRONG: {each}" for each in wrong) or "all is right")
    return int(bool(wrong))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check", description="Kernels and a model on a GPU: right? fast?")
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda", help="simt: tiny shapes on the emulator")
    parser.add_argument("--model", type=Path, metavar="GGUF", help="the checkpoint (default: the default model)")
    parser.add_argument(
        "--kernel-tests", type=Path, default=Path("tests/kernels"), metavar="PATH", help="those to run (tests/kernels)"
    )
    return parser


def check(checkpoint: Path, device_name: str, kernel_tests: Path) -> tuple[list[str], list[str]]:
    """The lines of the table, and what is wrong."""
    is_tiny = device_name == "simt"
    with Device.open(device_name) as device:
        _say("times of kernels")
        speed = _kernel_lines(device, kernels.TINY if is_tiny else kernels.GPU)
    _say("tests of kernels")
    summary, wrong = kernels.failures(device_name, kernel_tests)
    lines = [f"kernel tests on {device_name}: {summary}", *speed]
    _say("the model")
    with model.CheckedModel(checkpoint, device_name, model.TINY if is_tiny else model.GPU) as checked:
        agreement = checked.compare()
        lines.append(f"answers alone, together and in chunks: {'the same' if agreement.is_exact else 'DIFFERENT'}")
        lines.append(
            f"tokens before the first that is not the CPU's: {agreement.n_same_tokens} of {agreement.n_tokens}"
        )
        if not agreement.is_exact:
            wrong.append("an answer depends on its company or on the size of prefill chunks")
        if not agreement.n_same_tokens:
            wrong.append("no token is the CPU's")
        for each in checked.decodes():
            rate = f"{each.tokens_per_s:12,.1f} tok/s"
            lines.append(f"decode {each.n_lanes:4} lanes {rate}, host {each.host_us:8,.1f} us a step")
        lines.append(f"prefill {checked.prefill_tokens_per_s():15,.1f} tok/s")
    return [*lines, peer_line(checkpoint) if not is_tiny else "peer: not asked on the emulator"], wrong


def _kernel_lines(device: Device, shapes: kernels.Shapes) -> list[str]:
    found = kernels.rates(device, shapes)
    node_us, round_trip_us, queue_us = launches.launch_costs_us(device, shapes.effort)
    lines = [
        f"copy {found.bytes_per_s / 1e9:,.1f} GB/s read and written; matmul {found.operations_per_s / 1e12:,.3f} TFLOP/s "
        f"({found.matmul})",
        f"launch: {node_us:.1f} us a node, {round_trip_us:.1f} us a graph of one and its wait, {queue_us:.1f} us to queue",
        f"{'kernel':52} {'us':>10} {'floor us':>10} {'reached':>8}",
    ]
    for each in kernels.timed(device, shapes, found):
        share = each.floor_s / each.time_s
        lines.append(f"{each.what:52} {each.time_s * 1e6:10.1f} {each.floor_s * 1e6:10.1f} {share:8.0%}")
    return [*lines, "floor: bytes once at the copy rate or operations at the matmul rate, whichever takes longer"]


_BEGAN_S = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _BEGAN_S:6.1f} s: {what}", file=sys.stderr, flush=True)
