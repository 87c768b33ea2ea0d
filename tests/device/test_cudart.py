"""The ctypes table is the header: names, parameter types, struct layouts, error names."""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any

import pytest

from helios.device.cudart import (
    FUNCTIONS,
    HOST_FUNCTIONS,
    TEXT_FUNCTIONS,
    Cudart,
    EdgeData,
    GraphNodeParams,
    KernelNodeParams,
    MemsetParams,
)
from helios.errors import DeviceError
from tests.device.compiling import ROOT

HEADER = (ROOT / "cuda_src" / "cudart" / "cudart.h").read_text()
DECLARATION = re.compile(r"HELIOS_API (cudaError_t|const char\*) (\w+)\(([^)]*)\);")
ENUMS = {"cudaError_t", "cudaMemcpyKind", "cudaDeviceAttr", "cudaFuncAttribute"}
HANDLES = set(re.findall(r"^typedef struct \w+\* (\w+);", HEADER, re.MULTILINE))
SCALARS = {"int": c_int, "unsigned int": c_uint, "size_t": c_size_t, "unsigned long long": c_ulonglong}
POINTERS: dict[str, Any] = {
    "int*": POINTER(c_int),
    "size_t*": POINTER(c_size_t),
    "void**": POINTER(c_void_p),
    "void*": c_void_p,
    "const void*": c_void_p,
    "const char*": c_char_p,
    "const cudaGraphNode_t*": POINTER(c_void_p),
    "const cudaGraphNodeParams*": POINTER(GraphNodeParams),
    "const cudaGraphEdgeData*": POINTER(EdgeData),
    "const cudaKernelNodeParams*": POINTER(KernelNodeParams),
    "const cudaMemsetParams*": POINTER(MemsetParams),
}


def declared() -> dict[str, tuple[str, list[str]]]:
    """Every function of the header: its result, and its parameter types as written."""
    functions = {}
    for result, name, parameters in DECLARATION.findall(HEADER):
        words = [re.sub(r"\s+", " ", p).strip() for p in parameters.split(",")]
        functions[name] = (result, [] if words == ["void"] else [word.rsplit(" ", 1)[0] for word in words])
    return functions


def matches(c_type: str, argtype: Any) -> bool:
    """Whether ctypes passes `argtype` as the header's `c_type` wants it."""
    if c_type in ENUMS:
        return argtype is c_int
    if c_type in HANDLES:
        return argtype is c_void_p
    if c_type.removesuffix("*") in HANDLES:
        return argtype is POINTER(c_void_p)
    if c_type == "void**":  # an out-parameter, or an option list that is always null
        return argtype in (POINTER(c_void_p), c_void_p)
    return argtype is (SCALARS.get(c_type) or POINTERS[c_type])


def test_the_table_declares_what_the_header_declares() -> None:
    header = declared()
    assert set(header) == set(FUNCTIONS) | set(TEXT_FUNCTIONS) | set(HOST_FUNCTIONS)
    for name, argtypes in (FUNCTIONS | HOST_FUNCTIONS).items():
        result, parameters = header[name]
        assert result == "cudaError_t", name
        assert len(parameters) == len(argtypes), name
        for c_type, argtype in zip(parameters, argtypes, strict=True):
            assert matches(c_type, argtype), (name, c_type, argtype)
    for name in TEXT_FUNCTIONS:
        assert header[name] == ("const char*", ["cudaError_t"])


def test_structs_have_the_layout_of_cuda_13() -> None:
    assert ctypes.sizeof(KernelNodeParams) == 56
    offsets = {name: getattr(KernelNodeParams, name).offset for name, _ in KernelNodeParams._fields_}
    assert offsets == {"func": 0, "grid": 8, "block": 20, "shared_bytes": 32, "params": 40, "extra": 48}
    assert (ctypes.sizeof(GraphNodeParams), GraphNodeParams.kernel.offset, ctypes.sizeof(EdgeData)) == (256, 16, 8)
    assert ctypes.sizeof(MemsetParams) == 40
    offsets = {name: getattr(MemsetParams, name).offset for name, _ in MemsetParams._fields_}
    assert offsets == {"dst": 0, "pitch": 8, "value": 16, "element_bytes": 20, "width": 24, "height": 32}


def test_every_error_has_its_name_and_a_sentence(cudart: Cudart) -> None:
    for name, number in re.findall(r"(cudaError\w+|cudaSuccess) = (\d+)", HEADER):
        assert re.fullmatch(rf"{name} \({number}\): .+", cudart.describe(int(number)))
    assert cudart.describe(12345) == "unrecognized error code (12345): unrecognized error code"


def test_a_failed_call_names_itself_and_the_error(cudart: Cudart) -> None:
    with pytest.raises(DeviceError, match=r"^cudaSetDevice failed with cudaErrorInvalidDevice \(101\): .+"):
        cudart.call("cudaSetDevice", 99)


def test_the_last_error_is_kept_until_it_is_read(cudart: Cudart) -> None:
    cudart.function("cudaSetDevice")(99)
    assert cudart.function("cudaPeekAtLastError")() == 101
    assert cudart.function("cudaGetLastError")() == 101
    assert cudart.function("cudaGetLastError")() == 0


def test_a_file_that_is_no_runtime_library_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "libnothing.so"
    path.write_bytes(b"not a library")
    with pytest.raises(DeviceError, match="cannot be loaded"):
        Cudart(path)


def test_a_library_without_the_functions_is_called_too_old(kernel_path: Path) -> None:
    with pytest.raises(DeviceError, match="has no cudaRuntimeGetVersion; it is too old"):
        Cudart(kernel_path)
