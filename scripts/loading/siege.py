"""The command: one attack after the other on a scripted server, probes beside each, then what the server still holds.

A probe is a whole answer on a connection of its own; it has to be the same bytes before, during and after every attack.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from helios.cli.server_process import ServerProcess
from helios.cli.streams import Endpoint
from helios.errors import HeliosError, RemoteError
from scripts.loading.attacks import ATTACKS, Attack
from scripts.loading.clients import ask, chat
from scripts.loading.costs import Costs
from scripts.loading.main import scripted_command, settled

N_STREAMS = 256
PROBE_S = 0.02
_N_FIRST = 1000
GROWTH_BYTES = 16 << 20  # the allocator keeps some of what a crowd of connections took, and the cache fills up


@dataclass(slots=True)
class Siege:
    """Attacks on one server; `faults` are sentences."""

    endpoint: Endpoint
    pid: int
    faults: list[str] = field(default_factory=list)
    n_probes: int = 0

    def run(self, n: int, names: Iterable[str] = tuple(ATTACKS)) -> Iterator[str]:
        """Every attack `n` times; a line for each. A first round of them is for what is made on first use."""
        expected = self._probe()
        for name in names:
            ATTACKS[name](self.endpoint, min(n, _N_FIRST))
        before = settled(self.endpoint, self.pid)
        for name in names:
            yield self._endure(name, ATTACKS[name], n, expected, before)

    def _endure(self, name: str, attack: Attack, n: int, expected: bytes, before: Costs) -> str:
        began_s, slowest_s, n_before = time.monotonic(), 0.0, self.n_probes
        attacking = threading.Thread(target=self._attack, args=(attack, n))
        attacking.start()
        while attacking.is_alive():
            asked_s = time.monotonic()
            if (answer := self._probe()) != expected:
                self.faults.append(f"a probe changed during {name}: {expected[:100]!r} became {answer[:100]!r}")
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
            time.sleep(PROBE_S)
        elapsed_s, after = time.monotonic() - began_s, settled(self.endpoint, self.pid)
        self._compare(name, before, after)
        return (
            f"{name:16} {n:,} in {elapsed_s:.1f} s, {self.n_probes - n_before:,} probes, the slowest {slowest_s * 1e3:.0f} ms; "
            f"{after.n_descriptors} descriptors, {after.resident_bytes / (1 << 20):.1f} MiB"
        )

    def _attack(self, attack: Attack, n: int) -> None:
        try:
            attack(self.endpoint, n)
        except (OSError, RemoteError) as error:
            self.faults.append(f"{attack.__name__}: {error}")

    def _probe(self) -> bytes:
        """What was said, without the parts that differ in every answer."""
        self.n_probes += 1
        status, body = ask(self.endpoint, chat(20))
        if status != 200:
            return b"%d %b" % (status, body)
        return body[body.index(b'"choices"') : body.index(b'"usage"')]

    def _compare(self, name: str, before: Costs, after: Costs) -> None:
        if after.n_descriptors > before.n_descriptors:
            self.faults.append(f"after {name} {after.n_descriptors} descriptors are open, not {before.n_descriptors}")
        if after.resident_bytes > before.resident_bytes + GROWTH_BYTES:
            mib = [costs.resident_bytes / (1 << 20) for costs in (before, after)]
            self.faults.append(f"after {name} {mib[1]:.1f} MiB are resident, {mib[0]:.1f} were before")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/siege", description=__doc__)
    parser.add_argument("--times", type=int, default=3000, help="how often each attack is made (3,000)")
    times = parser.parse_args().times
    try:
        with ServerProcess(scripted_command(N_STREAMS, 0)) as server:
            siege = Siege(server.endpoint, server.pid)
            for line in siege.run(times):
                print(line, flush=True)
    except HeliosError as error:
        print(f"siege: FAILED: {error}")
        return 1
    print("\n".join(f"siege: {fault}" for fault in siege.faults[:20]) or "siege: ok", file=sys.stdout)
    return 1 if siege.faults else 0
