"""The command: reads the flags, runs the rounds, prints the table, writes the JSON. See docs/performance.md for the method."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from helios.cli import figures
from helios.cli.machine import processor
from helios.errors import HeliosError
from scripts.benchmark.contenders import InProcessPeer, Product, Setup
from scripts.benchmark.floors import Floors
from scripts.benchmark.peer import FORMATS, in_format, peer_python
from scripts.benchmark.rounds import (
    FULL,
    OTHER_FORMAT,
    PEER,
    PRODUCT,
    QUICK,
    Plan,
    Record,
    busy_rounds,
    gap_rounds,
    speed_rounds,
    start_rounds,
)

ROOT = Path(__file__).resolve().parents[2]
ZIPAPP = ROOT / "dist" / "helios.pyz"


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.json and not arguments.json.parent.is_dir():
        parser.error(f"{arguments.json.parent} is not a directory")
    try:
        report = _measure(arguments)
    except HeliosError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Helios beside llama.cpp, in alternated rounds.")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds: under four minutes, once the peer is built"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios and floors to FILE")
    parser.add_argument(
        "--model", type=Path, metavar="GGUF", help="the checkpoint for both (default: the default model)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="measure the checkpoint in this format, which the peer lays out anew for its processor and is faster with; "
        "a full run measures these too, after the checkpoint as it is",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each (default 2)")
    parser.add_argument("--product", metavar="COMMAND", help="how to run Helios (default: python dist/helios.pyz)")
    parser.add_argument(
        "--plain-peer", action="store_true", help="the peer without its AMX and repacked layouts (not its best)"
    )
    return parser


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report, with one for each other format inside when the run is a full one."""
    setup = _setup(arguments)
    began_s = time.monotonic()
    peer_python()
    if (build_s := time.monotonic() - began_s) > 1:
        print(f"the peer took {build_s:.0f} s to build, apart from the time of the rounds", file=sys.stderr)
    if arguments.format:
        setup = replace(setup, gguf=in_format(setup.gguf, arguments.format))
    report = _take(setup, QUICK if arguments.quick else FULL)
    if not arguments.quick and not arguments.format:
        other = {name: replace(setup, gguf=in_format(setup.gguf, name)) for name in FORMATS}
        report["formats"] = {name: _take(setup, OTHER_FORMAT) for name, setup in other.items()}
    return report


def _take(setup: Setup, plan: Plan) -> dict[str, Any]:
    """All rounds of one checkpoint, and what they found."""
    record = Record()
    began_s = time.monotonic()
    start_rounds(setup, plan, record)
    gap_rounds(setup, plan, record)
    product = Product(setup)
    try:
        peer = InProcessPeer(setup)
        try:
            facts = peer.facts
            counts = {name: facts[name] for name in ("weight_bytes", "n_parameters", "n_head_parameters")}
            floors = Floors(**counts, n_threads=setup.n_threads)
            floors.compile()
            speed_rounds(product, peer, floors, plan, record, began_s)
            busy_rounds(product, peer, plan, record)
        finally:
            peer.close()
    finally:
        product.close()
    report = _report(setup, record, floors, facts, plan.n_new_tokens)
    report["seconds"] = time.monotonic() - began_s
    print(f"measured in {report['seconds']:.0f} s")
    return report


def _setup(arguments: argparse.Namespace) -> Setup:
    if arguments.product is None and not ZIPAPP.exists():
        raise SystemExit("bench: dist/helios.pyz is not there; run `python3 build.py` first")
    command = tuple(shlex.split(arguments.product)) if arguments.product else (sys.executable, str(ZIPAPP))
    gguf = arguments.model
    if gguf is None:
        pulled = subprocess.run([*command, "pull"], check=True, stdout=subprocess.PIPE, text=True)
        gguf = Path(pulled.stdout.splitlines()[-1])
    return Setup(gguf, command, n_threads=arguments.threads, is_peer_plain=arguments.plain_peer)


def _report(setup: Setup, record: Record, floors: Floors, facts: dict[str, Any], n_new_tokens: int) -> dict[str, Any]:
    """Print the table and what it means; the same as a JSON object."""
    product, peer = record.values[PRODUCT], record.values[PEER]
    ratio = figures.ratios(product, peer)
    floor = floors.report(product)
    print(f"\n{setup.gguf.name}, {setup.n_threads} threads each, on {processor()}")
    print(f"peer: llama-cpp-python {facts['version']}, {facts['system']}")
    print("peer's weights: " + ", ".join(f"{mib:.0f} MiB {kind}" for kind, mib in facts["weights_mib"].items()) + "\n")
    print(figures.table({PRODUCT: product, PEER: peer}, ratio))
    print("\nmedian (least..greatest); a ratio is the median of the rounds' own ratios, more is better for the product")
    print(f"the product is asked through HTTP, the peer in its process; {n_new_tokens} new tokens a stream, greedy")
    print(figures.meanings(tuple(ratio), has_peer=True))
    _print_floors(floor)
    idle = ", ".join(f"{who} {share:.1%}" for who, share in sorted(record.idle_share.items()))
    print(f"processor share of the one that waits, at most: {idle}")
    return {
        "ratios": {name: spread.median for name, spread in ratio.items()},
        "floors": floor,
        "spreads": {name: [spread.low, spread.high] for name, spread in ratio.items()},
        "product": product,
        "peer": peer,
        "peer_build": facts,
        "idle_share": dict(record.idle_share),
        "processor": str(processor()),
    }


def _print_floors(floor: dict[str, Any]) -> None:
    print(
        f"\nfloors: {floor['weight_bytes'] / 1e6:,.1f} MB of weights at {floor['read_bytes_per_s'] / 1e9:,.1f} GB/s: "
        f"decode of one stream {floor['decode_1']:,.0f} tok/s, the product reaches {floor['decode_1_share']:.0%};\n"
        f"  {floor['multiply_adds_per_s'] / 1e9:,.0f} G multiply-adds/s: "
        f"prefill of 512 {floor['prefill_512']:,.0f} tok/s, the product reaches {floor['prefill_512_share']:.0%}"
    )
