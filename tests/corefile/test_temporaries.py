"""Files that are being made: whose maker lives they stay, whose maker was killed they go."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from helios.corefile.temporaries import held, remove_abandoned


def _hold(path: Path, is_directory: bool, pipe: Connection) -> None:
    with held(path, is_directory=is_directory):
        if is_directory:
            (path / "part").write_bytes(b"x")
        pipe.send(None)
        pipe.recv()


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_a_living_process_makes_stays_and_what_a_killed_one_made_goes(tmp_path: Path, is_directory: bool) -> None:
    path = tmp_path / ".made.1"
    ours, theirs = multiprocessing.Pipe()
    maker = multiprocessing.get_context("spawn").Process(target=_hold, args=(path, is_directory, theirs))
    maker.start()
    ours.recv()
    remove_abandoned(tmp_path, ".made.*")
    assert path.exists()
    assert maker.pid is not None
    os.kill(maker.pid, signal.SIGKILL)
    maker.join()
    assert path.exists()
    remove_abandoned(tmp_path, ".other.*")
    assert path.exists()
    remove_abandoned(tmp_path, ".made.*")
    assert not path.exists()


@pytest.mark.parametrize("is_directory", [False, True])
def test_it_is_gone_in_the_end_unless_it_got_another_name(tmp_path: Path, is_directory: bool) -> None:
    with held(tmp_path / ".made", is_directory=is_directory):
        assert (tmp_path / ".made").exists()
    assert list(tmp_path.iterdir()) == []
    with held(tmp_path / ".made", is_directory=is_directory) as path:
        path.replace(tmp_path / "finished")
    assert [path.name for path in tmp_path.iterdir()] == ["finished"]


def after_first(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], object]) -> None:
    """The first call of `owner.name` is followed by `then`: what another process does meanwhile."""
    call = getattr(owner, name)

    def first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, call)
        result = call(*arguments, **options)
        then()
        return result

    monkeypatch.setattr(owner, name, first)


@pytest.mark.parametrize(
    ("is_directory", "owner", "name"), [(False, os, "open"), (True, Path, "mkdir"), (True, os, "open")]
)
def test_what_is_taken_for_abandoned_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_directory: bool, owner: Any, name: str
) -> None:
    after_first(monkeypatch, owner, name, lambda: remove_abandoned(tmp_path, ".made"))
    with held(tmp_path / ".made", is_directory=is_directory):
        assert (tmp_path / ".made").exists()
        remove_abandoned(tmp_path, ".made")
        assert (tmp_path / ".made").exists()


def test_who_comes_second_to_what_is_abandoned_leaves_what_is_made_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".made"
    path.touch()
    with ExitStack() as maker:

        def remove_and_make() -> None:
            path.unlink()
            maker.enter_context(held(path))

        after_first(monkeypatch, os, "open", remove_and_make)
        remove_abandoned(tmp_path, ".made")
        assert path.exists()
    assert not path.exists()
