"""`helios prepare`: turn a GGUF checkpoint into a signed core, with a progress bar.

It knows flags and files; `ignition/prepare.py` does the work. Without a key the core is signed by this machine's own, under
the namespace `local`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from helios.cli.progress import byte_progress
from helios.corefile.keys import LOCAL_NAMESPACE, load_key, load_or_create_local_key
from helios.corefile.layout import CoreFormat
from helios.corefile.writer import Container
from helios.errors import SettingError
from helios.ignition.preparation.identity import name_of_file
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import target_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL.gguf, where to write, and what to prepare for."""
    defaults = PrepareOptions()
    parser.add_argument("model", type=Path, metavar="MODEL.gguf", help="checkpoint to prepare")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT.core", help="core to write (MODEL.core in this directory)"
    )
    parser.add_argument("--name", help="name that requests choose the model by (the file's)")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="longest request (the model's, up to 8,192)")
    parser.add_argument(
        "--concurrency",
        type=int,
        default=defaults.concurrency,
        metavar="N",
        help=f"requests generated at once ({defaults.concurrency})",
    )
    parser.add_argument(
        "--kv",
        type=KvFormat,
        choices=list(KvFormat),
        help="how keys and values are kept; q8 takes half the memory (f16, on cuda bf16)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="what it will be served on; a GPU need not be here (cpu)",
    )
    parser.add_argument("--sign", type=Path, metavar="KEY", help="Ed25519 key to sign with (this machine's)")
    parser.add_argument("--namespace", help=f"publisher namespace of the key ({LOCAL_NAMESPACE})")
    parser.add_argument("--index", action="store_true", help="write a logical-resource core (a payload core)")
    parser.add_argument(
        "--split",
        nargs="?",
        const="",
        metavar="URL",
        help="store each resource in a file of its own, in a directory beside the core; with URL, the core reads them there",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the core and print its path."""
    if bool(arguments.namespace) != bool(arguments.sign):
        raise SettingError("--sign and --namespace go together", hint="leave both out to sign with this machine's key")
    if arguments.sign and arguments.namespace == LOCAL_NAMESPACE:
        raise SettingError(f"the namespace {LOCAL_NAMESPACE!r} is signed by this machine's key alone")
    key = load_key(arguments.sign) if arguments.sign else load_or_create_local_key()
    output = arguments.output or Path(f"{arguments.model.stem}.core")
    options = PrepareOptions(
        context_tokens=arguments.context,
        concurrency=arguments.concurrency,
        served_id=arguments.name or name_of_file(arguments.model),
        kv_format=arguments.kv,
    )
    namespace = arguments.namespace or LOCAL_NAMESPACE
    container = Container(
        format=CoreFormat.INDEX if arguments.index else CoreFormat.PAYLOAD,
        is_split=arguments.split is not None,
        url=arguments.split or None,
    )
    with byte_progress("preparing") as report:
        prepare(
            arguments.model,
            output,
            target_of(arguments.device),
            options,
            key=key,
            namespace=namespace,
            progress=report,
            container=container,
        )
    print(output)
    return 0
