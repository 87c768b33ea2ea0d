"""Opening, sizing and closing devices; memory that is not there; faults that stick."""

from __future__ import annotations

import subprocess
import sys
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from helios.device import cuda, libraries
from helios.device.cudart import Cudart
from helios.device.device import STAGING_BYTES, Device
from helios.device.kernel_table import EXTENT_REFUSED, FieldKind, KernelField
from helios.device.kernels import KernelLibrary
from helios.errors import DeviceError, OutOfMemoryError
from tests.device.compiling import NATIVE, ROOT, compile_cpp


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(index: int) -> None:
        raise DeviceError("there is no NVIDIA driver on this machine")

    monkeypatch.setattr(cuda, "open_runtime", refuse)


def test_the_processor_gets_the_kernels_of_its_level() -> None:
    with Device.open("cpu", n_threads=2) as device:
        assert (device.name, device.target, device.n_threads) == ("cpu", "host", 2)
        assert device.kernels.table.target in {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-amx", "aarch64"}
        assert "commit.1" in device.kernels.table.signatures


def test_auto_takes_the_cpu_and_says_why(no_cuda: None) -> None:
    with Device.open("auto") as device:
        assert (device.name, device.reason) == ("cpu", "there is no NVIDIA driver on this machine")
        assert device.n_threads >= 1


def test_a_device_that_is_not_there_is_one_sentence(no_cuda: None) -> None:
    with pytest.raises(DeviceError) as refused:
        Device.open("cuda")
    expected = "device cuda:0 cannot be used: there is no NVIDIA driver on this machine; serve with --device cpu"
    assert str(refused.value) == expected
    with pytest.raises(DeviceError, match="there is no device 'tpu'; use cpu, cuda, cuda:N or auto"):
        Device.open("tpu")


def test_the_reason_against_cuda_is_found_without_raising() -> None:
    assert "\n" not in (cuda.why_not() or "")


def test_upload_and_download_keep_every_byte(device: Device) -> None:
    size_bytes = 2 * STAGING_BYTES + 12345
    data = np.random.default_rng(1).integers(0, 256, size_bytes, np.uint8)
    buffer = device.allocate(size_bytes)
    assert not device.download(buffer.address, size_bytes).any()
    device.upload(buffer.address, data)
    assert np.array_equal(device.download(buffer.address, size_bytes), data)
    device.upload(buffer.address + 5, b"bytes")
    assert device.download(buffer.address + 5, 5).tobytes() == b"bytes"


def test_memory_is_aligned_for_vectors_and_huge_pages(device: Device) -> None:
    assert all(device.allocate(size).address % 64 == 0 for size in (1, 63, 4097, 1 << 20))
    assert all(device.allocate(size).address % (2 << 20) == 0 for size in (2 << 20, (5 << 20) + 1))
    assert device.pinned(4096).address % 64 == 0


def test_memory_that_is_not_there_is_refused_with_the_numbers(device: Device) -> None:
    """A model too long for memory is one clear line, not a process that the system kills."""
    free_bytes = device.memory_free_bytes()
    for size_bytes in (free_bytes + (1 << 30), 2**62, 2**64 - 1):
        with pytest.raises(OutOfMemoryError, match=rf"^{size_bytes:,} bytes were asked for, [\d,]+ are free$"):
            device.allocate(size_bytes)


def test_memory_that_was_promised_but_not_touched_is_not_promised_again(device: Device) -> None:
    size_bytes = int(device.memory_free_bytes() * 0.6)
    first = device.allocate(size_bytes)
    with pytest.raises(OutOfMemoryError):
        device.allocate(size_bytes)
    first.close()
    device.allocate(size_bytes).close()


def test_nothing_can_be_allocated_of_nothing(device: Device) -> None:
    with pytest.raises(DeviceError, match="cudaMalloc failed with cudaErrorInvalidValue"):
        device.allocate(0)


def test_statistics_follow_what_is_open(device: Device) -> None:
    before = device.statistics()
    buffer, pinned = device.allocate(1000), device.pinned(500)
    during = device.statistics()
    assert during["device_bytes"] - before["device_bytes"] == 1000
    assert during["pinned_bytes"] - before["pinned_bytes"] == 500
    assert during["n_device_buffers"] - before["n_device_buffers"] == 1
    buffer.close()
    pinned.close()
    after = device.statistics()
    assert {k: v for k, v in after.items() if k != "memory_free_bytes"} == {
        k: v for k, v in before.items() if k != "memory_free_bytes"
    }


def test_closing_twice_does_nothing(device: Device) -> None:
    buffer = device.allocate(10)
    for _ in range(2):
        buffer.close()
        device.close()


def test_the_kernel_table_is_read_whole(device: Device) -> None:
    signature = device.kernels.table.signatures["sum_pages.1"]
    assert signature.fields == (
        KernelField("plane", 0, FieldKind.READ, 4),
        KernelField("total", 8, FieldKind.WRITE, 4),
        KernelField("n_pages", 16, FieldKind.I32, 0),
        KernelField("page_stride", 24, FieldKind.I64, 0),
    )
    in_chunks = device.kernels.table.signatures["increment_chunks.1"]
    assert [field.alignment for field in in_chunks.fields] == [16, 4, 0]
    assert signature.args_size_bytes == 32
    assert signature.pointers == {0: 0, 8: 1}
    assert device.kernels.table.extent("sum_pages.1", bytes(32), 0) == EXTENT_REFUSED
    with pytest.raises(DeviceError, match="takes 32 bytes, not 31"):
        device.kernels.table.extent("sum_pages.1", bytes(31), 0)


def test_every_kernel_takes_one_argument_of_the_size_in_the_table(device: Device) -> None:
    offset, size = c_size_t(), c_size_t()
    for name, signature in device.kernels.table.signatures.items():
        device.cudart.call("cudaFuncGetParamInfo", device.kernels.handles[name], 0, offset, size)
        assert (offset.value, size.value) == (0, signature.args_size_bytes)
        assert device.cudart.function("cudaFuncGetParamInfo")(device.kernels.handles[name], 1, offset, size) == 1


def test_a_file_that_is_no_kernel_library_is_one_sentence(cudart: Cudart, tmp_path: Path) -> None:
    foreign = tmp_path / "libforeign.so"
    assert compile_cpp(foreign, [NATIVE / "probe.cpp"], ["-shared", "-fPIC"]).returncode == 0
    for path in (foreign, tmp_path / "libmissing.so", libraries.runtime_library()):
        with pytest.raises(DeviceError, match="cannot be used"):
            KernelLibrary.load(cudart, path)
    handle = c_void_p()
    for name, code in ((str(foreign), 200), ("/nonexistent.so", 301)):
        load = cudart.function("cudaLibraryLoadFromFile")
        assert load(byref(handle), name.encode(), None, None, 0, None, None, 0) == code


FAULTS = {
    "a kernel that refuses to run": """
node = kernel_node(device.kernels, "fail.1", {}, unused=0)
graph = instantiate(device, program(node), [], 0)
try:
    graph.launch(device.stream)  # which may report the fault itself, when the kernel was that quick
except DeviceError:
    pass
""",
    "a launch on memory that was freed": """
memory = device.allocate(64)
buffer = BoundBuffer("state", 2, memory.address, 64)
node = kernel_node(device.kernels, "count_tasks.1", {"counters": (0, 0)}, n=16)
graph = instantiate(device, program(node), [buffer], 0)
memory.close()
try:
    graph.launch(device.stream)
except DeviceError:
    pass
""",
}
SCRIPT = """
import sys
from pathlib import Path
from helios.device.cudart import Cudart
from helios.device.device import Device
from helios.device.kernels import KernelLibrary
from helios.device import libraries
from helios.device.program import BoundBuffer, instantiate
from helios.errors import DeviceError
from tests.device.launching import kernel_node, program

cudart = Cudart(libraries.runtime_library())
device = Device(cudart, KernelLibrary.load(cudart, Path(sys.argv[1])), "cpu", "host", "a test")
event = device.new_event()
{fault}
for call in (device.stream.synchronize, lambda: event.record(device.stream), event.synchronize, lambda: device.allocate(8),
             lambda: device.stream.fill_async(0, 0, 8), lambda: graph.launch(device.stream), device.new_stream):
    try:
        call()
    except DeviceError as error:
        assert "cudaErrorLaunchFailure (719)" in str(error), error
    else:
        raise SystemExit("the fault did not stick")
event.close()
device.close()
print("closed")
"""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_sticks_until_the_process_ends_and_closing_still_works(fault: str, kernel_path: Path) -> None:
    script = SCRIPT.format(fault=fault)
    result = subprocess.run(
        [sys.executable, "-c", script, kernel_path], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert result.stdout == "closed\n", result.stderr
