"""Rounds made by hand, without a scheduler: a test says which pages and rows a request uses."""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.enums import Operation
from helios.contract.prepared import PreparedContract
from helios.corefile.contents import read_contents
from helios.corefile.reader import open_core
from helios.device.device import Device
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target
from helios.owner import Owner
from helios.runtime.model import ModelRuntime
from helios.scheduler.request import GenerationRequest
from helios.scheduler.round import Admission, Lane, LaneCompletion, ProgramShape, Restore, Round, Snapshot
from helios.scheduler.sequence import Sequence
from tests.ignition.tiny_model import TinyModel, write_tiny

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PAGE_TOKENS = 16


NAMESPACE = "helios.tests"


def prepare_tiny(directory: Path, concurrency: int = 3) -> Path:
    """The core of a tiny checkpoint, signed for NAMESPACE."""
    checkpoint = write_tiny(directory / "tiny.gguf", TinyModel())
    path = directory / "tiny.core"
    prepare(checkpoint, path, host_target(), PrepareOptions(concurrency=concurrency), key=KEY, namespace=NAMESPACE)
    return path


class Loaded(Owner):
    """A core's runtime on the CPU device; owner closes."""

    def __init__(
        self, core_path: Path, n_pages: int, *, n_host_pages: int = 0, n_host_rows: int = 0, n_threads: int = 1
    ) -> None:
        self.core = open_core(core_path)
        contents = read_contents(self.core)
        self.contract: PreparedContract = contents.contract
        self.device = Device.open("cpu", n_threads)
        host = {"n_host_pages": n_host_pages, "n_host_rows": n_host_rows}
        try:
            self.runtime = ModelRuntime.load(self.core, self.contract, contents.manifest, self.device, n_pages, **host)
        except BaseException:
            self.device.close()
            self.core.close()
            raise

    def shape(self, operation: Operation) -> ProgramShape:
        """The largest program of an operation."""
        graph = self.contract.graphs_of(operation)[-1]
        return ProgramShape(graph.index, graph.name, graph.batch_capacity, graph.packed_token_capacity)

    def run(self, round_: Round) -> list[LaneCompletion]:
        self.runtime.launch(round_)
        done, completions = self.runtime.complete()
        assert done is round_
        return completions

    def page(self, page_id: int) -> bytes:
        """A page's bytes on the device."""
        nbytes = self.contract.page_nbytes
        plane = self.runtime._buffers[self.contract.buffer_named("kv").id].address
        return self.device.download(plane + page_id * nbytes, nbytes).tobytes()

    def row(self, row: int) -> bytes:
        """A snapshot row's bytes on the device."""
        (view,) = self.contract.state_row_views
        first = self.runtime._buffers[view.buffer_id].address + view.offset
        index = self.contract.first_snapshot_row + row
        return self.device.download(first + index * view.row_stride, view.row_nbytes).tobytes()

    def close(self) -> None:
        self.runtime.close()
        self.device.close()
        self.core.close()


@dataclass
class Tenant:
    """One request in a slot, with the pages that the test gives it. `consumed`: where it starts."""

    loaded: Loaded
    slot: int
    request: GenerationRequest
    pages: List[int]
    consumed: int = 0
    generation: int = 1
    sequence: Sequence = field(init=False)

    def __post_init__(self) -> None:
        self.sequence = Sequence(self.slot, 0, self.request, self.request.output_limit)

    def prefill(self, *, restore: Restore | None = None, snapshots: tuple[Snapshot, ...] = ()) -> Round:
        """Everything behind `consumed`, and one sample, after the slot was set up."""
        n_tokens = len(self.request.prompt_tokens) - self.consumed
        lane = Lane(self.sequence, self.slot, self.generation, True, self.consumed, n_tokens, True)
        updates = [(self.slot, index, page_id) for index, page_id in enumerate(self.pages)]
        if restore is not None:
            updates = [update for update in updates if update[1] != restore.page_index]
        return Round(
            self.loaded.shape(Operation.PREFILL),
            (lane,),
            n_tokens,
            tuple(updates),
            admissions=(Admission(self.sequence, self.slot, self.generation, self.consumed),),
            initializer=self.loaded.shape(Operation.INITIALIZE),
            restores=() if restore is None else (restore,),
            restorer=None if restore is None else self.loaded.shape(Operation.RESTORE),
            **self._saving(snapshots),
        )

    def scored(self, n_tokens: int, *, is_first: bool) -> Round:
        """The next `n_tokens` prompt tokens, scored; a sample behind the last of them."""
        position, self.consumed = self.consumed, self.consumed + n_tokens
        is_last = self.consumed == len(self.request.prompt_tokens)
        lane = Lane(self.sequence, self.slot, self.generation, True, position, n_tokens, is_last, is_scored=True)
        updates = [(self.slot, index, page_id) for index, page_id in enumerate(self.pages)]
        return Round(
            self.loaded.shape(Operation.SCORED_PREFILL),
            (lane,),
            n_tokens,
            tuple(updates) if is_first else (),
            admissions=(Admission(self.sequence, self.slot, self.generation),) if is_first else (),
            initializer=self.loaded.shape(Operation.INITIALIZE) if is_first else None,
        )

    def decode(self, position: int, *, snapshots: tuple[Snapshot, ...] = ()) -> Round:
        """The pending token, which stands at `position`."""
        lane = Lane(self.sequence, self.slot, self.generation, False, position, 1, True)
        return Round(self.loaded.shape(Operation.DECODE), (lane,), 1, (), **self._saving(snapshots))

    def _saving(self, snapshots: tuple[Snapshot, ...]) -> dict[str, object]:
        shape = self.loaded.shape(Operation.SNAPSHOT) if snapshots else None
        return {"snapshots": snapshots, "snapshotter": shape}
