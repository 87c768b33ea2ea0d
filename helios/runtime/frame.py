"""An execution frame: pinned staging for a round's inputs, a pinned completion record, and the event that frees both.

It knows nothing about requests. A frame is rewritten only after its own event: `is_busy` guards it, because a sequence number in
the record would not show the mistake (feasibility 4).
"""

from __future__ import annotations

from collections.abc import Mapping

from helios.contract.prepared import PreparedContract
from helios.device.cudart import COPY_DEVICE_TO_HOST, COPY_HOST_TO_DEVICE
from helios.device.device import Device
from helios.device.memory import DeviceBuffer
from helios.errors import InternalError
from helios.packing.packer import Packer
from helios.packing.values import RoundWords, Values
from helios.runtime.record import CompletionRecord, Submitted
from helios.scheduler.round import LaneCompletion


class Frame:
    """Owns its pinned memory and event. `inputs` are the device sides of staging by buffer id; `index` is 0 or 1."""

    def __init__(
        self,
        index: int,
        device: Device,
        contract: PreparedContract,
        inputs: Mapping[int, DeviceBuffer],
        completion: DeviceBuffer,
    ) -> None:
        self.index = index
        self.is_busy = False
        self._submitted: Submitted | None = None
        self._stream = device.stream
        self._completion = completion
        self._staging = {buffer_id: device.pinned(buffer.size_bytes) for buffer_id, buffer in inputs.items()}
        self._record_memory = device.pinned(completion.size_bytes)
        self._record = CompletionRecord(self._record_memory.view, contract.completion, contract.vocabulary)
        self._places = {id_: (inputs[id_].address, pinned.address) for id_, pinned in self._staging.items()}
        self._event = device.new_event()
        staging = {buffer_id: pinned.view for buffer_id, pinned in self._staging.items()}
        self._packers = {graph.index: Packer(graph, contract.destinations, staging) for graph in contract.graphs}
        self._layout = contract.completion

    def stage(self, program_index: int, values: Values, words: RoundWords | None = None) -> None:
        """Pack a program's inputs, as `Packer.pack` does, and queue their copy to the device."""
        if self.is_busy:
            raise InternalError(f"frame {self.index} was rewritten before its event")
        for buffer_id, start, end in self._packers[program_index].pack(values, words):
            target, source = self._places[buffer_id]
            self._stream.copy_async(target + start, source + start, end - start, COPY_HOST_TO_DEVICE)

    def submit(self, submitted: Submitted | None) -> None:
        """Queue the copy of the completion back, when lanes were `submitted`, and the event. The frame is busy until `wait`."""
        self.is_busy = True
        self._submitted = submitted
        if submitted is not None:
            layout = self._layout
            self._fetch(0, layout.header_nbytes + submitted.n_lanes * layout.lane_nbytes)
            if submitted.targets:
                self._fetch(layout.scores_offset, sum(map(len, submitted.targets)) * layout.score_nbytes)
            if submitted.asking:
                self._fetch(layout.distributions_offset, len(submitted.asking) * layout.distribution_nbytes)
            if n_distributed := sum(submitted.n_distributed):
                self._fetch(layout.prompt_distributions_offset, n_distributed * layout.distribution_nbytes)
        self._event.record(self._stream)

    def _fetch(self, start: int, n_bytes: int) -> None:
        """Queue the copy of a part of the completion back."""
        target, source = self._record_memory.address + start, self._completion.address + start
        self._stream.copy_async(target, source, n_bytes, COPY_DEVICE_TO_HOST)

    def wait(self) -> list[LaneCompletion]:
        """Block (GIL released) until the round is complete. Raises DeviceError when the device failed or answers another round."""
        self._event.synchronize()
        self.is_busy = False
        return [] if self._submitted is None else self._record.read(self._submitted)

    def close(self) -> None:
        self._event.close()
        self._record_memory.close()
        for pinned in self._staging.values():
            pinned.close()
