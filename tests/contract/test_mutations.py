"""Contracts changed at random: each is refused by a typed error, or every rule still holds."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from helios.contract.accesses import check_accesses
from helios.contract.json_form import decode_json, encode_json
from helios.contract.messages import decode_message, serialize
from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2, execution_pb2
from helios.errors import ContractError, CoreError
from tests.contract.full_sample import full_contract, full_manifest
from tests.contract.sample import sample_contract, sample_manifest
from tests.contract.test_accesses import pointers

_SMALL = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 64, 4096, 65536, (1 << 31) - 1]
_WORDS = [*_SMALL, 1 << 31, (1 << 32) - 1]
_LONGS = [*_WORDS, 1 << 40, (1 << 63) - 1]
_NUMBERS: dict[int, st.SearchStrategy[int]] = {
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from(_SMALL),
    FieldDescriptor.CPPTYPE_UINT32: st.sampled_from(_WORDS),
    FieldDescriptor.CPPTYPE_UINT64: st.sampled_from(_LONGS),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from([*_LONGS, -1, -(1 << 63)]),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}
_FLOATS = st.sampled_from([0.0, -1.0, 0.5, 1.0, 2.0, 1e30, float("nan"), float("inf"), float("-inf")])
_NAMES = st.sampled_from(
    [
        "",
        "x",
        "sample",
        "decode.b4",
        "spec.b4",
        "tune",
        "requests",
        "pending",
        "rows",
        "lane_slot",
        "mask",
        "patches",
        "<call>",
        "a" * 300,
        "\n",
    ]
)
_VALUES: dict[int, st.SearchStrategy[object]] = {
    **_NUMBERS,
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
}
_SAMPLES = st.sampled_from([(sample_contract, sample_manifest), (full_contract, full_manifest)])


def parts(message: Message) -> list[Message]:
    """The message and every message inside."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                found.extend(parts(part))
    return found


def change_value(part: Message, data: st.DataObject) -> None:
    """Set one field of a message that is no message to another value, or add one to a list of them."""
    fields = [field for field in part.DESCRIPTOR.fields if field.message_type is None]
    hypothesis.assume(fields)
    field = data.draw(st.sampled_from(fields))
    if field.type == FieldDescriptor.TYPE_BYTES:
        value: object = data.draw(st.binary(max_size=64))
    else:
        value = data.draw(_VALUES.get(field.cpp_type, _NAMES))
    if field.is_repeated:
        getattr(part, field.name).append(value)
    else:
        setattr(part, field.name, value)


def change_list(part: Message, data: st.DataObject) -> None:
    """Drop, repeat or move an entry of one of a message's lists."""
    lists = [getattr(part, field.name) for field, _ in part.ListFields() if field.is_repeated and field.message_type]
    lists = [entries for entries in lists if hasattr(entries, "add")]
    hypothesis.assume(lists)
    entries = data.draw(st.sampled_from(lists))
    index = data.draw(st.integers(0, len(entries) - 1))
    action = data.draw(st.sampled_from(["drop", "repeat", "reverse", "add"]))
    if action == "drop":
        del entries[index]
    elif action == "repeat":
        entries.append(entries[index])
    elif action == "add":
        entries.add()
    else:
        entries.reverse()


def drop_field(part: Message, data: st.DataObject) -> None:
    """Leave one field out."""
    present = [field.name for field, _ in part.ListFields()]
    hypothesis.assume(present)
    part.ClearField(data.draw(st.sampled_from(present)))


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=2000, deadline=None, suppress_health_check=[hypothesis.HealthCheck.filter_too_much])
def test_a_changed_contract_is_refused_or_right(data: st.DataObject) -> None:
    """CON-4, CON-5, CON-7, CON-10: no change makes anything but a ContractError."""
    serving, manifest = (make() for make in data.draw(_SAMPLES))
    for _ in range(data.draw(st.integers(1, 3))):
        candidates = parts(serving) + parts(manifest)
        part = candidates[data.draw(st.integers(0, len(candidates) - 1))]
        data.draw(st.sampled_from([change_value, change_value, change_list, drop_field]))(part, data)
    with contextlib.suppress(ContractError):
        contract = PreparedContract.from_core(serving, manifest)
        check_accesses(contract, manifest, pointers)
        check_promises(contract)


def check_promises(contract: PreparedContract) -> None:
    """What packing and runtime rely on, measured apart from the rules."""
    assert contract.concurrency <= contract.request_slots
    assert contract.context_tokens <= contract.pages_per_slot * contract.page_tokens
    for destination in contract.destinations.values():
        assert destination.offset + destination.nbytes <= contract.buffers[destination.buffer_id].nbytes
    for view in contract.views.values():
        end = view.offset + (view.rows - 1) * view.row_stride + view.row_nbytes
        assert end <= contract.buffers[view.buffer_id].nbytes
    for graph in contract.graphs:
        assert graph.batch_capacity <= contract.completion.lanes_capacity
        assert all(binding.destination in contract.destinations for binding in graph.bindings)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=1000, deadline=None)
def test_changed_bytes_are_refused_or_right(data: st.DataObject) -> None:
    """CON-4: the wire form too is hostile."""
    encoded = [bytearray(serialize(make())) for make in data.draw(_SAMPLES)]
    target = data.draw(st.sampled_from(encoded))
    for _ in range(data.draw(st.integers(1, 3))):
        target[data.draw(st.integers(0, len(target) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CoreError):
        serving = decode_message(contract_pb2.ServingContract, bytes(encoded[0]), "the contract")
        manifest = decode_message(execution_pb2.ExecutionManifest, bytes(encoded[1]), "the manifest")
        check_promises(PreparedContract.from_core(serving, manifest))


_JSON = [encode_json(full_contract()), encode_json(full_manifest())]


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=400, deadline=None)
def test_changed_json_is_refused_or_right(data: st.DataObject) -> None:
    """CON-4: the JSON form too."""
    texts = list(_JSON)
    which = data.draw(st.integers(0, 1))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(texts[which]) - 1))
        texts[which] = texts[which][:at] + data.draw(st.characters() | st.just("")) + texts[which][at + 1 :]
    with contextlib.suppress(ContractError):
        serving = decode_json(contract_pb2.ServingContract, texts[0])
        manifest = decode_json(execution_pb2.ExecutionManifest, texts[1])
        check_promises(PreparedContract.from_core(serving, manifest))


def nested_views(serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> None:
    """As many views as are allowed, each a part of the one before."""
    manifest.buffers.add(id=len(manifest.buffers), name="deep", kind=execution_pb2.BUFFER_KIND_STATE, nbytes=1024)
    for depth in range(250):
        serving.model.state_views.add(name=f"v{depth}", buffer=8, row_stride=512, row_nbytes=512 - depth, rows=2)


def many_rows(serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> None:
    """Views of so many rows that to look at them would cost memory."""
    manifest.buffers.add(id=len(manifest.buffers), name="wide", kind=execution_pb2.BUFFER_KIND_STATE, nbytes=1 << 32)
    serving.model.state_views.add(name="wide", buffer=8, row_stride=1, row_nbytes=1, rows=(1 << 32) - 1)


def many_graphs(serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> None:
    for _ in range(20_000):
        serving.model.graphs.add(program="x", operation=execution_pb2.OPERATION_DECODE)


def many_dependencies(serving: contract_pb2.ServingContract, manifest: execution_pb2.ExecutionManifest) -> None:
    for _ in range(1000):
        manifest.programs[0].nodes.add(depends_on=range(1000), fill=execution_pb2.FillNode())


@pytest.mark.parametrize("attack", [nested_views, many_rows, many_graphs, many_dependencies])
def test_a_large_contract_costs_little(attack: Callable[..., None]) -> None:
    """Every corruption is refused, or accepted, within a second and 64 MB."""
    serving, manifest = sample_contract(), sample_manifest()
    attack(serving, manifest)
    tracemalloc.start()
    started_s = time.process_time()
    with contextlib.suppress(ContractError):
        PreparedContract.from_core(serving, manifest)
    seconds, (_, peak_bytes) = time.process_time() - started_s, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 64 << 20
    assert seconds < 10, "a second without tracing, on a machine that does other things too"
