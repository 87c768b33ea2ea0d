"""The virtual environment `.venv`: made once, then given the packages that `pyproject.toml` names.

It knows no package by name. Its stamps lie inside the environment, so that they vanish with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.building.project import Project, running_python
from scripts.building.steps import BuildError, Progress, digest, run_logged, run_step


def make_environment(project: Project, groups: Sequence[str]) -> None:
    """Install the run-time packages as the zipapp has them (each alone), then each group with what it asks for."""
    run_step(
        "environment",
        project.environment / "made.stamp",
        running_python(),
        [project.python],
        lambda progress: _create(project, progress),
    )
    _install(project, "packages", project.requirements, ["--no-deps"])
    for group in groups:
        _install(project, f"{group} packages", project.groups[group], [])


def _create(project: Project, progress: Progress) -> str:
    if _has_pip(project):
        return f"Python {running_python()}, the {project.environment.name} that was there"
    if project.environment.exists():  # another Python's, or half made
        shutil.rmtree(project.environment)
    log = project.build / "log" / "environment.log"
    try:
        run_logged([sys.executable, "-m", "venv", project.environment], "making .venv", log, progress)
    except BuildError as error:
        if "ensurepip" in log.read_text(errors="replace"):
            raise BuildError(
                "this Python cannot make environments; install python3-venv and run build.py again"
            ) from None
        raise error
    return f"Python {running_python()} in {project.environment.name}"


def _has_pip(project: Project) -> bool:
    """Whether there is an environment of this Python version that works."""
    program = "import pip, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        result = subprocess.run([project.python, "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return result.stdout.strip() == running_python()


def _install(project: Project, title: str, requirements: Sequence[str], options: Sequence[str]) -> None:
    name = title.replace(" ", "-")

    def work(progress: Progress) -> str:
        install(project, requirements, options, progress, project.build / "log" / f"{name}.log")
        return f"{len(requirements)} installed"

    run_step(title, project.environment / f"{name}.stamp", digest(*requirements), [project.python], work)


def install(
    project: Project, requirements: Sequence[str], options: Sequence[str], progress: Progress, log: Path
) -> None:
    """pip install into the environment."""
    pip: list[str | Path] = [project.python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    run_logged([*pip, *options, *requirements], f"installing {len(requirements)} packages", log, progress)
