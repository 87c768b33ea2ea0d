"""The environment is made once, kept when it is good, made anew when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.building.environment import make_environment
from scripts.building.project import Project
from scripts.building.steps import BuildError


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A checkout that needs no packages."""
    return Project(tmp_path, "0", (), {}, ())


@pytest.fixture(autouse=True)
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed."""
    monkeypatch.setattr("scripts.building.environment.install", lambda *arguments: None)


def test_it_is_made_once_and_one_that_was_there_is_kept(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 1: also a person's own `.venv`, which has no stamp."""
    make_environment(project, [])
    assert "in .venv" in capsys.readouterr().out
    make_environment(project, [])
    assert "environment  up to date" in capsys.readouterr().out
    (project.environment / "made.stamp").unlink()
    mine = project.environment / "mine"
    mine.write_text("")
    make_environment(project, [])
    assert "that was there" in capsys.readouterr().out
    assert mine.exists()


def test_one_that_does_not_work_is_made_anew(project: Project) -> None:
    """An interrupted build leaves half of one; an upgraded system one whose interpreter is gone."""
    project.python.parent.mkdir(parents=True)
    project.python.symlink_to("/nowhere/python3")
    make_environment(project, [])
    assert project.python.exists()


def test_a_python_without_venv_says_what_to_install(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian ships it in a package of its own."""
    python = project.root / "python"
    python.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(BuildError, match=r"install python3-venv and run build\.py again"):
        make_environment(project, [])
