"""Edits of the sample contract's messages, for contracts that break one rule."""

from __future__ import annotations

from collections.abc import Callable

from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from tests.contract import sample
from tests.contract.sample import DECODE, MIXED

Serving = pb.ServingContract
Manifest = execution.ExecutionManifest
Edit = Callable[[Serving, Manifest], object]


def graph(serving: Serving, name: str) -> pb.GraphContract:
    return next(graph for graph in serving.model.graphs if graph.program == name)


def binding(serving: Serving, name: str, destination: str) -> pb.ValueBinding:
    return next(binding for binding in graph(serving, name).bindings if binding.destination == destination)


def destination(manifest: Manifest, name: str) -> execution.Destination:
    return next(destination for destination in manifest.destinations if destination.name == name)


def program(manifest: Manifest, name: str) -> execution.Program:
    return next(program for program in manifest.programs if program.name == name)


def put(message: object, **fields: object) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


def drop_graph(serving: Serving, name: str) -> None:
    serving.model.graphs.remove(graph(serving, name))


def drop_program(serving: Serving, manifest: Manifest, name: str) -> None:
    drop_graph(serving, name)
    manifest.programs.remove(program(manifest, name))


def drop_pending(serving: Serving, name: str) -> None:
    graph(serving, name).ClearField("pending_view")


def drop_accesses(serving: Serving, name: str, keep: int = 0) -> None:
    del graph(serving, name).accesses[keep:]


def add_views(serving: Serving, manifest: Manifest, n_views: int, n_rows: int = 1) -> None:
    """Views of one byte a row, one behind the other in a buffer of their own."""
    buffer = len(manifest.buffers)
    manifest.buffers.add(id=buffer, name="many", kind=execution.BUFFER_KIND_STATE, nbytes=n_views * n_rows)
    for index in range(n_views):
        serving.model.state_views.add(
            name=f"many.{index}", buffer=buffer, offset=index * n_rows, row_stride=1, row_nbytes=1, rows=n_rows
        )


def make_speculative(serving: Serving, manifest: Manifest, *, draft: int = 3, width: int = 4, packed: int = 16) -> None:
    """Turn the mixed program into a speculative one that is valid but for what the arguments say."""
    graph(serving, MIXED).operation = execution.OPERATION_SPECULATIVE
    put(
        program(manifest, MIXED),
        operation=execution.OPERATION_SPECULATIVE,
        draft_tokens=draft,
        token_capacity=width,
        packed_token_capacity=packed,
    )


def two_length_sources(serving: Serving, manifest: Manifest) -> None:
    make_speculative(serving, manifest)
    manifest.destinations.add(
        name="limits", buffer=sample.ADMISSION, offset=60000, element_type=sample.I32, count=4, element_words=1
    )
    graph(serving, MIXED).bindings.add(
        destination="limits", source=pb.VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT, indexing=sample.ROW
    )


def no_length_source(serving: Serving, manifest: Manifest) -> None:
    make_speculative(serving, manifest)
    bindings = graph(serving, MIXED).bindings
    bindings.remove(binding(serving, MIXED, "lane_query_length"))


def host_owned_pending(serving: Serving, source: int) -> None:
    decode = graph(serving, DECODE)
    decode.pending_destination = "lane_query_length"
    binding(serving, DECODE, "lane_query_length").source = source


def collective(manifest: Manifest, count: int) -> None:
    node = program(manifest, DECODE).nodes.add().collective
    node.operation, node.buffer, node.count = execution.COLLECTIVE_OPERATION_SUM, sample.SCRATCH, count
    node.element_type = execution.ELEMENT_TYPE_F32


def unbind(serving: Serving, name: str, destination: str) -> None:
    graph(serving, name).bindings.remove(binding(serving, name, destination))


def no_vision(serving: Serving, manifest: Manifest) -> None:
    """Take image input away, and leave what a graph binds of it."""
    serving.model.ClearField("vision")
    frontend = serving.model.frontend
    frontend.ClearField("image_tokens")
    frontend.image_preparation, frontend.image_layout = pb.IMAGE_PREPARATION_NONE, pb.IMAGE_LAYOUT_NONE
    encoder = next(program for program in manifest.programs if program.operation == execution.OPERATION_ENCODE_IMAGE)
    serving.model.graphs.remove(graph(serving, encoder.name))
    manifest.programs.remove(encoder)
