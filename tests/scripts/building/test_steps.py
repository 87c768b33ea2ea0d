"""Build steps: done once, done again when anything they read has changed, one sentence when they fail."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.building import steps
from scripts.building.steps import BuildError, Progress, digest, run_logged, run_step, telling_line


class Work:
    """A step's work that counts itself and makes its output."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.n_runs = 0

    def __call__(self, progress: Progress) -> str:
        self.n_runs += 1
        self.output.write_text("made")
        return "made it"


def test_a_step_is_skipped_until_its_inputs_change_or_its_output_is_gone(tmp_path: Path) -> None:
    """Design 1."""
    work = Work(tmp_path / "output")
    stamp = tmp_path / "stamps" / "step"

    def run(inputs: str) -> int:
        run_step("step", stamp, inputs, [work.output], work)
        return work.n_runs

    assert [run("a"), run("a"), run("b"), run("b")] == [1, 1, 2, 2]
    work.output.unlink()
    assert run("b") == 3


def test_a_step_that_failed_is_done_again(tmp_path: Path) -> None:
    """Design 1: also when it had succeeded before with the same inputs."""
    work = Work(tmp_path / "output")
    stamp = tmp_path / "step"
    run_step("step", stamp, "a", [work.output], work)

    def fail(progress: Progress) -> str:
        raise BuildError("no")

    with pytest.raises(BuildError):
        run_step("step", stamp, "b", [work.output], fail)
    run_step("step", stamp, "a", [work.output], work)
    assert work.n_runs == 2


@pytest.mark.parametrize(("tick_s", "took"), [(0.0, ""), (2.5, " (2.5 s)")])
def test_a_step_prints_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tick_s: float, took: str
) -> None:
    """Design 1."""
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=itertools.count(step=tick_s).__next__))
    for _ in range(2):
        run_step("step", tmp_path / "stamp", "a", [], Work(tmp_path / "output"))
    assert capsys.readouterr().out.split("\n") == [f"step         made it{took}", f"step         up to date{took}", ""]


def test_a_failed_program_is_one_sentence_with_its_telling_line(tmp_path: Path) -> None:
    """Design 1."""
    program = "import sys; print('x.cpp:1: error: no such thing'); print('gave up'); sys.exit(3)"
    log = tmp_path / "log" / "x.log"
    with pytest.raises(
        BuildError, match=r"^making x failed: x\.cpp:1: error: no such thing; all of it is in "
    ) as raised:
        run_logged([sys.executable, "-c", program], "making x", log, Progress("x"))
    assert "\n" not in str(raised.value)
    assert "gave up" in log.read_text()


def test_a_program_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """Design 1."""
    with pytest.raises(BuildError, match=r"cannot start .*no-such-program: No such file"):
        run_logged([tmp_path / "no-such-program"], "x", tmp_path / "x.log", Progress("x"))


def test_the_telling_line_is_the_first_error_else_the_last_line() -> None:
    """Design 1."""
    assert telling_line("a\nb: error: c\nd: error: e\n") == "b: error: c"
    assert telling_line("a\nb: error #177-D: c\nd\n") == "b: error #177-D: c"
    assert telling_line("a\nb\n\n") == "b"
    assert telling_line("") == "it said nothing"


def test_a_digest_tells_contents_names_and_boundaries_apart(tmp_path: Path) -> None:
    """A step must not be skipped because two inputs look like one."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("1")
    before = digest(tree)
    (tree / "a").rename(tree / "b")
    renamed = digest(tree)
    (tree / "b").write_text("2")
    rewritten = digest(tree)
    assert len({before, renamed, rewritten, digest("ab", "c"), digest("a", "bc"), digest()}) == 6
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "b.pyc").write_text("3")
    assert digest(tree) == rewritten
