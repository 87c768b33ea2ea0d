"""Loading a core: what its programs touch is declared, tuning runs before anything is served, and only one rank is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.corefile.contents import read_contents
from helios.corefile.reader import Core, open_core
from helios.device.device import Device
from helios.errors import ChunkHashError, ContractError
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target
from helios.runtime.model import ModelRuntime
from tests.ignition.tiny_model import TinyModel, write_tiny

N_PAGES = 8
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
Edit = Callable[[pb.ServingContract, execution.ExecutionManifest], object]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    directory = tmp_path_factory.mktemp("load")
    checkpoint = write_tiny(directory / "tiny.gguf", TinyModel())
    prepare(checkpoint, directory / "tiny.core", host_target(), PrepareOptions(concurrency=2), key=KEY)
    with open_core(directory / "tiny.core") as opened:
        yield opened


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device.open("cpu", 1) as opened:
        yield opened


def load(core: Core, device: Device, edit: Edit) -> ModelRuntime:
    """The core's runtime, had its contract and manifest been written otherwise."""
    contents = read_contents(core)
    serving, manifest = pb.ServingContract(), execution.ExecutionManifest()
    serving.CopyFrom(core.contract)
    manifest.CopyFrom(contents.manifest)
    edit(serving, manifest)
    contract = PreparedContract.from_core(serving, manifest)
    return ModelRuntime.load(core, contract, manifest, device, N_PAGES)


def without_access(serving: pb.ServingContract, view: str) -> None:
    for graph in serving.model.graphs:
        if graph.operation == execution.OPERATION_DECODE:
            graph.accesses.remove(next(access for access in graph.accesses if access.view == view))


@pytest.mark.parametrize("view", ["requests", "sampling", "page_table", "histogram"])
def test_a_program_that_touches_undeclared_state_is_not_loaded(core: Core, device: Device, view: str) -> None:
    """CON-10: the error names the graph, the node and the buffer."""
    with pytest.raises(ContractError, match=f"of buffer {view!r}, field 'accesses' declares no such"):
        load(core, device, lambda serving, manifest: without_access(serving, view))


def tuned(serving: pb.ServingContract, manifest: execution.ExecutionManifest) -> None:
    """A buffer that a start-up program fills with sevens, and that the first graph asks for."""
    buffer = manifest.buffers.add(
        id=len(manifest.buffers), name="tuned", kind=execution.BUFFER_KIND_STATE, nbytes=64, producer="tune"
    )
    program = manifest.tuning_programs.add(name="tune", operation=execution.OPERATION_TUNE)
    program.nodes.add(fill=execution.FillNode(destination=buffer.id, value=7, nbytes=64))
    serving.model.graphs[0].tuned_bindings.add(buffer=buffer.id, producer="tune")


def test_tuning_has_run_when_a_core_is_loaded(core: Core, device: Device) -> None:
    """CON-8: producers run before their dependents are exposed."""
    with load(core, device, tuned) as runtime:
        address = runtime._buffers[-1].address
        assert device.download(address, 64).tobytes() == bytes([7]) * 64


def weights_of(runtime: ModelRuntime, device: Device, contract: PreparedContract) -> dict[str, bytes]:
    """The device's memory of each weight, by tensor."""
    buffers = {resource: runtime._buffers[id_] for id_, resource in contract.rank_resources[0].items()}
    return {id_: device.download(buffer.address, buffer.size_bytes).tobytes() for id_, buffer in buffers.items()}


def test_weights_are_the_cores_and_stay_when_its_file_does_not(core: Core, tmp_path: Path) -> None:
    """CORE-3, RT-6: they are memory of their own, so who overwrites or cuts a core that is served changes nothing."""
    path = tmp_path / "served.core"
    path.write_bytes(core.path.read_bytes())
    with open_core(path) as served, Device.open("cpu", 1) as device:
        contents = read_contents(served)
        tensors = {tensor.id: served.tensor(tensor.id) for tensor in served.index.tensors}
        with ModelRuntime.load(served, contents.contract, contents.manifest, device, N_PAGES) as runtime:
            assert weights_of(runtime, device, contents.contract) == tensors
            path.write_bytes(b"\0" * path.stat().st_size)
            os.truncate(path, 0)
            assert weights_of(runtime, device, contents.contract) == tensors


def test_a_core_with_a_damaged_weight_is_not_loaded_and_leaves_nothing(core: Core, tmp_path: Path) -> None:
    """CORE-3: weights are read beside the checks of programs; neither is served without the other."""
    path = tmp_path / "damaged.core"
    data = bytearray(core.path.read_bytes())
    last = core.place(core.index.tensors[-1].id)
    data[last.offset + last.nbytes - 1] ^= 1
    path.write_bytes(data)
    with open_core(path) as damaged, Device.open("cpu", 1) as device:
        contents = read_contents(damaged)
        with pytest.raises(ChunkHashError):
            ModelRuntime.load(damaged, contents.contract, contents.manifest, device, N_PAGES)
        assert device.statistics()["n_device_buffers"] == 0


def test_a_core_of_several_ranks_is_not_loaded_on_one(core: Core, device: Device) -> None:
    """RT-7: an inconsistent start fails with a message that names it."""
    with pytest.raises(ContractError, match="prepared for 2 ranks"):
        load(core, device, lambda serving, manifest: manifest.ranks.extend(map(rank, range(2))))


def rank(number: int) -> execution.RankSection:
    return execution.RankSection(rank=number)


def rebound(serving: pb.ServingContract, operation: int, destination: str, source: int) -> None:
    for graph in serving.model.graphs:
        for binding in graph.bindings:
            if graph.operation == operation and binding.destination == destination:
                binding.source = source


@pytest.mark.parametrize(
    ("operation", "destination", "source"),
    [
        (execution.OPERATION_DECODE, "lane_position", "CONSUMED_ENDPOINT"),
        (execution.OPERATION_PREFILL, "prompt_tokens", "TOKEN_POSITION"),
        (execution.OPERATION_INITIALIZE, "admission_lane_position", "QUERY_LENGTH"),
    ],
)
def test_a_program_that_needs_a_value_that_no_one_makes_is_not_loaded(
    core: Core, device: Device, operation: int, destination: str, source: str
) -> None:
    """RT-7: it would run on whatever its input held."""
    number = pb.ValueSource.Value(f"VALUE_SOURCE_{source}")
    with pytest.raises(ContractError, match=f"binding {destination!r}, field 'source' is {source}, which this server"):
        load(core, device, lambda serving, manifest: rebound(serving, operation, destination, number))
