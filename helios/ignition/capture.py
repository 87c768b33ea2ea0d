"""Records programs: a recipe launches kernels on symbolic tensors, capture turns them into an execution manifest.

It knows buffers, byte ranges and argument structs, nothing of models and nothing of devices. What comes out depends on
the launches alone: scratch values that live at the same time never overlap, every true data dependency is an edge, and
the same launches give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from helios.contract.schema import execution_pb2 as pb
from helios.device.kernel_table import FieldKind
from helios.errors import InternalError
from helios.ignition.dependencies import Access, dependencies
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.scratch import Lifetime, ScratchPlan, plan_scratch
from helios.ignition.signatures import KernelSignature, Target


@dataclass(frozen=True, slots=True)
class Buffer:
    """A physical buffer of the manifest."""

    id: int
    name: str
    kind: pb.BufferKind
    nbytes: int
    page_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class ScratchValue:
    """A temporary of one program; capture gives it a place in the scratch buffer."""

    program: str
    index: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """`nbytes` bytes at `offset` of a buffer (of each page, for a cache plane) or of a scratch value."""

    storage: Buffer | ScratchValue
    offset: int
    nbytes: int

    def at(self, offset: int, nbytes: int | None = None) -> Tensor:
        """The part that starts `offset` bytes in; to the end when `nbytes` is not given."""
        size = self.nbytes - offset if nbytes is None else nbytes
        if offset < 0 or size <= 0 or offset + size > self.nbytes:
            raise InternalError(f"a view of {size:,} bytes at {offset:,} leaves a tensor of {self.nbytes:,}")
        return Tensor(self.storage, self.offset + offset, size)


class PageCount:
    """The value of an int32 argument that the loader sets to the number of pages it allocated."""


PAGE_COUNT = PageCount()

Argument = Tensor | int | float | PageCount


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch as the recipe wrote it."""

    signature: KernelSignature
    arguments: Mapping[str, Argument]

    def pointers(self) -> list[tuple[int, FieldKind, Tensor]]:
        """(argument offset, kind, tensor) of each pointer field."""
        found = []
        for entry in self.signature.fields:
            value = self.arguments[entry.name]
            if isinstance(value, Tensor):
                found.append((entry.offset, entry.kind, value))
        return found


@dataclass(slots=True)
class ProgramCapture:
    """One program while it is recorded. Launches run in the order in which they are made."""

    name: str
    operation: pb.Operation
    batch_capacity: int
    token_capacity: int
    packed_token_capacity: int
    signatures: Mapping[str, KernelSignature]
    launches: list[Launch] = field(default_factory=list)
    values: list[ScratchValue] = field(default_factory=list)

    def scratch(self, nbytes: int) -> Tensor:
        """A new temporary; its life runs from its first launch to its last."""
        value = ScratchValue(self.name, len(self.values), nbytes)
        self.values.append(value)
        return Tensor(value, 0, nbytes)

    def launch(self, kernel: str, **arguments: Argument) -> None:
        """Adds a kernel node. Every field of the argument struct is named, with a tensor for each pointer."""
        signature = self.signatures.get(kernel)
        if signature is None:
            raise InternalError(f"the target has no kernel {kernel}")
        names = {entry.name for entry in signature.fields}
        if names != arguments.keys():
            raise InternalError(f"{kernel}: arguments {sorted(names ^ arguments.keys())} are missing or unknown")
        for entry in signature.fields:
            value = arguments[entry.name]
            if entry.kind.is_pointer != isinstance(value, Tensor):
                raise InternalError(
                    f"{kernel}.{entry.name}: {type(value).__name__} for a field of kind {entry.kind.name}"
                )
            if isinstance(value, Tensor):
                self._check_tensor(f"{kernel}.{entry.name}", entry.kind, value.storage)
        self.launches.append(Launch(signature, arguments))

    def _check_tensor(self, what: str, kind: FieldKind, storage: Buffer | ScratchValue) -> None:
        if isinstance(storage, ScratchValue) and storage.program != self.name:
            raise InternalError(f"{what}: a temporary of {storage.program} in {self.name}")
        if isinstance(storage, Buffer) and kind.writes and storage.kind == pb.BUFFER_KIND_WEIGHT:
            raise InternalError(f"{what}: writes to the weight {storage.name}")

    def touched(self) -> dict[int, tuple[bool, bool]]:
        """For each physical buffer that the program uses: (is read, is written)."""
        found: dict[int, tuple[bool, bool]] = {}
        for launch in self.launches:
            for _, kind, tensor in launch.pointers():
                if isinstance(tensor.storage, Buffer):
                    reads, writes = found.get(tensor.storage.id, (False, False))
                    found[tensor.storage.id] = (reads or kind.reads, writes or kind.writes)
        return found

    def plan(self) -> ScratchPlan:
        """Places the program's temporaries."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, launch in enumerate(self.launches):
            fresh = set()
            for _, kind, tensor in launch.pointers():
                if not isinstance(tensor.storage, ScratchValue):
                    continue
                value = tensor.storage.index
                if value not in first:
                    first[value] = index
                    fresh.add(value)
                if value in fresh and kind.reads:
                    raise InternalError(f"{self.name}: {launch.signature.name} reads a temporary that nothing wrote")
                last[value] = index
        unused = [value.index for value in self.values if value.index not in first]
        if unused:
            raise InternalError(f"{self.name}: temporaries {unused} are never used")
        return plan_scratch([Lifetime(first[v.index], last[v.index], v.nbytes) for v in self.values])


class Capture:
    """Everything that goes into one execution manifest: buffers, destinations, programs."""

    def __init__(self, target: Target) -> None:
        self.programs: list[ProgramCapture] = []
        self.buffers: list[Buffer] = []
        self._target = target
        self._resources: dict[int, str] = {}
        self._destinations: list[pb.Destination] = []

    @property
    def row_form(self) -> RowForm:
        """The activations that the target's linear maps are fastest with."""
        return self._target.row_form

    def buffer(
        self, name: str, kind: pb.BufferKind, nbytes: int, *, page_nbytes: int = 0, resource: str = ""
    ) -> Tensor:
        """Declares a physical buffer. A cache plane has `page_nbytes` and no size; its tensor spans one page."""
        if any(other.name == name for other in self.buffers):
            raise InternalError(f"two buffers are named {name}")
        made = Buffer(len(self.buffers), name, kind, nbytes, page_nbytes)
        self.buffers.append(made)
        if resource:
            self._resources[made.id] = resource
        return Tensor(made, 0, nbytes or page_nbytes)

    def destination(
        self, name: str, tensor: Tensor, element_type: pb.ElementType, count: int, element_words: int
    ) -> None:
        """Declares a named place of an input buffer that host values are copied to."""
        if not isinstance(tensor.storage, Buffer):
            raise InternalError(f"destination {name} is not in a buffer")
        self._destinations.append(
            pb.Destination(
                name=name,
                buffer=tensor.storage.id,
                offset=tensor.offset,
                element_type=element_type,
                count=count,
                element_words=element_words,
            )
        )

    def program(
        self, name: str, operation: pb.Operation, batch: int, tokens: int, packed_tokens: int
    ) -> ProgramCapture:
        """Starts a program with extents B, W and P."""
        made = ProgramCapture(name, operation, batch, tokens, packed_tokens, self._target.signatures)
        self.programs.append(made)
        return made

    def manifest(self) -> pb.ExecutionManifest:
        """Plans scratch and encodes everything. The scratch buffer, shared by all programs, comes last."""
        plans = [program.plan() for program in self.programs]
        scratch = Buffer(
            len(self.buffers), "scratch", pb.BUFFER_KIND_SCRATCH, max((plan.nbytes for plan in plans), default=0)
        )
        buffers = [*self.buffers, scratch] if scratch.nbytes else self.buffers
        return pb.ExecutionManifest(
            target=self._target.name,
            buffers=[_encode_buffer(buffer, self._resources.get(buffer.id, "")) for buffer in buffers],
            programs=[
                _encode_program(self._target, program, plan, scratch.id)
                for program, plan in zip(self.programs, plans, strict=True)
            ],
            destinations=self._destinations,
        )


def _encode_buffer(buffer: Buffer, resource: str) -> pb.Buffer:
    return pb.Buffer(
        id=buffer.id,
        name=buffer.name,
        kind=buffer.kind,
        nbytes=buffer.nbytes,
        page_nbytes=buffer.page_nbytes,
        resource=resource,
    )


def _encode_program(target: Target, program: ProgramCapture, plan: ScratchPlan, scratch_id: int) -> pb.Program:
    def place(tensor: Tensor) -> tuple[int, int]:
        if isinstance(tensor.storage, Buffer):
            return tensor.storage.id, tensor.offset
        return scratch_id, plan.offsets[tensor.storage.index] + tensor.offset

    accesses = []
    for launch in program.launches:
        node = []
        for _, kind, tensor in launch.pointers():
            buffer, start = place(tensor)
            node.append(Access(buffer, start, start + tensor.nbytes, kind.writes))
        accesses.append(node)
    return pb.Program(
        name=program.name,
        operation=program.operation,
        batch_capacity=program.batch_capacity,
        token_capacity=program.token_capacity,
        packed_token_capacity=program.packed_token_capacity,
        nodes=[
            pb.Node(
                depends_on=before,
                kernel=_encode_launch(target, launch, {t: place(t) for _, _, t in launch.pointers()}),
            )
            for launch, before in zip(program.launches, dependencies(accesses), strict=True)
        ],
    )


def _encode_launch(target: Target, launch: Launch, places: Mapping[Tensor, tuple[int, int]]) -> pb.KernelNode:
    """The argument struct with zero pointers, where the loader puts addresses, and the launch that the arguments need."""
    arguments = bytearray(launch.signature.args_nbytes)
    page_counts = []
    for entry in launch.signature.fields:
        value = launch.arguments[entry.name]
        if isinstance(value, PageCount):
            page_counts.append(entry.offset)
        elif not isinstance(value, Tensor):
            _pack_scalar(arguments, launch.signature.name, entry.name, entry.kind, entry.offset, value)
    geometry = target.geometry(launch.signature.name, bytes(arguments))
    return pb.KernelNode(
        kernel=launch.signature.name,
        grid_x=geometry.n_blocks,
        grid_y=1,
        grid_z=1,
        block_x=geometry.n_threads,
        block_y=1,
        block_z=1,
        dynamic_shared_nbytes=geometry.shared_bytes,
        arguments=bytes(arguments),
        relocations=[
            pb.Relocation(argument_offset=offset, buffer=places[tensor][0], offset=places[tensor][1])
            for offset, _, tensor in launch.pointers()
        ],
        page_count_offsets=page_counts,
    )


def _pack_scalar(
    arguments: bytearray, kernel: str, name: str, kind: FieldKind, offset: int, value: int | float
) -> None:
    try:
        struct.pack_into(kind.struct_format, arguments, offset, value)
    except (struct.error, OverflowError) as error:
        raise InternalError(f"{kernel}.{name}: {value!r} does not fit a field of kind {kind.name}") from error
