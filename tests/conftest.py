"""What every test may ask for: the default model's file, fetched once a machine and kept in the user's cache directory; engines
that are held; and seeds, one unless `--seeds N` asks for more. And what no test may do in CI: be skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import hypothesis
import pytest

from helios.ignition.prepared_core import prepared_core
from helios.ignition.pull import pull_default_model
from tests.held_worker import HeldWorker

# A test must not fail because the machine is busy.
hypothesis.settings.register_profile("helios", deadline=None)
hypothesis.settings.load_profile("helios")


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    """The default model's GGUF, as `helios pull` leaves it."""
    return pull_default_model(lambda n_done_bytes, n_total_bytes: None)


@pytest.fixture(scope="session")
def default_core(default_gguf: Path) -> Path:
    """The default model's core for this machine, prepared once and cached by content."""
    return prepared_core(default_gguf)


@pytest.fixture
def hold_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Engines that start after this retire so many rounds and no more, until it is said again."""
    monkeypatch.setattr("helios.engine.ModelWorker", HeldWorker)

    def set_rounds(n_rounds: float) -> None:
        monkeypatch.setattr(HeldWorker, "n_rounds", n_rounds)

    return set_rounds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """CI has whatever a test needs: one that is skipped there has found something missing."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longreprtext}"
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=1, help="seeds of tests that sample from a model")


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> Sequence[int]:
    """The seeds that tests of sampled answers go through."""
    return range(pytestconfig.getoption("seeds"))
