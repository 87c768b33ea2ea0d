"""`helios serve [MODEL]`: load a model and answer HTTP, and gRPC where it is asked for, until told to stop.

It knows the order of starting and ending and nothing of what lies between. The addresses are taken first and the engine closed
last, whatever happens.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from helios.cli.logs import logging_to
from helios.cli.model import add_settings, core_path, load_settings, start_engine
from helios.corefile.ed25519 import InChild
from helios.device import heap
from helios.settings import Settings, toml_of

if TYPE_CHECKING:
    from helios.server.grpc.address import GrpcAddress

STDERR = 2  # the descriptor: a log must reach it whatever stands in sys.stderr
_LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a .core, a .gguf, or a name; nothing: the default model"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings as a TOML file for --config, and end"
    )
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments)
    if arguments.print_config:
        print(toml_of(settings), end="")
        return 0
    heap.keep_small()
    from helios.server.access import read_access
    from helios.server.kv_events.open import open_kv_events
    from helios.server.listener import bind

    with (
        logging_to(STDERR, settings),
        bind(settings) as listener,
        _grpc_address(settings) as grpc_address,
        open_kv_events(settings) or nullcontext() as kv_sockets,
    ):
        access = read_access(settings)
        with InChild() as ed25519:
            core = core_path(arguments.model, settings, ed25519)
            # A quarter of a second, where a wrong model is told before.
            from helios.server.server import serve_until_signal

            engine = start_engine(core, settings, ed25519)
        with engine:
            _LOG.info("%s", engine.description)
            asyncio.run(serve_until_signal(engine, settings, listener, access, grpc_address, kv_sockets))
    if engine.is_stuck:
        os._exit(1)  # an orderly end would wait for the device
    return 0


def _grpc_address(settings: Settings) -> AbstractContextManager[GrpcAddress | None]:
    """The gRPC port, where one is asked for; its library takes a tenth of a second to load."""
    if settings.grpc_port is None:
        return nullcontext()
    from helios.server.grpc.address import take_address

    return take_address(settings, settings.grpc_port)
