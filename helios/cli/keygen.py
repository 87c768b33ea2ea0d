"""`helios keygen`: make an Ed25519 key to sign cores with.

It writes one private PEM file, never over an existing one, and prints the fingerprint by which others know the key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from helios.corefile.keys import create_key, fingerprint, public_bytes
from helios.errors import ArtifactError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write."""
    parser.add_argument("path", type=Path, metavar="PATH", help="file to write the private key to")


def run(arguments: argparse.Namespace) -> int:
    """Write the key and print its fingerprint."""
    try:
        key = create_key(arguments.path)
    except FileExistsError:
        raise ArtifactError(
            f"{arguments.path} exists already", hint="keys are not replaced: choose another path"
        ) from None
    except OSError as error:
        raise ArtifactError(f"{arguments.path} cannot be written: {error.strerror}") from error
    print(f"{arguments.path}: {fingerprint(public_bytes(key))}")
    return 0
