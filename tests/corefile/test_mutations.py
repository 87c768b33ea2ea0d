"""Thousands of structured corruptions: each is refused by a typed error, soon and in little memory, or harmless."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from helios.corefile.layout import CoreFormat
from helios.errors import CoreError
from tests.corefile.mutation import Sample, mutate
from tests.corefile.sample_core import (
    CONTAINERS,
    CORE_KEY,
    KEY,
    TENSOR,
    TOKENIZER,
    assemble,
    header_around,
    index_of,
    read_everything,
    sample_core,
    store,
    stored_of,
    tensor,
)
from tests.repo.sources import ROOT

NAMES = ("payload", "index", "sealed")
N_EXAMPLES = 700  # of each format
MOST_NBYTES = 64 << 20


@pytest.fixture(scope="module", autouse=True)
def _core_key() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELIOS_CORE_KEY", CORE_KEY.hex())
        yield


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations") / "sample.core"


@pytest.fixture(scope="module")
def samples(scratch: Path) -> dict[str, Sample]:
    """Of each format two cores by the same key, with the same ids, some sizes equal, and no content the same."""
    found = {}
    for name in NAMES:
        container = CONTAINERS[name]
        first = [tensor("embedding", TENSOR), tensor("norm", bytes(5000))]
        second = [tensor("embedding", TENSOR[::-1]), tensor("norm", b"\1" * 5000)]
        data = sample_core(scratch, container=container, tensors=first).read_bytes()
        other = sample_core(scratch, container=container, tensors=second, tokenizer=TOKENIZER[::-1]).read_bytes()
        found[name] = Sample(data, other, CoreFormat(container.format))
    return found


def peak_nbytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("name", NAMES)
def test_a_corrupted_core_is_refused_or_reads_as_signed(name: str, samples: dict[str, Sample], scratch: Path) -> None:
    """CORE-2 to CORE-5: no other exception, no other content, under one second and 64 MB each."""
    sample = samples[name]
    scratch.write_bytes(sample.data)
    expected = read_everything(scratch)
    counts = {"refused": 0, "read": 0}

    @hypothesis.given(st.data())
    @hypothesis.settings(
        max_examples=N_EXAMPLES, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    def check(data: st.DataObject) -> None:
        mutated = mutate(data.draw, sample)
        scratch.write_bytes(mutated.data)
        before_s = time.process_time()
        try:
            found = read_everything(scratch)
        except CoreError:
            counts["refused"] += 1
        else:
            counts["read"] += 1
            assert mutated.is_other_content or found.items() <= expected.items()
        assert time.process_time() - before_s < 1

    before_nbytes = peak_nbytes()
    check()
    assert peak_nbytes() - before_nbytes < MOST_NBYTES
    assert counts["refused"] > counts["read"]


WORKER = """
import resource, sys, time
from pathlib import Path
from helios.errors import CoreError
from tests.corefile.sample_core import read_everything

paths = [Path(word) for word in sys.argv[1:]]
read_everything(paths[0])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
slowest = 0.0
for path in paths[1:]:
    start = time.process_time()
    try:
        read_everything(path)
    except CoreError:
        pass
    else:
        sys.exit(f"{path} was read")
    slowest = max(slowest, time.process_time() - start)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10, slowest)
"""


def bombs(sample: Sample) -> Iterator[bytes]:
    """Validly signed cores that ask for gigabytes."""
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (128 << 10 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    unknown, claims = b"\x28\xb5\x2f\xfd\x00\x58", b"\x28\xb5\x2f\xfd\xc0\x58" + (60 << 20).to_bytes(8, "little")
    for frame, decoded_nbytes in [
        (unknown + block * 65_535 + last, 1 << 20),  # 8 GiB in 256 KiB
        (unknown + block * 1000 + last, 1 << 20),
        (claims + last, 60 << 20),  # 60 MiB claimed and signed, 128 KiB there
        (unknown + b"\0\0\0" * 1_000_000, 1 << 20),
    ]:
        signed, stored = stored_of(sample.data)
        store(signed, stored, "tokenizer", frame, decoded_nbytes)
        yield assemble(signed, stored, format_=sample.format)
    yield from swarms(sample)


def swarms(sample: Sample) -> Iterator[bytes]:
    """Cores of 15 MB that would be hundreds in memory, if they were decoded: millions of parts of two bytes."""
    signed, _ = stored_of(sample.data)
    prefixes = [b"", b"\x1a\x80\xf8\xff\x06"] if sample.format is CoreFormat.INDEX else [b""]
    for prefix in prefixes:
        for tag in b"\x1a\x22\x2a":
            body = prefix + bytes([tag, 0]) * 7_340_000
            yield header_around(body, sample.format, KEY)
    entries = index_of(signed).tensors
    entries[0].chunk_sha256.extend([b""] * 4_000_000)
    yield header_around(signed.SerializeToString(), sample.format, KEY)
    yield header_around(bytes(15 << 20), sample.format, None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory as Linux counts it")
def test_bombs_take_neither_time_nor_memory(samples: dict[str, Sample], tmp_path: Path) -> None:
    """CORE-4: measured from outside, native memory and all."""
    paths = [tmp_path / "good.core"]
    paths[0].write_bytes(samples["payload"].data)
    for name in ("payload", "index"):
        for index, data in enumerate(bombs(samples[name])):
            paths.append(tmp_path / f"{name}{index}.core")
            paths[-1].write_bytes(data)
    command = [sys.executable, "-c", WORKER, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    grown_nbytes, slowest_s = done.stdout.split()
    assert int(grown_nbytes) < MOST_NBYTES
    assert float(slowest_s) < 1  # of processor time
