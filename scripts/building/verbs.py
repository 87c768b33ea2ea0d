"""The command line of `build.py`: which steps each verb needs, in order. It knows no step's inside."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from scripts.building.cuda import build_cuda, find_nvcc, install_nvcc, parse_architectures
from scripts.building.environment import make_environment
from scripts.building.native import build_emulator, build_native
from scripts.building.project import Project, running_python
from scripts.building.steps import BuildError, Progress, digest, only_build, run_step
from scripts.building.zipapp import build_zipapp

ROOT = Path(__file__).resolve().parents[2]


def main(words: Sequence[str]) -> int:
    """Run a verb; the exit status."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(words)
    if rest and arguments.verb not in {"serve", "test"}:
        parser.error(f"{arguments.verb} takes no {rest[0]}")
    try:
        project = Project.load(ROOT)
        if arguments.verb == "clean":
            return _clean(project)
        with only_build(project.build):
            _build(project, arguments.verb, arguments.with_model, arguments.cuda)
        if arguments.verb == "serve":
            _become([sys.executable, project.zipapp, "serve", *rest])
        if arguments.verb == "test":
            _become([ROOT / "scripts" / "test", *rest])
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build.py", description="Build Helios from nothing, then serve or test it.", allow_abbrev=False
    )
    parser.add_argument(
        "verb",
        nargs="?",
        default="all",
        choices=["serve", "test", "all", "clean"],
        help="serve: build for this Python, then serve; further arguments go to `helios serve`. "
        "test: build, then run all tests on all cores, or what the further arguments tell pytest. "
        "all (the default): build one file for every supported Python. clean: remove all that build.py made",
    )
    parser.add_argument("--with-model", action="store_true", help="put the default model inside dist/helios.pyz")
    parser.add_argument(
        "--cuda",
        nargs="?",
        const="all",
        metavar="ARCHITECTURES",
        help="build the CUDA kernels, with a compiler from packages when there is no nvcc, for all architectures or those named "
        "(90a,120); without --cuda they are built for all of them when nvcc is found",
    )
    return parser


def _build(project: Project, verb: str, with_model: bool, cuda: str | None) -> None:
    make_environment(project, [] if verb == "serve" else ["test"])
    build_native(project)
    _build_cuda(project, cuda)
    if verb != "serve":
        build_emulator(project)
    checkpoint = _pull_default_model(project)
    core = _prepare_default_model(project, checkpoint) if with_model else None
    build_zipapp(project, project.pythons if verb == "all" else (running_python(),), core)


def _build_cuda(project: Project, asked: str | None) -> None:
    architectures = parse_architectures(asked or "all")
    nvcc = find_nvcc(project) or (install_nvcc(project) if asked else None)
    if nvcc:
        build_cuda(project, nvcc, architectures)
    else:
        print(f"{'cuda':<12} not built: there is no nvcc here (--cuda installs one)", flush=True)


def _pull_default_model(project: Project) -> Path:
    progress = Progress("model")
    path = Path(_helios(project, "pull"))
    progress.end(str(path))
    return path


def _prepare_default_model(project: Project, checkpoint: Path) -> Path:
    """The core that goes inside the zipapp, where `helios/cli/model.py` looks for it."""
    core = project.build / "model" / "default.core"

    def work(progress: Progress) -> str:
        core.parent.mkdir(parents=True, exist_ok=True)
        _helios(project, "prepare", checkpoint, "--output", core)
        return f"{core.stat().st_size / 1e6:.0f} MB"

    inputs = digest(str(checkpoint), project.root / "helios", project.native)
    run_step("core", project.build / "stamps" / "core", inputs, [core], work)
    return core


def _helios(project: Project, verb: str, *words: str | Path) -> str:
    """Run a verb of Helios in the environment, for the last line it prints. Progress and complaints go to stderr."""
    command = [project.python, project.root / "helios.py", verb, *words]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"`helios {verb}` failed, see above")
    return result.stdout.rstrip().split("\n")[-1]


def _become(command: Sequence[str | Path]) -> NoReturn:
    sys.stdout.flush()
    os.execv(command[0], [str(word) for word in command])


def _clean(project: Project) -> int:
    for directory in (project.build, project.zipapp.parent, project.environment):
        shutil.rmtree(directory, ignore_errors=True)
    print("removed build, dist and .venv")
    return 0
