"""`helios serve [MODEL]`: load a model and answer HTTP until told to stop.

It knows the order of starting and ending and nothing of what lies between. The address is taken first and the engine closed
last, whatever happens.
"""

from __future__ import annotations

import argparse
import asyncio
import logging

from helios.cli.model import add_settings, core_path, load_settings, start_engine

_LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a .core, a .gguf, or a name; nothing: the default model"
    )
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments)
    from helios.server.listener import bind
    from helios.server.server import serve_until_signal

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("helios").setLevel(settings.log_level.upper())
    with (
        bind(settings) as listener,
        start_engine(core_path(arguments.model, settings), settings) as engine,
    ):
        _LOG.info("%s", engine.description)
        asyncio.run(serve_until_signal(engine, settings, listener))
    return 0
