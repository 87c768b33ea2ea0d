"""The command line: one table of verbs, and the one place where an error becomes one line on stderr and an exit status.

It knows the verbs' names and modules and imports only the one that is asked for, so that starting is fast. Exit status 0 is
success, 1 a failure, 2 a wrong command line or setting, 130 an interrupt; a user's mistake never shows a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from helios.cli.text import printable
from helios.errors import HeliosError, SettingError
from helios.settings import VERSION

# verb: (module with add_arguments(parser) and run(arguments) -> exit status, help)
VERBS = {
    "serve": ("helios.cli.serve", "serve a model over HTTP"),
    "chat": ("helios.cli.chat", "talk to a model in the terminal"),
    "pull": ("helios.cli.pull", "download the default model"),
    "prepare": ("helios.cli.prepare", "turn a checkpoint into a core"),
    "inspect": ("helios.cli.inspect", "show what a core or checkpoint holds"),
    "verify": ("helios.cli.verify", "check a core's signature and every byte"),
    "keygen": ("helios.cli.keygen", "make a signing key"),
    "bench": ("helios.cli.bench", "measure a server"),
    "systemd": ("helios.cli.systemd", "print a unit that serves a model"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(words)
        sys.stdout.flush()  # what cannot be written is told here
        return status
    except HeliosError as error:
        print(f"helios: {printable(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, SettingError) else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses it again while this ends
        print("helios: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        _end_output()
        return 1
    except OSError as error:  # the system's, where nobody said more about it
        print(f"helios: {printable(str(error))}", file=sys.stderr)
        _end_output()
        return 1


def _end_output() -> None:
    """Write what is left. Python tries once more at exit: let what cannot be written go nowhere."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    top = _top_parser()
    if not words:
        top.print_help()
        return 2
    verb = top.parse_args(words[:1]).verb
    module_name, description = VERBS[verb]
    module = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(prog=f"helios {verb}", description=description, allow_abbrev=False)
    module.add_arguments(parser)
    status: int = module.run(parser.parse_args(words[1:]))
    return status


def _top_parser() -> argparse.ArgumentParser:
    lines = [f"  {verb:<8} {description}" for verb, (_, description) in VERBS.items()]
    parser = argparse.ArgumentParser(
        prog="helios",
        usage="helios VERB ...",
        description="A language-model server in one file.",
        epilog="verbs:\n" + "\n".join(lines) + "\n\n`helios VERB --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"helios {VERSION}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help="what to do, see below")
    return parser
