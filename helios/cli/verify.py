"""`helios verify`: check a core completely, with one line of outcome.

It knows no trust: that the publisher's signature fits is checked, whether the publisher is accepted is for `serve`. Status 0
means that every byte of the file is what was signed and that the contract keeps every rule.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tqdm import tqdm

from helios.corefile.contents import read_contents
from helios.corefile.keys import fingerprint
from helios.corefile.reader import open_core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The core."""
    parser.add_argument("core", type=Path, metavar="CORE", help="the .core file to check")


def run(arguments: argparse.Namespace) -> int:
    """Print one line; a core that is wrong raises, and that is the one line."""
    with open_core(arguments.core) as core:
        for resource in core.index.resources:
            core.resource(resource.kind)
        contract = read_contents(core).contract
        with tqdm(unit="B", unit_scale=True, desc="verifying", delay=0.5, leave=False, disable=None) as bar:

            def report(n_done_bytes: int, n_total_bytes: int) -> None:
                bar.total = n_total_bytes
                bar.update(n_done_bytes - bar.n)

            core.verify_tensors(report)
        print(
            f"{core.path}: ok, {contract.served_id} published by {core.namespace!r}, "
            f"key {fingerprint(core.public_key)}, {core.size_bytes:,} bytes"
        )
    return 0
