"""What must hold of the files of the repository, whatever is in them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helios.settings import VERSION
from tests.repo.sources import ROOT, label, package_imports, package_sources

# Where wheels and images come from is the machine's business, and so are its directories.
REGISTRY_OR_MACHINE = re.compile(
    r"pypi\.org|pythonhosted|huggingface\.co|hf\.co/|docker\.io|ghcr\.io|/work/|/tmp/[a-z]|/root/|/home/[a-z]"
)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".h", ".cpp", ".cu", ".proto", ".sh", ""}


def tracked_files() -> list[Path]:
    """The files that git knows; without git (a source archive), all of them."""
    result = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if result.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in result.stdout.split("\n") if name and (path := ROOT / name).is_file()]


def test_package_initialisers_hold_a_docstring_and_nothing_else() -> None:
    """Style, Layers."""
    initialisers = [path for path in package_sources() if path.name == "__init__.py"]
    assert [label(path) for path in initialisers if len(ast.parse(path.read_text()).body) != 1] == []


def test_every_module_opens_with_a_docstring() -> None:
    """Style, habit 1."""
    assert [label(path) for path in package_sources() if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_file_names_a_registry_or_a_directory_of_one_machine() -> None:
    """A clone works anywhere."""
    found = [
        f"{label(path)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path.suffix in TEXT_SUFFIXES and path != Path(__file__)
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if REGISTRY_OR_MACHINE.search(line)
    ]
    assert not found, "\n".join(found)


def test_generated_messages_are_up_to_date() -> None:
    """The .proto files are the source."""
    command = ["env", f"PYTHON={sys.executable}", ROOT / "scripts" / "generate", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_version_is_the_same_everywhere() -> None:
    """`pyproject.toml` and `helios.settings` must not drift apart."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_every_third_party_import_is_a_declared_dependency_and_the_reverse() -> None:
    """Design 10: what is not used is not carried, and what is used is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {re.split("[=<>~]", line)[0] for line in lines}
    import_names = {
        "google": "protobuf",
        "grpc": "grpcio",
        "grpc_health": "grpcio-health-checking",
        "grpc_reflection": "grpcio-reflection",
        "prometheus_client": "prometheus-client",
        "zmq": "pyzmq",
    }
    imported = {module.split(".")[0] for _, module in package_imports()}
    outside = {import_names.get(name, name) for name in imported - set(sys.stdlib_module_names) - {"helios"}}
    assert outside == declared
