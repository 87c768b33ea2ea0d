"""The largest gap between two tokens of a running stream while a long prompt is read. It knows a server only through a Workload."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

from helios.cli.figures import LONG_PROMPT
from helios.cli.timeline import Timeline
from helios.cli.workload import Workload
from helios.errors import RemoteError

STREAM_PROMPT = 32
STREAM_TOKENS = 1000  # enough to go on until a long prompt has been read
STREAM_LEAD_S = 0.5  # the stream is decoding by then


def largest_gap_s(workload: Workload) -> float:
    """The largest gap between two tokens of a stream while a long prompt is read. Raises RemoteError when they did not overlap."""
    streamed: list[Timeline] = []
    running = threading.Thread(target=lambda: streamed.extend(workload.run(1, STREAM_PROMPT, STREAM_TOKENS)))
    running.start()
    try:
        time.sleep(STREAM_LEAD_S)
        (prompt,) = workload.run(1, LONG_PROMPT, 1)
    finally:
        running.join()
    if not streamed:
        raise RemoteError("the running stream failed")
    return gap_within_s(streamed[0], prompt.started_ns, prompt.event_ns[0])


def gap_within_s(stream: Timeline, began_ns: int, ended_ns: int) -> float:
    """The largest gap between two events of a stream that touches the time from `began_ns` to `ended_ns`."""
    times = stream.event_ns
    gaps = [end - start for start, end in pairwise(times) if end > began_ns and start < ended_ns]
    if not gaps or times[0] > began_ns or times[-1] < ended_ns:
        raise RemoteError("the stream was not running all the while that the prompt was read")
    return max(gaps) / 1e9
