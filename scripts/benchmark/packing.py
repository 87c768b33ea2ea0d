"""The command: how long the host works on one decode round before it may do something else, by number of lanes.

It measures calls, not the model: slots are never initialised, so kernels find dead lanes. Three columns, each containing the
one before: numbers into staging, then their copy queued, then graph, completion and event queued too. Another round is in
flight meanwhile, as in serving; on an idle device a call also pays for waking its thread (about 20 us on a sleeping core).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from helios.contract.enums import BufferKind
from helios.corefile.contents import read_contents
from helios.corefile.reader import open_core
from helios.device.device import Device
from helios.ignition.prepared_core import prepared_core
from helios.ignition.pull import pull_default_model
from helios.packing.packer import Packer
from helios.runtime.frame import Frame
from helios.runtime.model import ModelRuntime
from helios.runtime.round_values import RoundValues
from helios.runtime.selection import program_table
from helios.scheduler.programs import ProgramTable, RoundKind
from helios.scheduler.request import GenerationRequest
from helios.scheduler.round import Lane, Round
from helios.scheduler.sequence import Sequence

LANES = (1, 4, 16, 32)
TARGET_LANES, TARGET_US = 16, 30.0


def main() -> int:
    """Print the table; 1 when packing a round of 16 lanes and queueing its copy takes longer than the target."""
    parser = argparse.ArgumentParser(prog="scripts/bench-packing", description=__doc__)
    parser.add_argument("--core", type=Path, help="any core; the default model's if not given")
    parser.add_argument("--rounds", type=int, default=2000, help="rounds of each measurement (2000)")
    arguments = parser.parse_args()
    core_path = arguments.core or prepared_core(pull_default_model(lambda n_done, n_total: None))
    worst = 0.0
    print(f"{'lanes':>5} {'pack us':>9} {'stage us':>9} {'launch us':>9}")
    for n_lanes, (pack_us, stage_us, launch_us) in measure(core_path, arguments.rounds):
        print(f"{n_lanes:5} {pack_us:9.1f} {stage_us:9.1f} {launch_us:9.1f}")
        if n_lanes == TARGET_LANES:
            worst = stage_us
    return int(worst > TARGET_US)


def measure(core_path: Path, n_rounds: int) -> Iterator[tuple[int, tuple[float, float, float]]]:
    """(lanes, medians in microseconds) for every number of lanes that the core has a program for."""
    with ExitStack() as stack:
        core = stack.enter_context(open_core(core_path))
        device = stack.enter_context(Device.open("cpu"))
        contents = read_contents(core)
        contract, programs = contents.contract, program_table(contents.contract)
        runtime = stack.enter_context(
            ModelRuntime.load(core, contract, contents.manifest, device, contract.pages_per_slot)
        )
        inputs = {b.id: device.allocate(b.nbytes) for b in contract.buffers if b.kind is BufferKind.INPUT}
        frame = Frame(0, device, contract, inputs, device.allocate(contract.completion.nbytes))
        stack.callback(frame.close)
        staging = {id_: np.zeros(memory.size_bytes, np.uint8) for id_, memory in inputs.items()}
        values = RoundValues(contract.completion.lanes_capacity, contract.pages_per_slot)
        for n_lanes in (n for n in LANES if n <= programs.lanes(RoundKind.DECODE)):
            round_ = decode_round(n_lanes, programs)
            index = program_index(round_)
            packer = Packer(contract.graphs[index], contract.destinations, staging)
            launch = partial(runtime.launch, round_)
            times_us = (
                median_us(partial(_pack, packer, values, round_), n_rounds),
                median_us(partial(_stage, frame, values, round_), n_rounds, launch, runtime.complete),
                median_us(launch, n_rounds, launch, partial(_complete, runtime)),
            )
            yield n_lanes, times_us


def _complete(runtime: ModelRuntime) -> None:
    while runtime.n_in_flight:
        runtime.complete()


def _pack(packer: Packer, values: RoundValues, round_: Round) -> None:
    packer.pack(values.of(round_, 1, 0), values.words)


def _stage(frame: Frame, values: RoundValues, round_: Round) -> None:
    frame.stage(program_index(round_), values.of(round_, 1, 0), values.words)


def decode_round(n_lanes: int, programs: ProgramTable) -> Round:
    """A round of lanes that decode one token each, with no new page."""
    program = programs.choose(RoundKind.DECODE, n_lanes, n_lanes)
    assert program is not None
    lanes = (
        Lane(Sequence(slot, slot, GenerationRequest((1,), 1), 1), slot, 1 + slot, False, 100 + slot, 1, True)
        for slot in range(n_lanes)
    )
    return Round(program, tuple(lanes), n_lanes, ())


def program_index(round_: Round) -> int:
    assert round_.program is not None
    return round_.program.index


def median_us(
    call: Callable[[], object],
    n_times: int,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> float:
    """How long `call` takes; what runs `before` and `after` each call is not measured."""
    times_ns = []
    for _ in range(n_times):
        before()
        start_ns = time.perf_counter_ns()
        call()
        times_ns.append(time.perf_counter_ns() - start_ns)
        after()
    return statistics.median(times_ns) / 1000
