"""A plugin for pytest that ends its report with the kernels of the library which no test has launched."""

from __future__ import annotations

import pytest

from tests.kernels import harness


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """`-k` names the target."""
    library = harness.load(config.option.keyword)
    names = sorted(library.kernels.keys() - library.launched)
    terminalreporter.write_line(" ".join(["never launched:", *names]))
