"""From the words of a command line to a running engine: settings, the core to load, the engine.

It knows where models come from, for every verb that runs one. A GGUF is prepared once and the core kept; no model named means
the default one, packaged with the program or downloaded once.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from helios.cli.model_file import ModelFormat, format_of
from helios.cli.progress import byte_progress
from helios.corefile.authorize import PACKAGED_CORE
from helios.corefile.ed25519 import IN_PROCESS, Ed25519
from helios.ignition.preparation.identity import file_digest
from helios.settings import Settings, activations, flag_help, setting_names

if TYPE_CHECKING:
    from helios.engine import Engine

DEFAULT_MODEL = "smollm2-135m-instruct"  # the name of what `helios pull` fetches


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str] | None = None) -> None:
    """A flag for each setting, or for those named, and `--config`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings; flags and HELIOS_* win")
    for name in names or setting_names():
        flag, text = "--" + name.replace("_", "-"), flag_help(name).replace("%", "%%")  # argparse formats it
        if Settings.RULES[name].kind is bool:
            parser.add_argument(flag, action="store_const", const=True, help=text)
        elif Settings.RULES[name].is_list:
            parser.add_argument(flag, metavar=name.upper(), action="append", help=text)
        else:
            parser.add_argument(flag, metavar=name.upper(), help=text)


def load_settings(arguments: argparse.Namespace) -> Settings:
    """The settings that flags, environment and file make together."""
    return Settings.load(vars(arguments), arguments.config)


def core_path(model: str | None, settings: Settings, ed25519: Ed25519 = IN_PROCESS) -> Path:
    """The core to load for MODEL: itself, or the one prepared from a GGUF. May download and prepare, with progress bars."""
    if model is None or model == DEFAULT_MODEL:
        is_packaged = PACKAGED_CORE.is_file() and _is_as_packaged(settings)
        return PACKAGED_CORE if is_packaged else _prepared(_pulled(), settings, ed25519)
    path = Path(model)
    return _prepared(path, settings, ed25519) if format_of(path) is ModelFormat.GGUF else path


def start_engine(core: Path, settings: Settings, ed25519: Ed25519 = IN_PROCESS) -> Engine:
    """Load `core` with a progress bar; the caller closes the engine."""
    from helios.engine import Engine

    with byte_progress("loading") as report:
        return Engine.start(core, settings, report, ed25519)


def _is_as_packaged(settings: Settings) -> bool:
    """Whether the packaged core was prepared with these."""
    return settings.kv in (None, "f16") and settings.device in ("auto", "cpu") and activations() in (None, "q8")


def _pulled() -> Path:
    from helios.ignition.pull import pull_default_model

    with byte_progress("downloading the default model") as report:
        return pull_default_model(report)


def _prepared(gguf: Path, settings: Settings, ed25519: Ed25519) -> Path:
    """Smaller settings are chosen at load, so only those above the usual ones make a core of their own."""
    with ThreadPoolExecutor(1, "helios-digest") as hashing:
        # Which leaves the interpreter free to import what comes next.
        source_sha256 = hashing.submit(file_digest, gguf)
        importlib.import_module("helios.engine")
        from helios.ignition.preparation.kv_format import KvFormat
        from helios.ignition.prepared_core import DEFAULT_CONTEXT_TOKENS, PrepareOptions, prepared_core
        from helios.ignition.signatures import target_of

    usual = PrepareOptions()
    context_tokens = settings.context or 0
    options = PrepareOptions(
        context_tokens=context_tokens if context_tokens > DEFAULT_CONTEXT_TOKENS else usual.context_tokens,
        concurrency=max(settings.max_active or 0, usual.concurrency),
        kv_format=KvFormat(settings.kv) if settings.kv else usual.kv_format,
    )
    with byte_progress("preparing") as report:
        return prepared_core(
            gguf,
            report,
            options=options,
            target=target_of(settings.device),
            source_sha256=source_sha256.result(),
            ed25519=ed25519,
        )
