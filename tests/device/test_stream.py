"""Streams and events keep order, refuse what a GPU could not do, and cost nothing while idle."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.contract.schema import execution_pb2 as schema
from helios.device.cudart import (
    COPY_BY_ADDRESS,
    COPY_DEVICE_TO_DEVICE,
    COPY_DEVICE_TO_HOST,
    COPY_HOST_TO_DEVICE,
    Cudart,
)
from helios.device.device import Device
from helios.device.graph import GraphExec
from helios.device.kernels import KernelLibrary
from helios.device.program import BoundBuffer, instantiate
from helios.errors import DeviceError
from tests.device.launching import kernel_node, program

LOG_CAPACITY = 63


@pytest.fixture
def log(device: Device) -> BoundBuffer:
    size_bytes = 4 * (LOG_CAPACITY + 1)
    return BoundBuffer("log", schema.BUFFER_KIND_STATE, device.allocate(size_bytes).address, size_bytes)


class Gate:
    """What a graph waits for until it is opened."""

    def __init__(self, device: Device) -> None:
        memory = device.pinned(4)
        self._word = memory.view.view(np.int32)
        self._word[0] = 0
        self.buffer = BoundBuffer("gate", schema.BUFFER_KIND_INPUT, memory.address, 4)

    def open(self) -> None:
        self._word[0] = 1


@pytest.fixture
def gate(device: Device) -> Iterator[Gate]:
    gate = Gate(device)
    yield gate
    gate.open()


def entries(device: Device, log: BoundBuffer) -> list[int]:
    """What was appended, read with every stream at rest."""
    device.cudart.call("cudaDeviceSynchronize")
    words = device.download(log.address, log.size_bytes).view(np.int32)
    return [int(word) for word in words[1 : 1 + words[0]]]


def appending(device: Device, log: BoundBuffer, *values: int, sleep_ms: int = 0) -> GraphExec:
    """A graph that sleeps, then appends `values`."""
    nodes = [kernel_node(device.kernels, "sleep.1", {}, n=1, milliseconds=sleep_ms)]
    for i, value in enumerate(values):
        nodes.append(kernel_node(device.kernels, "append.1", {"log": (0, 0)}, [i], capacity=LOG_CAPACITY, value=value))
    return instantiate(device, program(*nodes), [log], 0)


def gated(device: Device, log: BoundBuffer, gate: Gate, value: int) -> GraphExec:
    """A graph that waits for the gate, then appends `value`."""
    nodes = [
        kernel_node(device.kernels, "wait.1", {"gate": (1, 0)}),
        kernel_node(device.kernels, "append.1", {"log": (0, 0)}, [0], capacity=LOG_CAPACITY, value=value),
    ]
    return instantiate(device, program(*nodes), [log, gate.buffer], 0)


def test_work_on_one_stream_runs_in_the_order_of_submission(device: Device, log: BoundBuffer) -> None:
    graphs = [appending(device, log, i, sleep_ms=3 if i % 4 == 0 else 0) for i in range(12)]
    for graph in graphs:
        graph.launch(device.stream)
    assert entries(device, log) == list(range(12))


def test_a_stream_waits_for_an_event_of_another(device: Device, log: BoundBuffer) -> None:
    slow, fast = appending(device, log, 1, sleep_ms=30), appending(device, log, 2)
    with device.new_stream() as other, device.new_event() as event:
        slow.launch(device.stream)
        event.record(device.stream)
        other.wait_event(event)
        fast.launch(other)
        assert entries(device, log) == [1, 2]


def test_streams_without_an_event_between_them_run_side_by_side(device: Device, log: BoundBuffer, gate: Gate) -> None:
    slow, fast = gated(device, log, gate, 1), appending(device, log, 2)
    with device.new_stream() as other:
        slow.launch(device.stream)
        fast.launch(other)
        other.synchronize()
        gate.open()
        assert entries(device, log) == [2, 1]


def test_a_wait_is_for_the_record_that_was_the_latest_then(device: Device, log: BoundBuffer, gate: Gate) -> None:
    slow, fast = gated(device, log, gate, 1), appending(device, log, 2)
    with device.new_stream() as other, device.new_event() as event:
        event.record(device.stream)
        other.wait_event(event)
        slow.launch(device.stream)
        event.record(device.stream)  # later than the wait: it does not hold the other stream back
        fast.launch(other)
        other.synchronize()
        gate.open()
        assert entries(device, log) == [2, 1]


def test_an_event_says_whether_it_was_passed(device: Device, log: BoundBuffer, gate: Gate) -> None:
    with device.new_event() as event:
        assert event.is_done()
        event.synchronize()
        event.record(device.stream)
        event.synchronize()
        graph = gated(device, log, gate, 1)
        graph.launch(device.stream)
        event.record(device.stream)
        assert not event.is_done()
        gate.open()
        event.synchronize()
        assert event.is_done()
        assert entries(device, log) == [1]


def test_waiting_for_an_event_lets_other_python_threads_run(device: Device, log: BoundBuffer, gate: Gate) -> None:
    """The gate is opened by a thread that takes a while, most of it within the wait."""
    graph = gated(device, log, gate, 1)
    n_rounds, is_waiting = 0, True

    def count() -> None:
        nonlocal n_rounds
        while is_waiting and n_rounds < 50:
            n_rounds += 1
            time.sleep(0.001)
        gate.open()

    counter = threading.Thread(target=count)
    with device.new_event() as event:
        graph.launch(device.stream)
        event.record(device.stream)
        counter.start()
        event.synchronize()
        is_waiting = False
        counter.join()
    assert n_rounds == 50


def test_two_overlapping_frames_each_keep_their_own_input(device: Device) -> None:
    """A second round is submitted before the first is read; each frame has its own staging and event."""
    n, n_rounds = 16, 50
    inputs, outputs = device.allocate(4 * n), device.allocate(4 * n)
    buffers = [
        BoundBuffer("inputs", schema.BUFFER_KIND_INPUT, inputs.address, inputs.size_bytes),
        BoundBuffer("outputs", schema.BUFFER_KIND_COMPLETION, outputs.address, outputs.size_bytes),
    ]
    graph = instantiate(
        device, program(kernel_node(device.kernels, "increment.1", {"x": (0, 0), "y": (1, 0)}, n=n)), buffers, 0
    )
    frames = [(device.pinned(4 * n), device.pinned(4 * n), device.new_event()) for _ in range(2)]

    def submit(value: int) -> None:
        staging, record, event = frames[value % 2]
        staging.view.view(np.int32)[:] = value
        device.stream.copy_async(inputs.address, staging.address, 4 * n, COPY_HOST_TO_DEVICE)
        graph.launch(device.stream)
        device.stream.copy_async(record.address, outputs.address, 4 * n, COPY_DEVICE_TO_HOST)
        event.record(device.stream)

    submit(0)
    for value in range(n_rounds):
        submit(value + 1)
        _, record, event = frames[value % 2]
        event.synchronize()
        assert record.view.view(np.int32).tolist() == [value + 1] * n


def test_a_fill_writes_its_bytes_only(device: Device) -> None:
    buffer = device.allocate(16)
    device.stream.fill_async(buffer.address + 4, 0xAB, 8)
    device.stream.synchronize()
    assert device.download(buffer.address, 16).tolist() == [0] * 4 + [0xAB] * 8 + [0] * 4


def test_copies_outside_one_allocation_are_refused(device: Device) -> None:
    buffer, pinned = device.allocate(100), device.pinned(100)
    pageable = np.zeros(100, np.uint8)
    refused = [
        (buffer.address, pinned.address + 1, 100, COPY_HOST_TO_DEVICE),
        (buffer.address + 100, pinned.address, 1, COPY_HOST_TO_DEVICE),
        (buffer.address - 1, pinned.address, 1, COPY_HOST_TO_DEVICE),
        (buffer.address, pinned.address, 2**64 - 1, COPY_HOST_TO_DEVICE),
        (buffer.address, pageable.ctypes.data, 100, COPY_HOST_TO_DEVICE),
        (pageable.ctypes.data, buffer.address, 100, COPY_DEVICE_TO_HOST),
        (0, buffer.address, 1, COPY_BY_ADDRESS),
        (buffer.address, buffer.address + 10, 20, COPY_DEVICE_TO_DEVICE),
    ]
    for destination, source, size_bytes, kind in refused:
        with pytest.raises(DeviceError, match="cudaErrorInvalidValue"):
            device.stream.copy_async(destination, source, size_bytes, kind)
    for kind in (COPY_DEVICE_TO_HOST, COPY_DEVICE_TO_DEVICE, 0, 5, -1):
        with pytest.raises(DeviceError, match="cudaErrorInvalidMemcpyDirection"):
            device.stream.copy_async(buffer.address, pinned.address, 100, kind)
    with pytest.raises(DeviceError, match="cudaErrorInvalidValue"):
        device.stream.fill_async(buffer.address + 99, 0, 2)


def test_destroyed_handles_are_refused(device: Device, log: BoundBuffer) -> None:
    graph, stream, event = appending(device, log, 1), device.new_stream(), device.new_event()
    for owner in (graph, stream, event):
        owner.close()
        owner.close()
    calls = (
        lambda: graph.launch(device.stream),
        stream.synchronize,
        lambda: event.record(device.stream),
        event.synchronize,
        event.is_done,
        lambda: device.stream.wait_event(event),
        lambda: stream.fill_async(log.address, 0, 4),
    )
    for call in calls:
        with pytest.raises(DeviceError, match="cudaErrorInvalidResourceHandle"):
            call()


def test_handles_of_another_kind_and_the_default_stream_are_refused(device: Device) -> None:
    with device.new_event() as event:
        for handle in (event.handle, None, 0x1234):
            assert device.cudart.function("cudaStreamSynchronize")(handle) == 400
        assert device.cudart.function("cudaEventSynchronize")(device.stream.handle) == 400
        assert device.cudart.function("cudaFree")(device.stream.handle) == 1


def test_a_graph_may_be_destroyed_while_it_runs(device: Device, log: BoundBuffer, gate: Gate) -> None:
    graph = gated(device, log, gate, 1)
    graph.launch(device.stream)
    graph.close()
    gate.open()
    assert entries(device, log) == [1]


def test_freeing_waits_for_the_work_that_uses_the_memory(device: Device) -> None:
    memory = device.allocate(4096)
    buffer = BoundBuffer("state", schema.BUFFER_KIND_STATE, memory.address, memory.size_bytes)
    nodes = [
        kernel_node(device.kernels, "sleep.1", {}, n=1, milliseconds=40),
        schema.Node(fill=schema.FillNode(destination=0, value=1, nbytes=4096), depends_on=[0]),
    ]
    graph = instantiate(device, program(*nodes), [buffer], 0)
    with device.new_event() as event:
        graph.launch(device.stream)
        event.record(device.stream)
        memory.close()
        assert event.is_done()


def test_an_idle_device_uses_no_processor_time(device: Device) -> None:
    counters = device.allocate(64)
    buffer = BoundBuffer("counters", schema.BUFFER_KIND_STATE, counters.address, 64)
    node = kernel_node(device.kernels, "count_tasks.1", {"counters": (0, 0)}, n=16)
    graph = instantiate(device, program(node), [buffer], 0)
    graph.launch(device.stream)
    device.stream.synchronize()
    started_s = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - started_s < 0.1


def test_closing_a_device_leaves_no_thread_and_no_descriptor(cudart: Cudart, kernel_path: Path) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    cudart.call("heliosHostSetThreads", 4)
    for _ in range(20):
        with Device(cudart, KernelLibrary.load(cudart, kernel_path), "cpu", "host", "a test") as device:
            counters = device.allocate(64)
            buffer = BoundBuffer("counters", schema.BUFFER_KIND_STATE, counters.address, 64)
            node = kernel_node(device.kernels, "count_tasks.1", {"counters": (0, 0)}, n=16)
            graph = instantiate(device, program(node), [buffer], 0)
            with device.new_stream() as second, device.new_event() as event:
                graph.launch(second)
                event.record(second)
                event.synchronize()
                assert count()[0] == before[0] + 2 + 3
            graph.close()
    assert count() == before
