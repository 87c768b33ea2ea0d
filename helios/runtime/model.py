"""ModelRuntime: a core's programs made launchable, rounds executed in two frames, transfers beside them.

It knows contracts, buffers and graphs, no requests' texts and no sockets; there is no branch on a model's name (RT-1). Invariants:
nothing is allocated, captured or compiled after `load` (RT-7); everything that a graph or a copy touches lives until `close`, which
waits for both streams to drain (RT-6).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from helios.cache.transfer import Transfer
from helios.contract.accesses import check_accesses
from helios.contract.enums import BufferKind, Operation, ValueSource
from helios.contract.prepared import PreparedContract
from helios.contract.schema import execution_pb2
from helios.corefile.reader import Core
from helios.device.device import Device
from helios.device.graph import GraphExec
from helios.device.memory import DeviceBuffer
from helios.device.program import BoundBuffer, instantiate, kernel_pointers
from helios.errors import ContractError, DeviceError, InternalError, OutOfMemoryError
from helios.owner import Owner
from helios.packing.values import RoundWords, Values
from helios.runtime.admission import admission_values
from helios.runtime.distributions import distributed_lanes, distributed_tokens
from helios.runtime.frame import Frame
from helios.runtime.record import Submitted
from helios.runtime.round_values import RoundValues
from helios.runtime.scoring import Targets, targets_of
from helios.runtime.state_values import StateValues
from helios.runtime.supply import check_supply
from helios.runtime.transfers import TransferQueue
from helios.scheduler.flight import N_FRAMES
from helios.scheduler.round import LaneCompletion, ProgramShape, Round

# Sized for the most that requests may ask for, of which they ask for little.
_SPARSE_KINDS = frozenset({BufferKind.STATE, BufferKind.SCRATCH, BufferKind.INPUT, BufferKind.COMPLETION})


class ModelRuntime(Owner):
    """Owns device buffers, graphs and frames of one loaded core. Use `load`, then `launch` and `complete` in turn."""

    def __init__(
        self,
        device: Device,
        contract: PreparedContract,
        buffers: list[DeviceBuffer],
        transfers: TransferQueue,
    ) -> None:
        self._device = device
        self._contract = contract
        self._buffers = buffers
        self._transfers = transfers
        self._graphs: dict[int, GraphExec] = {}
        self._in_flight: deque[tuple[Frame, Round]] = deque()
        self._sequence = 0
        self._operations = {graph.index: graph.operation for graph in contract.graphs}
        self._n_launches = dict.fromkeys(self._operations.values(), 0)
        self._values = RoundValues(contract.completion.lanes_capacity, contract.pages_per_slot)
        self._state_values = StateValues(contract)
        inputs = {b.id: buffers[b.id] for b in contract.buffers if b.kind is BufferKind.INPUT}
        completion = buffers[contract.completion.buffer_id]
        self._frames = [Frame(index, device, contract, inputs, completion) for index in range(N_FRAMES)]
        self._free_frames = deque(self._frames)

    @classmethod
    def load(
        cls,
        core: Core,
        contract: PreparedContract,
        manifest: execution_pb2.ExecutionManifest,
        device: Device,
        n_pages: int,
        progress: Callable[[int, int], None] | None = None,
        *,
        n_host_pages: int = 0,
        n_host_rows: int = 0,
    ) -> ModelRuntime:
        """Allocate every buffer and host store, fill the weights, tune, instantiate every program. Raises ContractError or
        OutOfMemoryError. Host pages and rows are what transfers may move to host memory."""
        if contract.n_ranks != 1:
            raise ContractError(f"the core was prepared for {contract.n_ranks} ranks, this server runs 1")
        check_supply(contract)
        buffers: list[DeviceBuffer] = []
        runtime: ModelRuntime | None = None
        try:
            _allocate(buffers, contract, device, n_pages)
            transfers = TransferQueue(device, contract, buffers, n_host_pages, n_host_rows)
            runtime = cls(device, contract, buffers, transfers)
            bound = _bind(contract, buffers)
            with ThreadPoolExecutor(1, "helios-weights") as reading:
                # Beside the checks; nothing runs before the weights were verified.
                weights = reading.submit(_fill_weights, buffers, contract, core, device, progress)
                for graph in contract.graphs:  # those that were selected (CON-1)
                    runtime._graphs[graph.index] = instantiate(device, manifest.programs[graph.index], bound, n_pages)
                with _tuning_graphs(manifest, device, bound, n_pages) as tuning:
                    check_accesses(contract, manifest, kernel_pointers(device, n_pages))
                    weights.result()
                    _tune(contract, tuning, device)
            device.stream.synchronize()
        except BaseException:
            if runtime is not None:
                runtime.close()
            else:
                for buffer in buffers:
                    buffer.close()
            raise
        return runtime

    # -- execution

    def make_current(self) -> None:
        """To be called by each thread but the one that has loaded it, before anything below."""
        self._device.make_current()

    @property
    def n_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_free_frame(self) -> bool:
        return bool(self._free_frames)

    def launch(self, round_: Round) -> None:
        """Queue a round: inputs, graphs, completion, event. Returns at once; the order of launches is the order of completions."""
        frame = self._free_frames[0]
        self._sequence += 1
        submitted = None
        if round_.initializer is not None:
            self._run(frame, round_.initializer, admission_values(round_.admissions, self._contract.vocabulary))
        if round_.restorer is not None:
            self._run(frame, round_.restorer, self._state_values.of_restores(round_.restores))
        if round_.program is not None:
            submitted = self._run_lanes(frame, round_, round_.program)
        if round_.snapshotter is not None:
            self._run(frame, round_.snapshotter, self._state_values.of_snapshots(round_.snapshots))
        frame.submit(submitted)
        self._in_flight.append((self._free_frames.popleft(), round_))

    def _run_lanes(self, frame: Frame, round_: Round, program: ProgramShape) -> Submitted:
        """Run the program over the lanes: what the completion has to answer."""
        lanes = round_.lanes
        values = self._values.of(round_, self._sequence, frame.index)
        targets: Targets = ()
        n_distributed: tuple[int, ...] = ()
        if self._operations[program.index] is Operation.SCORED_PREFILL:
            targets = targets_of(lanes)
            values[ValueSource.SCORED_TARGETS] = np.concatenate(targets).astype(np.int32)
            n_distributed = distributed_tokens(lanes)
            if sum(n_distributed) > self._contract.completion.prompt_distributions_capacity:
                raise InternalError(f"the distributions of {sum(n_distributed)} prompt tokens are asked of a round")
        asking = distributed_lanes(lanes)
        if len(asking) > self._contract.completion.distributions_capacity:
            raise InternalError(f"{len(asking)} lanes of a round ask for their distributions")
        self._run(frame, program, values, self._values.words)
        return Submitted(self._sequence, program.index, len(lanes), frame.index, targets, asking, n_distributed)

    def _run(self, frame: Frame, program: ProgramShape, values: Values, words: RoundWords | None = None) -> None:
        frame.stage(program.index, values, words)
        self._graphs[program.index].launch(self._device.stream)
        self._n_launches[self._operations[program.index]] += 1

    def complete(self) -> tuple[Round, list[LaneCompletion]]:
        """Wait for the oldest round in flight and read its completion. Raises DeviceError."""
        frame, round_ = self._in_flight.popleft()
        completions = frame.wait()
        self._free_frames.append(frame)
        return round_, completions

    # -- transfers

    @property
    def n_transfers(self) -> int:
        """Transfers that were started and not yet reported finished."""
        return self._transfers.n_unfinished

    def start_transfers(self, transfers: Iterable[Transfer]) -> None:
        """Queue copies between device and host memory, beside the rounds. Returns at once."""
        self._transfers.start(transfers)

    def finished_transfers(self) -> list[Transfer]:
        """The transfers that have finished since the last call, without waiting. Raises DeviceError."""
        return self._transfers.finished()

    def wait_transfer(self) -> None:
        """Block until `finished_transfers` has one to report. Raises DeviceError."""
        self._transfers.wait()

    # -- life

    def statistics(self) -> dict[str, int]:
        return {
            "device_bytes": sum(buffer.size_bytes for buffer in self._buffers),
            "submissions_total": self._sequence,
            **{
                f'graph_launches_total{{operation="{operation.name.lower()}"}}': count
                for operation, count in self._n_launches.items()
            },
            **self._transfers.statistics(),
        }

    def close(self) -> None:
        """Drain both streams, then free frames, graphs, host stores and buffers."""
        with contextlib.suppress(DeviceError):  # a sticky fault: nothing runs any more, and memory still has to go
            self._device.stream.synchronize()
        self._transfers.close()
        for frame in self._frames:
            frame.close()
        for graph in self._graphs.values():
            graph.close()
        for buffer in self._buffers:
            buffer.close()
        self._graphs.clear()
        self._buffers.clear()


def _allocate(buffers: list[DeviceBuffer], contract: PreparedContract, device: Device, n_pages: int) -> None:
    """Append one device buffer for each declared one, in id order."""
    for buffer in contract.buffers:
        is_plane = buffer.kind is BufferKind.CACHE_PLANE
        nbytes = buffer.page_nbytes * n_pages if is_plane else buffer.nbytes
        try:
            buffers.append(device.allocate(nbytes, is_sparse=buffer.kind in _SPARSE_KINDS))
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"buffer {buffer.name} of {nbytes:,} bytes does not fit, {device.memory_free_bytes():,} are free on {device.name}",
                hint="lower --context or --max-active",
            ) from error


@contextlib.contextmanager
def _tuning_graphs(
    manifest: execution_pb2.ExecutionManifest, device: Device, bound: list[BoundBuffer], n_pages: int
) -> Iterator[dict[str, GraphExec]]:
    """The tuning programs, checked as every other one, for as long as they are needed."""
    with contextlib.ExitStack() as tuning:
        yield {
            program.name: tuning.enter_context(instantiate(device, program, bound, n_pages))
            for program in manifest.tuning_programs
        }


def _tune(contract: PreparedContract, tuning: dict[str, GraphExec], device: Device) -> None:
    """Run each tuning program that a graph needs, once (CON-8)."""
    needed = {contract.buffers[id_].producer for graph in contract.graphs for id_ in graph.tuned_buffer_ids}
    for name in sorted(needed):
        tuning[name].launch(device.stream)
    device.stream.synchronize()


def _bind(contract: PreparedContract, buffers: list[DeviceBuffer]) -> list[BoundBuffer]:
    """The declared buffers with their memory, by id."""
    return [BoundBuffer(b.name, b.kind, buffers[b.id].address, buffers[b.id].size_bytes) for b in contract.buffers]


def _fill_weights(
    buffers: list[DeviceBuffer],
    contract: PreparedContract,
    core: Core,
    device: Device,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Read the weights into their buffers. The host's own are read in place; a GPU is given each chunk once it was verified."""
    destinations: dict[str, list[DeviceBuffer]] = defaultdict(list)
    for buffer_id, resource in contract.rank_resources[0].items():
        destinations[resource].append(buffers[buffer_id])
    if device.is_host:
        core.read_tensors({id_: group[0].host_view() for id_, group in destinations.items()}, progress)
        for first, *others in destinations.values():
            for other in others:
                other.host_view()[:] = first.host_view()
        return
    device.make_current()
    n_total = sum(buffer.size_bytes for group in destinations.values() for buffer in group)
    n_done = 0
    for chunk in core.stream_tensors(destinations):
        for buffer in destinations[chunk.id]:
            device.upload(buffer.address + chunk.offset, chunk.data)
            n_done += len(chunk.data)
        if progress is not None:
            progress(n_done, n_total)
