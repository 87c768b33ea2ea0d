"""Streams and events: the order in which the device does things, and how the host waits for it.

It knows nothing about what runs. Work on one stream runs in the order of submission; a wait for an event waits for its latest
record. Every method here is one C call with prepared arguments, about a microsecond; those that wait release the GIL.
"""

from __future__ import annotations

from ctypes import c_void_p

from helios.device.cudart import EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, NOT_READY, STREAM_NON_BLOCKING, Cudart
from helios.owner import Owner


class Stream(Owner):
    """An ordered queue of device work. `handle` is for calls that launch on it."""

    __slots__ = ("_copy", "_cudart", "_fill", "_synchronize", "_wait", "handle", "is_open")

    def __init__(self, cudart: Cudart) -> None:
        self._cudart = cudart
        self._copy = cudart.function("cudaMemcpyAsync")
        self._fill = cudart.function("cudaMemsetAsync")
        self._synchronize = cudart.function("cudaStreamSynchronize")
        self._wait = cudart.function("cudaStreamWaitEvent")
        self.handle: c_void_p = cudart.create("cudaStreamCreateWithFlags", STREAM_NON_BLOCKING)
        self.is_open = True

    def copy_async(self, destination: int, source: int, size_bytes: int, kind: int) -> None:
        """Copy between addresses; `kind` is one of `cudart.COPY_*`. Host memory has to be pinned."""
        code = self._copy(destination, source, size_bytes, kind, self.handle)
        if code:
            self._cudart.fail("cudaMemcpyAsync", code)

    def fill_async(self, destination: int, value: int, size_bytes: int) -> None:
        """Set bytes of device memory to `value`, 0..255."""
        code = self._fill(destination, value, size_bytes, self.handle)
        if code:
            self._cudart.fail("cudaMemsetAsync", code)

    def wait_event(self, event: Event) -> None:
        """Let what is submitted from now on start only after the event's latest record. Returns at once."""
        code = self._wait(self.handle, event.handle, 0)
        if code:
            self._cudart.fail("cudaStreamWaitEvent", code)

    def synchronize(self) -> None:
        """Wait until everything submitted so far has ended."""
        code = self._synchronize(self.handle)
        if code:
            self._cudart.fail("cudaStreamSynchronize", code)

    def close(self) -> None:
        """Destroy the stream after its work. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._cudart.release("cudaStreamDestroy", self.handle)


class Event(Owner):
    """A point in a stream that others wait for. Waiting sleeps; it never spins and measures no time."""

    __slots__ = ("_cudart", "_query", "_record", "_synchronize", "handle", "is_open")

    def __init__(self, cudart: Cudart) -> None:
        self._cudart = cudart
        self._record = cudart.function("cudaEventRecord")
        self._query = cudart.function("cudaEventQuery")
        self._synchronize = cudart.function("cudaEventSynchronize")
        self.handle: c_void_p = cudart.create("cudaEventCreateWithFlags", EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING)
        self.is_open = True

    def record(self, stream: Stream) -> None:
        """Mark the point behind everything submitted to `stream` so far."""
        code = self._record(self.handle, stream.handle)
        if code:
            self._cudart.fail("cudaEventRecord", code)

    def is_done(self) -> bool:
        """Whether the latest record was passed. An event that was never recorded is done."""
        code = self._query(self.handle)
        if code == NOT_READY:
            return False
        if code:
            self._cudart.fail("cudaEventQuery", code)
        return True

    def synchronize(self) -> None:
        """Wait for the latest record."""
        code = self._synchronize(self.handle)
        if code:
            self._cudart.fail("cudaEventSynchronize", code)

    def close(self) -> None:
        """Destroy the event; who waits for it already is not disturbed. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._cudart.release("cudaEventDestroy", self.handle)
