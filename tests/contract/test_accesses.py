"""What nodes touch is covered by what their graph declares, or the core is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helios.contract.accesses import Pointer, check_accesses
from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError
from tests.contract.editing import Edit, graph, program, put
from tests.contract.full_sample import CONFIDENCE, CURSOR, ROWS, SPECULATIVE, TUNED, full_contract, full_manifest
from tests.contract.sample import DECODE, INPUTS, KV, REQUESTS, SCRATCH, WEIGHT

# The one kernel of these tests reads through its first pointer and writes through its second, as many bytes as `grid_x` says.
READ, WRITE = 0, 8


def pointers(node: execution.KernelNode) -> Sequence[Pointer]:
    return [Pointer(READ, node.grid_x, True, False), Pointer(WRITE, node.grid_x, False, True)]


def add_kernel(program: execution.Program, at: int, buffer: int, offset: int, nbytes: int) -> None:
    node = program.nodes.add(kernel=execution.KernelNode(kernel="k", grid_x=nbytes))
    node.kernel.relocations.add(argument_offset=at, buffer=buffer, offset=offset)


def load(edit: Edit) -> None:
    serving, manifest = full_contract(), full_manifest()
    edit(serving, manifest)
    check_accesses(PreparedContract.from_core(serving, manifest), manifest, pointers)


ACCEPTED: list[Edit] = [
    lambda s, m: None,
    lambda s, m: add_kernel(program(m, DECODE), WRITE, REQUESTS, 0, 128),
    lambda s, m: add_kernel(program(m, DECODE), READ, REQUESTS, 32, 64),
    lambda s, m: add_kernel(program(m, DECODE), WRITE, SCRATCH, 0, 64),
    lambda s, m: add_kernel(program(m, DECODE), WRITE, KV, 0, 1 << 30),
    lambda s, m: add_kernel(program(m, SPECULATIVE), READ, REQUESTS, 32, 4),
    lambda s, m: add_kernel(program(m, SPECULATIVE), READ, TUNED, 0, 64),
    lambda s, m: add_kernel(program(m, SPECULATIVE), WRITE, CONFIDENCE, 0, 96),
    lambda s, m: add_kernel(m.tuning_programs[0], WRITE, TUNED, 0, 64),
    lambda s, m: add_kernel(m.tuning_programs[0], READ, WEIGHT, 0, 64),
]
REFUSED: list[tuple[str, Edit]] = [
    (
        "graph 'decode.b4', node 3 writes bytes 0 to 64 of buffer 'rows'",
        lambda s, m: add_kernel(program(m, DECODE), WRITE, ROWS, 0, 64),
    ),
    ("reads bytes 0 to 4 of buffer 'cursor'", lambda s, m: add_kernel(program(m, DECODE), READ, CURSOR, 0, 4)),
    ("reads bytes 32 to 37", lambda s, m: add_kernel(program(m, SPECULATIVE), READ, REQUESTS, 32, 5)),
    ("reads bytes 32 to 68", lambda s, m: add_kernel(program(m, SPECULATIVE), READ, REQUESTS, 32, 36)),
    ("reads bytes 36 to 40", lambda s, m: add_kernel(program(m, SPECULATIVE), READ, REQUESTS, 36, 4)),
    (
        "writes bytes 0 to 32 of buffer 'requests', field 'accesses' declares no such write",
        lambda s, m: (
            add_kernel(program(m, DECODE), WRITE, REQUESTS, 0, 32),
            put(graph(s, DECODE).accesses[0], access=pb.ACCESS_READ),
        ),
    ),
    (
        "graph 'decode.b4', node 3 writes bytes 4 to 8",
        lambda s, m: program(m, DECODE).nodes.add(
            copy=execution.CopyNode(destination=CURSOR, destination_offset=4, source=SCRATCH, nbytes=4)
        ),
    ),
    ("reads bytes 0 to 8 of buffer 'tuned'", lambda s, m: add_kernel(program(m, DECODE), READ, TUNED, 0, 8)),
    ("writes bytes 0 to 8 of buffer 'tuned'", lambda s, m: add_kernel(program(m, SPECULATIVE), WRITE, TUNED, 0, 8)),
    ("buffer 'confidence'", lambda s, m: add_kernel(program(m, DECODE), READ, CONFIDENCE, 0, 8)),
    ("'tune', node 1 writes buffer 'rows'", lambda s, m: add_kernel(m.tuning_programs[0], WRITE, ROWS, 0, 8)),
    ("'tune', node 1 writes buffer 'kv'", lambda s, m: add_kernel(m.tuning_programs[0], WRITE, KV, 0, 8)),
    ("'tune', node 1 writes buffer 'weight'", lambda s, m: add_kernel(m.tuning_programs[0], WRITE, WEIGHT, 0, 8)),
    ("'tune', node 1 reads buffer 'inputs'", lambda s, m: add_kernel(m.tuning_programs[0], READ, INPUTS, 0, 8)),
]


@pytest.mark.parametrize("edit", ACCEPTED)
def test_declared_accesses_are_accepted(edit: Edit) -> None:
    """CON-10: buffers that are no persistent state need no access."""
    load(edit)


@pytest.mark.parametrize(("says", "edit"), REFUSED)
def test_an_undeclared_access_is_refused_by_name(says: str, edit: Edit) -> None:
    """CON-8, CON-10: the error names the graph, the node, the bytes and the buffer."""
    with pytest.raises(ContractError) as caught:
        load(edit)
    assert says in caught.value.message
