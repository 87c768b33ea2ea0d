"""Starting from the zipapp: unpacked once, whatever else happens at the same time, and one clear line for what is in the way."""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import platform
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.building import launcher
from scripts.building.project import running_python
from tests.repo.sources import ROOT
from tests.scripts.building.small_zipapp import OWN_TAG, make_zipapp

BAD_CRC = "Bad CRC-32 for file 'site/noise.bin'"


class Result:
    """What a start printed and how it ended."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.status = process.returncode
        self.out = process.stdout
        self.complaint = process.stderr

    @property
    def tree(self) -> Path:
        """The tree that `main` ran from."""
        assert self.status == 0, self.complaint
        return Path(self.out.split()[0]).parent


def start(pyz: Path, home: Path, *words: str, **environment: str) -> Result:
    """Run it to its end with HELIOS_HOME."""
    variables = {"PATH": os.environ["PATH"], "HELIOS_HOME": str(home), **environment}
    command = [sys.executable, pyz, *words]
    return Result(subprocess.run(command, capture_output=True, text=True, env=variables, check=False))


@contextmanager
def running(pyz: Path, home: Path) -> Iterator[Path]:
    """A process that stays in `main`; yields its tree."""
    command = [sys.executable, pyz, "wait"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env={"HELIOS_HOME": str(home)}, **pipes) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().split()[0]).parent
        process.communicate("")


def assert_one_line(result: Result, *parts: str) -> None:
    """It failed with one line that says these things."""
    assert result.status == 1
    assert result.complaint.startswith("helios: ")
    assert result.complaint.count("\n") == 1, result.complaint
    for part in parts:
        assert part in result.complaint


def test_the_first_start_unpacks_and_the_second_finds_it(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    pyz, home = make_zipapp(tmp_path), tmp_path / "home"
    first, second = start(pyz, home), start(pyz, home, "a", "b")
    assert "unpacking" in first.complaint
    assert second.complaint == ""
    assert first.tree == second.tree
    assert first.tree.parent == home / "app"
    assert second.out.split() == [str(first.tree / "app"), str(first.tree / "site"), "outside", "a", "b"]


def test_sources_are_compiled_when_they_are_unpacked_whatever_the_environment_says(tmp_path: Path) -> None:
    """Issue 9, item 5: reading sources anew costs each start as much as all the rest."""
    home = tmp_path / "home"
    start(make_zipapp(tmp_path), home, PYTHONDONTWRITEBYTECODE="1")
    (tree,) = (home / "app").glob("*-py*")
    sources = list(tree.rglob("*.py"))
    assert sources
    for source in sources:
        bytecode = Path(importlib.util.cache_from_source(source)).read_bytes()
        assert int.from_bytes(bytecode[8:12], "little") == int(source.stat().st_mtime)  # so it is taken


def test_bytecode_is_that_of_the_source_without_docstrings(tmp_path: Path) -> None:
    """Assertions and the lines of a traceback stay. What does not compile is left to who imports it."""
    source = tmp_path / "sample.py"
    source.write_text(
        '"""Module."""\n'
        "from __future__ import annotations\n"
        "class Only:\n"
        '    """Class,\n    in two lines."""\n'
        "class Both:\n"
        '    """Class."""\n'
        "    def method(self):\n"
        '        """Method."""\n'
        "        assert not self, __doc__\n"
        '        return "kept"\n'
    )
    launcher._write_bytecode(source)
    code = marshal.loads(Path(importlib.util.cache_from_source(source)).read_bytes()[16:])
    names: dict[str, Any] = {}
    exec(code, names)
    assert "__doc__" not in names
    assert [names["Only"].__doc__, names["Both"].__doc__, names["Both"].method.__doc__] == [None] * 3
    assert names["Both"].method(None) == "kept"
    with pytest.raises(AssertionError) as raised:
        names["Both"]().method()
    assert raised.traceback[-1].lineno + 1 == 10
    (tmp_path / "template.py").write_text("{{ name }} = ]")
    launcher._write_bytecode(tmp_path / "template.py")


def test_the_exit_status_is_that_of_main(tmp_path: Path) -> None:
    """A supervisor reads it."""
    assert start(make_zipapp(tmp_path), tmp_path / "home", "fail").status == 7


def test_an_interrupt_while_the_command_line_is_imported_is_no_traceback(tmp_path: Path) -> None:
    pyz = make_zipapp(tmp_path, wheel_files={"outside.py": b"raise KeyboardInterrupt"})
    start(pyz, tmp_path / "home")  # which unpacks
    interrupted = start(pyz, tmp_path / "home")
    assert (interrupted.status, interrupted.complaint) == (130, "")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, ".cache/helios"),
        ({"XDG_CACHE_HOME": "{}/x"}, "x/helios"),
        ({"XDG_CACHE_HOME": "relative"}, ".cache/helios"),
    ],
)
def test_the_tree_is_in_the_users_cache_directory(tmp_path: Path, variables: dict[str, str], place: str) -> None:
    """Issue 2, item 2; the XDG rules say that a relative path there counts for nothing."""
    variables = {name: value.format(tmp_path) for name, value in variables.items()}
    result = start(make_zipapp(tmp_path), Path(), HOME=str(tmp_path), **{"HELIOS_HOME": "", **variables})
    assert result.tree.parent == tmp_path / place / "app"


def test_starts_at_the_same_time_all_work(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    pyz, home = make_zipapp(tmp_path), tmp_path / "home"
    command = [sys.executable, pyz]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, env={"HELIOS_HOME": str(home)}, **pipes) for _ in range(6)]
    results = [(*process.communicate(), process.returncode) for process in processes]
    assert [status for _, _, status in results] == [0] * 6
    assert len({out for out, _, _ in results}) == 1
    assert sum("unpacking" in complaint for _, complaint, _ in results) == 1


def test_a_start_that_was_killed_while_unpacking_harms_no_later_one(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    pyz = make_zipapp(tmp_path, wheel_files={f"many/{n}.py": b"" for n in range(3000)})
    home = tmp_path / "home"
    process = subprocess.Popen([sys.executable, pyz], env={"HELIOS_HOME": str(home)}, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(home.glob("app/.partial-*/site/many")):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    tree = start(pyz, home).tree
    assert len(list((tree / "site" / "many").glob("*.py"))) == 3000
    assert [path.name for path in (home / "app").iterdir() if path.is_dir()] == [tree.name]


def test_old_trees_go_when_a_new_one_comes_but_not_while_they_run(tmp_path: Path) -> None:
    """Issue 2, item 2: each is 100 MB."""
    home = tmp_path / "home"
    versions = [make_zipapp(tmp_path / note, note) for note in "abc"]
    with running(versions[0], home) as old:
        new = start(versions[1], home).tree
        assert old.is_dir()
    newest = start(versions[2], home).tree
    assert [path for path in (home / "app").iterdir() if path.is_dir()] == [newest]
    assert newest not in (old, new)


def test_what_is_not_a_tree_is_left_alone(tmp_path: Path) -> None:
    """A directory that somebody else put there is none of our business."""
    other = tmp_path / "home" / "app" / "mine"
    other.mkdir(parents=True)
    start(make_zipapp(tmp_path), tmp_path / "home")
    assert other.is_dir()


def test_extension_modules_of_other_pythons_stay_in_the_zip(tmp_path: Path) -> None:
    """One file for several Pythons need not cost the disk several times."""
    files = {f"a{OWN_TAG}x.so": b"", "a.cpython-399-x.so": b"", "b.abi3.so": b""}
    tree = start(make_zipapp(tmp_path, wheel_files=files), tmp_path / "home").tree
    assert {path.name for path in (tree / "site").glob("*.so")} == {f"a{OWN_TAG}x.so", "b.abi3.so"}


@pytest.mark.parametrize("place", ["/proc/nowhere", "{}/file/below", "{}/file"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, place: str) -> None:
    """Issue 2, item 2."""
    (tmp_path / "file").write_text("")
    home = Path(place.format(tmp_path))
    assert_one_line(start(make_zipapp(tmp_path), home), str(home), "set HELIOS_HOME to a directory")


def test_a_filled_place_may_be_read_only(tmp_path: Path) -> None:
    """A container image is filled when it is built."""
    pyz, home = make_zipapp(tmp_path), tmp_path / "home"
    tree = start(pyz, home).tree
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" "$3"'
    result = in_own_mounts(script, str(home), sys.executable, str(pyz), home=home)
    assert result.complaint == ""
    assert result.tree == tree


def test_a_place_mounted_noexec_is_one_line(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    pyz, home = make_zipapp(tmp_path), tmp_path / "home"
    home.mkdir()
    script = 'mount -t tmpfs -o noexec tmpfs "$1" && "$2" "$3" 2>/dev/null; exec "$2" "$3"'
    result = in_own_mounts(script, str(home), sys.executable, str(pyz), home=home)
    assert_one_line(result, "noexec", "set HELIOS_HOME to a directory where they may")


def in_own_mounts(script: str, *words: str, home: Path) -> Result:
    """Run a shell script that mounts things nobody else sees; skips where that is not allowed."""
    unshare = ["unshare", "--mount"]
    if subprocess.run(
        [*unshare, "mount", "-t", "tmpfs", "tmpfs", home.parent], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    command = [*unshare, "sh", "-c", script, "sh", *words]
    variables = {"PATH": os.environ["PATH"], "HELIOS_HOME": str(home)}
    return Result(subprocess.run(command, capture_output=True, text=True, env=variables, check=False))


def test_a_damaged_file_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """A download that went wrong in the middle."""
    pyz, home = make_zipapp(tmp_path, wheel_files={"noise.bin": random.Random(1).randbytes(100_000)}), tmp_path / "home"
    data = bytearray(pyz.read_bytes())
    data[data.index(b"site/noise.bin") + 50_000] ^= 1
    pyz.write_bytes(data)
    result = start(pyz, home)
    assert result.complaint.split("\n")[1:] == [
        f"helios: {pyz} is damaged ({BAD_CRC}); download it or build it again",
        "",
    ]
    assert not [path for path in (home / "app").iterdir() if path.is_dir()]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_tree_of_another_user_is_not_run(tmp_path: Path) -> None:
    """Whoever may write a tree decides what we run."""
    pyz, home = make_zipapp(tmp_path), tmp_path / "home"
    os.chown(start(pyz, home).tree / ".in-use", 12345, 12345)
    assert_one_line(start(pyz, home), "belongs to another user")


def test_a_python_that_the_wheels_are_not_for_is_one_line(tmp_path: Path) -> None:
    """Issue 2, item 2."""
    result = start(make_zipapp(tmp_path, pythons=["3.7", "3.9"]), tmp_path / "home")
    assert_one_line(result, f"this file is for Python 3.7, 3.9, this is Python {running_python()}")


@pytest.mark.parametrize("name", ["build.py", "scripts/building/stub.py"])
def test_the_first_file_parses_under_an_old_python(name: str) -> None:
    """It must, to say its clear line there."""
    ast.parse((ROOT / name).read_text(), feature_version=(3, 4))


def test_another_architecture_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 2, item 2."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert_one_line(start(make_zipapp(tmp_path), tmp_path / "home"), "this file is for Linux on riscv64")


def test_an_older_glibc_is_one_line(tmp_path: Path) -> None:
    """The loader would say it about some library deep inside."""
    pyz = make_zipapp(tmp_path, wheel_files={"a.so": b"\0GLIBC_2.999\0"})
    assert_one_line(start(pyz, tmp_path / "home"), "needs glibc 2.999")
