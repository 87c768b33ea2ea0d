"""The model worker: the one thread that owns scheduler, cache books and device.

It knows no sockets and no event loop: commands come in through a locked queue, events go out through `deliver`. It launches ahead
while a frame is free, tells what rounds have yielded while the device computes, then sleeps in the event of a round or a transfer,
or on the command queue; it never spins. Every submitted request gets exactly one ending, also when the device dies, and when it
never answers again.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable

from helios.errors import DeviceError, DeviceStalledError, HeliosError, InternalError, ShuttingDownError
from helios.metrics import Number
from helios.runtime.heartbeat import Heartbeat, Watch
from helios.runtime.model import ModelRuntime
from helios.scheduler.request import ENDINGS, Failed, GenerationRequest
from helios.scheduler.scheduler import Delivery, Scheduler

log = logging.getLogger(__name__)

Command = Callable[[], Delivery]
_RETURN_S = 1.0  # for a thread that may be stuck to end


class ModelWorker:
    """Runs rounds until `stop`. `deliver` is called with every batch of events, on the worker thread, or on the watch's when one
    step has taken `device_timeout_s`: from then on nothing is served any more."""

    def __init__(
        self,
        runtime: ModelRuntime,
        scheduler: Scheduler,
        deliver: Callable[[Delivery], None],
        device_timeout_s: float,
    ) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._deliver = deliver
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._has_ended = False
        self._fault: HeliosError | None = None
        self._ending = threading.Lock()  # held while events are delivered, so that none comes behind an ending
        self._open: set[int] = set()  # keys without an ending
        self._untold: Delivery = []  # of the last round; the next one is launched first
        self._is_over = threading.Event()
        self._device_timeout_s = device_timeout_s
        self._heartbeat = Heartbeat()
        self._watch = Watch(self._heartbeat, device_timeout_s, self._give_up)
        self._thread = threading.Thread(target=self._run, name="helios-model", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._watch.start()

    @property
    def fault(self) -> HeliosError | None:
        """The error that ended the worker, if one did. Sticks."""
        return self._fault

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and self._fault is None

    def submit(self, key: int, request: GenerationRequest) -> None:
        """Queue a request; its events and its one ending are delivered under `key`."""
        with self._ending:
            self._open.add(key)
        self._command(lambda: self._submit(key, request))

    def cancel(self, key: int) -> None:
        """End a request at once; nothing happens when it has already ended."""
        self._command(lambda: self._scheduler.cancel(key) if key in self._open else [])

    def stop(self) -> bool:
        """End every request, drain the device, join the thread. False when the device never answered: what the worker runs on is
        then in use for as long as the process lives."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread.ident is None:
            return True
        self._is_over.wait()
        self._watch.stop()
        self._thread.join(_RETURN_S if isinstance(self._fault, DeviceStalledError) else None)
        return not self._thread.is_alive()

    def statistics(self) -> dict[str, Number]:
        return {**self._scheduler.statistics(), **self._runtime.statistics()}

    # -- the worker thread

    def _command(self, command: Command) -> None:
        with self._wake:
            if not self._has_ended:
                self._commands.append(command)
                self._wake.notify()
                return
        self._run_commands([command])

    def _submit(self, key: int, request: GenerationRequest) -> Delivery:
        if self._fault is not None:
            return [(key, [Failed(self._fault)])]
        if self._is_stopping:
            return [(key, [Failed(ShuttingDownError())])]
        try:
            self._scheduler.submit(key, request)
        except HeliosError as error:
            return [(key, [Failed(error)])]
        return []

    def _run(self) -> None:
        try:
            self._runtime.make_current()
            while self._step():
                pass
            self._drain()
        except DeviceError as error:
            log.error("the device failed, nothing is served any more: %s", error)
            self._fail(error)
        except Exception as error:  # a bug of ours must still end every request
            log.error("the model worker failed: %s", traceback.format_exc())
            self._fail(InternalError(f"the model worker failed: {error}"))
        finally:
            self._is_over.set()

    def _step(self) -> bool:
        """Take commands, launch what can be launched, retire one round or wait for one transfer. False once stopped."""
        if self._commands or not self._scheduler.has_work:
            self._take_commands(may_sleep=not self._scheduler.has_work)
        if self._is_stopping:
            return False
        self._heartbeat.beat()
        self._launch()
        self._give([])
        if self._runtime.n_in_flight:
            self._retire()
        elif self._scheduler.is_waiting:
            self._runtime.wait_transfer()
        elif self._scheduler.has_work:
            raise InternalError("requests are waiting, and no round can be planned")
        return True

    def _launch(self) -> None:
        """Rounds into the free frames, and the transfers that planning asked for beside them."""
        for transfer in self._runtime.finished_transfers():
            self._scheduler.finish_transfer(transfer)
        while self._runtime.has_free_frame:
            round_ = self._scheduler.plan()
            transfers = self._scheduler.take_transfers()
            if transfers:
                self._runtime.start_transfers(transfers)
            if round_ is None:
                break
            self._runtime.launch(round_)

    def _take_commands(self, may_sleep: bool) -> None:
        if may_sleep:
            self._give([])
        with self._wake:
            while may_sleep and not self._commands and not self._is_stopping:
                self._heartbeat.rest()
                self._wake.wait()
            commands = list(self._commands)
            self._commands.clear()
        self._run_commands(commands)

    def _run_commands(self, commands: list[Command]) -> None:
        delivery: Delivery = []
        for command in commands:
            delivery.extend(command())
        if delivery:
            self._give(delivery)

    def _give(self, delivery: Delivery) -> None:
        """Deliver what is untold, then this: the events of requests that have not ended."""
        with self._ending:
            untold, self._untold = self._untold, []
            for part in filter(None, (untold, delivery)):
                events_of = [(key, events) for key, events in part if key in self._open]
                self._open.difference_update([key for key, events in events_of if isinstance(events[-1], ENDINGS)])
                if events_of:
                    self._deliver(events_of)

    def _retire(self) -> None:
        round_, completions = self._runtime.complete()
        delivery = self._scheduler.retire(round_, completions)
        with self._ending:
            self._untold = delivery

    def _drain(self) -> None:
        delivery = self._scheduler.fail_all(ShuttingDownError())
        while self._runtime.n_in_flight:
            self._heartbeat.beat()
            self._runtime.complete()
        self._give(delivery)
        self._answer_late_commands()

    def _fail(self, error: HeliosError) -> None:
        self._fault = self._fault or error
        self._give(self._scheduler.fail_all(error))
        self._answer_late_commands()

    def _give_up(self) -> None:
        """On the watch's thread: the worker is stuck in a step, so the requests are ended past it.

        Scheduler and device stay the worker's. Should it return, it finds that it is to stop and that nobody listens any more.
        """
        error = DeviceStalledError(self._device_timeout_s)
        log.error("nothing is served any more: %s", error)
        with self._wake:
            self._fault = self._fault or error
            self._is_stopping = self._has_ended = True
            self._commands.clear()
            self._wake.notify()
        self._give([(key, [Failed(error)]) for key in tuple(self._open)])
        self._is_over.set()

    def _answer_late_commands(self) -> None:
        """Whatever is asked after the end is answered at once, on this thread until `stop`, so that nothing hangs."""
        while True:
            with self._wake:
                while not self._commands and not self._is_stopping:
                    self._heartbeat.rest()
                    self._wake.wait()
                commands = list(self._commands)
                self._commands.clear()
                self._has_ended = self._is_stopping
            self._run_commands(commands)
            if self._has_ended:
                return
