"""The worker pool runs every task exactly once, whatever the number of tasks, threads and streams."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from helios.contract.schema import execution_pb2 as schema
from helios.device.device import Device
from helios.device.graph import GraphExec
from helios.device.memory import DeviceBuffer
from helios.device.program import BoundBuffer, instantiate
from tests.device.compiling import CUDART_SOURCES, NATIVE, ROOT, compile_cpp
from tests.device.launching import kernel_node, program

MAX_TASKS = 1000
PHASE_KERNELS = ("linear_q4", "linear_q8", "norm", "rope", "attention", "sample")


def counting(device: Device, counters: DeviceBuffer, *n_tasks: int) -> GraphExec:
    """A graph with one launch for each of `n_tasks`."""
    buffer = BoundBuffer("counters", schema.BUFFER_KIND_STATE, counters.address, counters.size_bytes)
    nodes = [
        kernel_node(device.kernels, "count_tasks.1", {"counters": (0, 0)}, [i - 1] if i else [], n=n)
        for i, n in enumerate(n_tasks)
    ]
    return instantiate(device, program(*nodes), [buffer], 0)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_every_task_runs_exactly_once(device: Device, n_threads: int) -> None:
    device.cudart.call("heliosHostSetThreads", n_threads)
    counters = device.allocate(4 * MAX_TASKS)
    graph = counting(device, counters, *range(MAX_TASKS + 1))
    graph.launch(device.stream)
    device.stream.synchronize()
    found = device.download(counters.address, counters.size_bytes).view(np.int32)
    assert found.tolist() == [MAX_TASKS - task for task in range(MAX_TASKS)]
    graph.close()


def test_streams_share_the_pool_without_losing_a_task(device: Device) -> None:
    device.cudart.call("heliosHostSetThreads", 3)
    n_rounds, sizes = 20, (2, 3, 17, 64, 5) * 10
    streams = [device.new_stream() for _ in range(3)]
    counters = [device.allocate(4 * 64) for _ in streams]
    graphs = [counting(device, memory, *sizes) for memory in counters]
    for _ in range(n_rounds):
        for graph, stream in zip(graphs, streams, strict=True):
            graph.launch(stream)
    for stream in streams:
        stream.close()
    expected = [n_rounds * sum(task < n for n in sizes) for task in range(64)]
    for memory in counters:
        assert device.download(memory.address, memory.size_bytes).view(np.int32).tolist() == expected


def test_the_number_of_threads_may_change_while_work_is_queued(device: Device) -> None:
    counters = device.allocate(4 * 64)
    graph = counting(device, counters, *[64] * 50)
    for n_threads in (1, 4, 2, 3, 0):
        graph.launch(device.stream)
        device.cudart.call("heliosHostSetThreads", n_threads)
    device.stream.synchronize()
    assert device.download(counters.address, 4 * 64).view(np.int32).tolist() == [250] * 64


def test_an_absurd_number_of_threads_is_refused(device: Device) -> None:
    for n_threads in (-1, 1025):
        assert device.cudart.function("heliosHostSetThreads")(n_threads) == 1


@pytest.fixture
def sanitize(tmp_path: Path) -> list[str]:
    """The flags for ThreadSanitizer; a test is skipped where it does not run."""
    flags = ["-O1", "-g", "-fsanitize=thread"]
    probe = compile_cpp(tmp_path / "probe", [NATIVE / "probe.cpp"], flags)
    if probe.returncode != 0 or subprocess.run([tmp_path / "probe"], check=False).returncode != 0:
        pytest.skip(f"this compiler or kernel has no ThreadSanitizer: {probe.stderr}")
    return flags


def run_without_races(*command: Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ThreadSanitizer" not in result.stderr


def test_the_runtime_has_no_data_race(tmp_path: Path, sanitize: list[str]) -> None:
    """The whole host library and a driver that uses it from several threads."""
    kernels, driver = tmp_path / "libkernels.so", tmp_path / "stress"
    built = compile_cpp(kernels, [NATIVE / "kernels.cpp"], [*sanitize, "-shared", "-fPIC"])
    assert built.returncode == 0, built.stderr
    built = compile_cpp(driver, [NATIVE / "stress.cpp", *CUDART_SOURCES], sanitize)
    assert built.returncode == 0, built.stderr
    run_without_races(driver, kernels)


@pytest.mark.parametrize("level", [[], ["-march=native"]], ids=["baseline", "native"])
def test_tasks_of_one_launch_write_nothing_that_another_touches(
    tmp_path: Path, sanitize: list[str], level: list[str]
) -> None:
    """The host kernels of a layer in the pool, for one row and many, of one request and of several."""
    kernels = [ROOT / "cuda_src" / "host" / f"{stem}.cpp" for stem in PHASE_KERNELS]
    driver, pool = tmp_path / "kernel_phases", ROOT / "cuda_src" / "cudart" / "pool.cpp"
    built = compile_cpp(driver, [NATIVE / "kernel_phases.cpp", pool, *kernels], [*sanitize, *level])
    assert built.returncode == 0, built.stderr
    run_without_races(driver)
