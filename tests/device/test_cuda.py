"""The CUDA device over a stand-in for its runtime: what is missing is one sentence, and a GPU's programs run as on the emulator."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Q

from helios.contract.schema import execution_pb2 as schema
from helios.corefile.reader import open_core
from helios.device import cuda, libraries
from helios.device.cudart import STICKY_ERRORS, Cudart
from helios.device.device import CUDA_RESERVE_BYTES, LEAST_EARLY_CAPABILITY, Device, why_no_cuda
from helios.device.kernel_table import Image, KernelTable
from helios.device.program import BoundBuffer, instantiate
from helios.engine import Bootstrap, Engine
from helios.errors import DeviceError, OutOfMemoryError
from helios.runtime.capacities import GPU_MEMORY_SHARE, choose_capacities, choose_limits
from helios.runtime.selection import select_programs
from helios.settings import Settings
from scripts.building.cuda import ARCHITECTURES, PTX_ARCHITECTURE
from tests.device.compiling import NATIVE, ROOT, compile_cpp, need_cuda_library
from tests.device.launching import kernel_node, program
from tests.end_to_end.devices import NAMESPACE, prepared
from tests.ignition.tiny_model import TinyModel
from tests.server.served_model import served_model

Script = Callable[..., None]
FREE_NBYTES = 8 << 30


@pytest.fixture(scope="module")
def gpu_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_cuda_library()
    path = tmp_path_factory.mktemp("gpu") / "libcudart.so.13"
    host = libraries.runtime_library()
    flags = [
        "-O1",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wl,--no-as-needed",
        str(host),
        f"-Wl,-rpath,{host.parent}",
        "-ldl",
    ]
    result = compile_cpp(path, [NATIVE / "gpu.cpp"], flags)
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture
def script(gpu_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """script(...): what the stand-in says from now on."""
    monkeypatch.setenv("HELIOS_CUDART", str(gpu_path))
    monkeypatch.setenv("HELIOS_TEST_KERNELS", str(libraries.simt_kernel_library()))
    library = ctypes.CDLL(str(gpu_path))

    def set_script(
        driver: int = 13000,
        n_devices: int = 2,
        count_code: int = 0,
        capability: int = 9,
        free_nbytes: int = FREE_NBYTES,
        failing: str = "",
        code: int = 0,
    ) -> None:
        free = ctypes.c_size_t(free_nbytes)
        library.gpu_script(driver, n_devices, count_code, capability, free, failing.encode(), code)

    set_script()
    return set_script


def state(gpu_path: Path, what: str) -> int:
    """A number of the stand-in's."""
    value: int = getattr(ctypes.CDLL(str(gpu_path)), f"gpu_{what}")()
    return value


def silu_gates(device: Device, n_nodes: int) -> tuple[schema.Program, list[BoundBuffer]]:
    """y = silu(x) * x in a chain: each node reads what the one before it wrote."""
    memory = device.allocate(4096)
    counts = device.allocate(16)
    device.upload(counts.address, (2).to_bytes(4, "little") * 4)
    buffers = [
        BoundBuffer("values", schema.BUFFER_KIND_STATE, memory.address, 4096),
        BoundBuffer("counts", schema.BUFFER_KIND_STATE, counts.address, 16),
    ]
    nodes = []
    for i in range(n_nodes):
        pointers = {"n_rows": (1, 0), "gate": (0, 512 * i), "up": (0, 512 * i), "y": (0, 512 * (i + 1))}
        node = kernel_node(device.kernels, "silu_gate.1", pointers, [i - 1] if i else [], rows_capacity=2, width=8)
        nodes.append(node)
    return program(*nodes), buffers


MISSING = {
    "there is no NVIDIA driver on this machine": {"driver": 0},
    "there is no GPU on this machine": {"count_code": 100},
    "the NVIDIA driver is too old for CUDA 13.0": {"driver": 11040, "count_code": 35},
    "the NVIDIA driver reports unrecognized error code (803)": {"count_code": 803},
    "there is no GPU 2, this machine has 2": {},
    "GPU 2 has compute capability 7, 8.0 is the least": {"n_devices": 3, "capability": 7},
    "cudaLibraryLoadData failed with unrecognized error code (209)": {
        "n_devices": 3,
        "failing": "cudaLibraryLoadData",
        "code": 209,
    },
    "kernel 'page_table_update.1' takes 48 bytes in the device code and 40 in the table of": {
        "n_devices": 3,
        "failing": "cudaFuncGetParamInfo",
        "code": 1,
    },
}


@pytest.mark.parametrize("sentence", MISSING)
def test_what_a_gpu_lacks_is_one_sentence(script: Script, sentence: str) -> None:
    """RT-7, design 5: no silent fallback."""
    script(**MISSING[sentence])
    with pytest.raises(DeviceError) as refused:
        Device.open("cuda:2")
    text = str(refused.value)
    assert text.startswith(f"device cuda:2 cannot be used: {sentence}")
    assert text.endswith("; serve with --device cpu")
    assert "\n" not in text


def test_the_runtime_that_is_named_is_the_only_one_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HELIOS_CUDART", str(tmp_path / "libcudart.so.13"))
    with pytest.raises(DeviceError, match=r"device cuda:0 cannot be used: .*tmp.*libcudart.so.13 cannot be loaded"):
        Device.open("cuda")
    assert "cannot be loaded" in (why_no_cuda() or "")


def test_the_toolkit_that_the_environment_names_is_searched_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Issue 7, item 1: then the loader's path, the toolkit's usual place, and the packages of CUDA 13 and of 12."""
    monkeypatch.delenv("HELIOS_CUDART", raising=False)
    names = (
        "home/lib64/libcudart.so.12",
        "path/lib/libcudart.so.13",
        "usual/lib64/libcudart.so.13",
        "packages/nvidia/cu13/lib/libcudart.so.13",
        "packages/nvidia/cuda_runtime/lib/libcudart.so.12",
    )
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda, "TOOLKIT", tmp_path / "usual")
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    home, path, *others = map(str, paths)
    assert list(cuda._candidates()) == [home, path, *cuda.LIBRARY_NAMES, *others]


def test_a_runtime_that_is_too_old_is_passed_over(
    script: Script, gpu_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is named where there is no other."""
    monkeypatch.delenv("HELIOS_CUDART")
    old = str(libraries.cuda_kernel_library())
    monkeypatch.setattr(cuda, "_candidates", lambda: iter([old, str(gpu_path)]))
    assert cuda.why_not() is None
    monkeypatch.setattr(cuda, "_candidates", lambda: iter([old, "/nothing/libcudart.so.13"]))
    assert cuda.why_not() == f"runtime library {old} has no cudaRuntimeGetVersion; it is too old"


def test_auto_takes_a_gpu_and_what_a_core_was_prepared_for(script: Script) -> None:
    """Design 5: `auto` says what it took and why."""
    for target, name, reason in [
        (None, "cuda:0", "there is one"),
        ("cuda", "cuda:0", "the core was prepared for it"),
        ("host", "cpu", "the core was prepared for it"),
    ]:
        with Device.open("auto", n_threads=1, target=target) as device:
            assert (device.name, device.reason) == (name, reason)
    script(n_devices=0)
    with Device.open("auto", n_threads=1) as device:
        assert (device.name, device.reason) == ("cpu", "there is no GPU on this machine")
    with pytest.raises(DeviceError, match="device cuda:0 cannot be used: there is no GPU on this machine"):
        Device.open("auto", target="cuda")


def test_all_device_code_is_loaded_and_every_kernel_found(script: Script, gpu_path: Path) -> None:
    """CARD-3: the table's images and symbols are those that the driver is given."""
    with Device.open("cuda:1") as device:
        assert (device.name, device.target) == ("cuda:1", "cuda")
        assert state(gpu_path, "images") == len(device.kernels.table.images) > 5
        assert device.kernels.handles.keys() == device.kernels.table.signatures.keys()


def test_no_error_is_left_for_others_who_ask_for_the_last_one(script: Script) -> None:
    """Another user of the runtime in this process would take it for its own."""
    with Device.open("cuda") as device:
        assert device.cudart.function("cudaPeekAtLastError")() == 0


def test_threads_other_than_the_first_use_the_same_gpu(script: Script, gpu_path: Path) -> None:
    with Device.open("cuda:1") as device:
        for call in (
            lambda: device.allocate(64),
            lambda: device.pinned(64),
            device.new_event,
            device.memory_free_bytes,
        ):
            ctypes.CDLL(str(gpu_path)).cudaSetDevice(0)
            call()
            assert state(gpu_path, "device") == 1


def test_the_host_sleeps_while_it_waits(script: Script, gpu_path: Path) -> None:
    """Design 6: cudaEventBlockingSync and cudaDeviceScheduleBlockingSync, as the driver's default spins; no times are taken."""
    with Device.open("cuda") as device:
        device.new_event().close()
        assert state(gpu_path, "event_flags") == 1 | 2
        assert state(gpu_path, "device_flags") == 4


def test_a_program_is_on_the_gpu_before_its_first_launch(script: Script, gpu_path: Path) -> None:
    """Issue 7, item 1; RT-7: an executable is uploaded when it is made, and one that cannot be goes again."""
    with Device.open("cuda") as device:
        chain, buffers = silu_gates(device, 2)
        instantiate(device, chain, buffers, 1).close()
        assert state(gpu_path, "uploads") == 1
        script(failing="cudaGraphUpload", code=2)
        with pytest.raises(DeviceError, match="cudaGraphUpload failed"):
            instantiate(device, chain, buffers, 1)
        assert state(gpu_path, "executables") == 0


def entries(image: Image) -> set[tuple[str, int]]:
    """What is in a fat binary: a head of 16 bytes, then for each entry what it is, its sizes, and at byte 28 the architecture."""
    data = ctypes.string_at(image.address, image.size_bytes)
    at, found = struct.unpack_from("<H", data, 6)[0], set()
    while at < image.size_bytes:
        kind, _, head_nbytes, nbytes = struct.unpack_from("<HHIQ", data, at)
        found.add((("", "PTX", "code")[kind], struct.unpack_from("<I", data, at + 28)[0]))
        at += head_nbytes + nbytes
    return found


def test_every_source_has_code_for_each_gpu_and_ptx_for_later_ones() -> None:
    """Issue 7, item 2. A build may have been asked for some architectures; CI builds all."""
    need_cuda_library()
    images = KernelTable.load(libraries.cuda_kernel_library()).images
    found = {(image.name, *entry) for image in images for entry in entries(image)}
    built = {architecture for _, kind, architecture in found if kind == "code"}
    every = {int(architecture.removesuffix("a")) for architecture in ARCHITECTURES}
    assert built <= every
    assert built == every or not os.environ.get("CI")
    expected = {("PTX", int(PTX_ARCHITECTURE)), *(("code", architecture) for architecture in built)}
    assert found == {(image.name, *entry) for image in images for entry in expected}


def test_memory_is_zeroed_and_a_reserve_is_kept(script: Script) -> None:
    """RT-7: what the cache may have is what the driver calls free, less the reserve."""
    with Device.open("cuda") as device:
        assert not device.download(device.allocate(1000).address, 1000).any()
        assert not device.pinned(1000).view.any()
        assert device.memory_free_bytes() == FREE_NBYTES - CUDA_RESERVE_BYTES
        with pytest.raises(OutOfMemoryError):
            device.allocate(1 << 60)


def test_every_kernel_waits_in_the_code_of_every_gpu_that_starts_kernels_early() -> None:
    """CARD-3: of PTX too, which the driver compiles for a GPU that no code is for."""
    need_cuda_library()
    assert all(each.waits for each in KernelTable.load(libraries.cuda_kernel_library()).signatures.values())
    assert int(PTX_ARCHITECTURE) >= 10 * LEAST_EARLY_CAPABILITY


@pytest.mark.parametrize("capability", [8, 9, 12])
def test_kernels_that_wait_themselves_start_early_where_the_gpu_can(
    script: Script, gpu_path: Path, capability: int
) -> None:
    """CARD-3: an edge of the programmatic kind between two kernels; the first has nothing to follow."""
    script(capability=capability)
    with Device.open("cuda") as device:
        signature = device.kernels.table.signatures["silu_gate.1"]
        chain, buffers = silu_gates(device, 4)
        graph = instantiate(device, chain, buffers, 1)
        assert state(gpu_path, "early_edges") == (3 if capability >= 9 else 0)
        graph.launch(device.stream)
        device.stream.synchronize()
        graph.close()
        object.__setattr__(signature, "waits", False)
        plain = instantiate(device, chain, buffers, 1)
        assert state(gpu_path, "early_edges") == (3 if capability >= 9 else 0)
        plain.close()


@pytest.mark.parametrize("code", sorted(STICKY_ERRORS))
def test_a_lost_device_is_told_once_and_released_in_silence(script: Script, code: int) -> None:
    """CACHE-4: every code after which the driver refuses all."""
    device = Device.open("cuda")
    memory = device.allocate(64)
    script(failing="cudaEventSynchronize", code=code)
    with (
        device.new_event() as event,
        pytest.raises(DeviceError, match=rf"cudaEventSynchronize failed with .*\({code}\)"),
    ):
        event.synchronize()
    script(failing="cudaFree", code=code)
    memory.close()
    device.close()


def test_an_error_that_is_not_the_devices_end_is_told_at_release(script: Script) -> None:
    with Device.open("cuda") as device:
        memory = device.allocate(64)
        script(failing="cudaFree", code=1)
        with pytest.raises(DeviceError, match="cudaFree failed"):
            memory.close()
        script()


def test_a_core_that_was_prepared_where_no_gpu_is_is_served_on_one(
    script: Script, gpu_path: Path, tmp_path: Path
) -> None:
    """CARD-3: `--device cuda` whole, with the emulator for the device code; a device that is lost ends every request once."""
    core = prepared(tmp_path, TinyModel(type=Q.Q4_0), "cuda")
    with served_model(core, device="cuda:1", threads=None, context=512, accept=NAMESPACE) as server:
        assert " on cuda:1 (it was asked for)" in server.engine.description
        asked = {"prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0, "ignore_eos": True}
        reply = server.post("/v1/completions", asked)
        assert reply["usage"]["completion_tokens"] == 5  # launched by a thread that was not the one that loaded it
        script(failing="cudaEventSynchronize", code=700)
        for _ in range(2):
            error = server.post("/v1/completions", asked, status=500)["error"]
            assert error["code"] == "device_error"
    script()


def test_the_end_to_end_suite_passes_on_the_device_cuda(gpu_path: Path) -> None:
    """Issue 7: one suite with a device parameter; `cuda` is among its devices where there is one, as the stand-in says."""
    environment = os.environ | {
        "HELIOS_CUDART": str(gpu_path),
        "HELIOS_TEST_KERNELS": str(libraries.simt_kernel_library()),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", "tests/end_to_end"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:]
    assert re.search(r"^\d+ passed, \d+ deselected", result.stdout, re.MULTILINE)


def test_the_cache_takes_the_memory_of_a_gpu_that_is_free_beside_the_model(script: Script, tmp_path: Path) -> None:
    """RT-7: of the host's memory it would take half, and one context would not fit. The GPU that is used says what is free."""
    core_path = prepared(tmp_path, TinyModel(type=Q.Q4_0), "cuda")
    settings = Settings(device="cuda", max_active=1, accept=NAMESPACE)
    with open_core(core_path) as core:
        whole = Bootstrap.load(core, NAMESPACE).contract
    limits = choose_limits(whole, settings)
    contract = select_programs(whole, limits)
    n_least = limits.context_tokens // limits.page_tokens
    left_nbytes = int(1.5 * n_least * contract.page_nbytes)
    free_nbytes = left_nbytes + sum(buffer.nbytes for buffer in contract.buffers)
    script(free_nbytes=free_nbytes + CUDA_RESERVE_BYTES)
    with Engine.start(core_path, settings) as engine:
        assert engine.capacities.shape.n_pages == int(left_nbytes * GPU_MEMORY_SHARE) // contract.page_nbytes
    with pytest.raises(OutOfMemoryError):
        choose_capacities(contract, limits, settings, free_nbytes, is_host=True)


def test_a_core_for_a_gpu_is_the_same_whichever_library_it_was_prepared_with(tmp_path: Path) -> None:
    """CARD-3: so one that was prepared for a GPU answers on the emulator."""
    need_cuda_library()
    model = TinyModel(type=Q.Q4_1)
    assert prepared(tmp_path, model, "cuda").read_bytes() == prepared(tmp_path, model, "simt").read_bytes()


def real_runtimes() -> list[str]:
    """The runtime libraries with a path of their own that the search would try here."""
    return [name for name in cuda._candidates() if "/" in name]


def test_the_real_runtime_has_every_function_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 7: symbols of CUDA 12.8 and 13, which are among the packages for tests; without a driver there is one clear line."""
    versions = set()
    for path in real_runtimes():
        cudart = Cudart(path)
        versions.add(cudart.integer("cudaRuntimeGetVersion"))
        if cudart.integer("cudaDriverGetVersion") == 0:
            monkeypatch.setenv("HELIOS_CUDART", path)
            assert cuda.why_not() == "there is no NVIDIA driver on this machine"
            assert cudart.function("cudaMalloc")(ctypes.byref(ctypes.c_void_p()), 64) == cuda.INSUFFICIENT_DRIVER
    assert {12080, 13000} <= versions
