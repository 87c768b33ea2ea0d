"""`helios pull`: fetch the default model, with a progress bar, and print where it is. It knows no more than that."""

from __future__ import annotations

import argparse

from helios.cli.progress import byte_progress
from helios.ignition.pull import pull_default_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none: there is one default model."""


def run(arguments: argparse.Namespace) -> int:
    """Fetch it if it is not there yet."""
    with byte_progress("downloading the default model") as report:
        path = pull_default_model(report)
    print(path)
    return 0
