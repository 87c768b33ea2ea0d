"""The command: runs every part in its time, prints what it does to stderr and one table last; 1 when something is wrong.

It knows the parts and nothing of what they do. Speed is never wrong, and what found no time is told: only kernels that fail their
tests, answers that depend on their company or are not the CPU's, and a device that is not there or does not answer are wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helios.device.device import Device
from helios.errors import HeliosError
from helios.ignition.pull import pull_default_model
from scripts.gpu_checking import cases, kernel_tests, kernels, launches, model
from scripts.gpu_checking.peer import peer_lines
from scripts.gpu_checking.time_limit import TimeLimit

# By when each part has to end, seconds after the start; the last is that of all.
ENDS_S = {"launches": 20.0, "kernel tests": 100.0, "model": 170.0, "kernels": 210.0, "peer": 230.0}
LIMIT_S = 240.0
N_TOLD = 20  # kernel tests that failed


@dataclass
class Report:
    """The kernels, then the short table, a part after the other, and what is wrong."""

    kernels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        left_out = [f"left out, there was no time: {', '.join(self.left_out)}"] if self.left_out else []
        wrong = [f"WRONG: {each}" for each in self.wrong]
        return "\n".join([*self.kernels, *self.lines, *left_out, *(wrong or ["all that was checked is right"])])


def main() -> int:
    arguments = _parser().parse_args()
    report = Report()
    watch = threading.Timer(LIMIT_S, _end, [report])  # for a kernel that does not end
    watch.daemon = True
    try:
        checkpoint = arguments.model or pull_default_model(lambda n_done_bytes, n_total_bytes: None)
        watch.start()
        check(report, checkpoint, arguments.device, arguments.kernel_tests, TimeLimit())
    except HeliosError as error:
        report.wrong.append(str(error))
    print(report)
    return int(bool(report.wrong))


def _end(report: Report) -> None:
    report.wrong.append(f"the device has not answered for too long; the end after {LIMIT_S:.0f} s")
    print(report, flush=True)
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check", description="Kernels and a model on a GPU: right? fast? In four minutes."
    )
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda", help="simt: tiny shapes on the emulator")
    parser.add_argument("--model", type=Path, metavar="GGUF", help="the checkpoint (default: the default model)")
    parser.add_argument(
        "--kernel-tests",
        type=Path,
        nargs="+",
        default=kernel_tests.TESTS,
        metavar="PATH",
        help="those to run (default: tests/kernels)",
    )
    return parser


def check(report: Report, checkpoint: Path, device_name: str, tests: Sequence[Path], limit: TimeLimit) -> None:
    """Every part, into `report`."""
    report.left_out = limit.left_out
    is_tiny = device_name == "simt"
    shapes, effort = (cases.TINY, launches.TINY) if is_tiny else (cases.GPU, launches.GPU)

    def begin(part: str) -> None:
        print(f"{limit.elapsed_s:6.1f} s: {part}", file=sys.stderr, flush=True)
        limit.begin_part(ENDS_S[part])

    with Device.open(device_name) as device:
        begin("launches")
        with launches.Stopwatch(device, effort) as stopwatch:
            found = kernels.rates(device, stopwatch, shapes)
            report.lines += [str(found), _launch_line(stopwatch)]
        begin("kernel tests")
        _check_kernels(report, device_name, tests, limit)
        begin("model")
        _check_model(report, checkpoint, device_name, model.TINY if is_tiny else model.GPU, limit)
        begin("kernels")
        report.kernels.append(kernels.HEADING)
        with launches.Stopwatch(device, effort) as stopwatch:
            for case in cases.cases(device.kernels.table.signatures, shapes):
                if limit.allows(str(case)):
                    report.kernels.append(str(kernels.timed(device, stopwatch, found, case)))
    begin("peer")
    report.lines += ["peer: not asked on the emulator"] if is_tiny else peer_lines(checkpoint, limit.left_s)


def _launch_line(stopwatch: launches.Stopwatch) -> str:
    (smallest,) = cases.cases(["round_bf16.1"], cases.TINY)
    node_us, round_trip_us, queue_us = stopwatch.launch_costs_us(smallest)
    return f"launch: {node_us:.1f} us a node, {round_trip_us:.1f} us a graph of one and its wait, {queue_us:.1f} us to queue"


def _check_kernels(report: Report, device_name: str, tests: Sequence[Path], limit: TimeLimit) -> None:
    outcome = kernel_tests.run(device_name, tests, limit.left_s)
    report.lines.append(f"kernel tests on {device_name}: {outcome}")
    report.lines.append(f"kernels that no test has launched: {', '.join(outcome.not_launched) or 'none'}")
    report.wrong += [f"kernel test {each}" for each in outcome.failed[:N_TOLD]]
    if len(outcome.failed) > N_TOLD:
        report.wrong.append(f"{len(outcome.failed) - N_TOLD} more kernel tests")
    if outcome.n_left_out:
        report.left_out.append(f"{outcome.n_left_out} kernel tests")


def _check_model(
    report: Report, checkpoint: Path, device_name: str, workload: model.Workload, limit: TimeLimit
) -> None:
    if not limit.allows("the model"):
        return
    with model.CheckedModel(checkpoint, device_name, workload) as checked:
        agreement = checked.compare()
        report.lines += agreement.lines()
        report.wrong += agreement.wrong()
        if limit.allows("prefill"):
            report.lines.append(f"prefill {checked.prefill_tokens_per_s():15,.1f} tok/s")
        for n_lanes in workload.lanes:
            if limit.allows(f"decode {n_lanes} lanes"):
                report.lines.append(str(checked.decode(n_lanes)))
