"""Contracts changed at random: each is refused by a typed error, or every rule still holds."""

from __future__ import annotations

import contextlib

import hypothesis
import hypothesis.strategies as st
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from helios.contract.messages import decode_message, serialize
from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2, execution_pb2
from helios.errors import CoreError
from tests.contract.sample import sample_contract, sample_manifest

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


def parts(message: Message) -> list[Message]:
    """The message and every message inside."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                found.extend(parts(part))
    return found


def change_number(part: Message, data: st.DataObject) -> None:
    """Set one integer, enum or flag field of a message to another value, or add one to a list of them."""
    fields = [field for field in part.DESCRIPTOR.fields if field.cpp_type in _NUMBERS]
    hypothesis.assume(fields)
    field = data.draw(st.sampled_from(fields))
    value = data.draw(_NUMBERS[field.cpp_type])
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
    action = data.draw(st.sampled_from(["drop", "repeat", "reverse"]))
    if action == "drop":
        del entries[index]
    elif action == "repeat":
        entries.append(entries[index])
    else:
        entries.reverse()


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=600, deadline=None)
def test_a_changed_contract_is_refused_or_right(data: st.DataObject) -> None:
    """CON-4, CON-5, CON-7, CON-10: no change makes anything but a CoreError."""
    serving, manifest = sample_contract(), sample_manifest()
    candidates = parts(serving) + parts(manifest)
    for _ in range(data.draw(st.integers(1, 2))):
        part = candidates[data.draw(st.integers(0, len(candidates) - 1))]
        data.draw(st.sampled_from([change_number, change_number, change_list]))(part, data)
    with contextlib.suppress(CoreError):
        contract = PreparedContract.from_core(serving, manifest)
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
@hypothesis.settings(max_examples=400, deadline=None)
def test_changed_bytes_are_refused_or_right(data: st.DataObject) -> None:
    """CON-4: the wire form too is hostile."""
    encoded = [bytearray(serialize(sample_contract())), bytearray(serialize(sample_manifest()))]
    target = data.draw(st.sampled_from(encoded))
    for _ in range(data.draw(st.integers(1, 3))):
        target[data.draw(st.integers(0, len(target) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CoreError):
        serving = decode_message(contract_pb2.ServingContract, bytes(encoded[0]), "the contract")
        manifest = decode_message(execution_pb2.ExecutionManifest, bytes(encoded[1]), "the manifest")
        check_promises(PreparedContract.from_core(serving, manifest))
