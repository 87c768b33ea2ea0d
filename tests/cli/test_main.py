"""The command line as a user meets it: help, exit statuses, one line for a mistake."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helios.cli import main as command_line
from helios.cli.main import VERBS, main
from helios.errors import CheckpointError, SettingError
from helios.settings import VERSION

ROOT = Path(__file__).parents[2]


def test_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"helios {VERSION}\n"


def test_no_words_show_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert all(f"  {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_module(verb: str) -> None:
    assert importlib.util.find_spec(VERBS[verb][0]) is not None


@pytest.mark.parametrize("words", [["nonsense"], ["serve", "--nonsense"], ["serve", "a", "b"]])
def test_a_wrong_command_line_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "helios" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(CheckpointError("it is cut short"), 1), (SettingError("--port is 'x'"), 2), (KeyboardInterrupt(), 130)],
)
def test_an_error_is_one_line(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(command_line.signal, "signal", lambda number, handler: None)  # pytest's stays
    monkeypatch.setattr(command_line, "_run", fail)
    assert main(["serve"]) == status
    shown = capsys.readouterr().err
    assert shown == f"helios: {str(error) or 'interrupted'}\n"


def test_whoever_interrupts_again_and_again_sees_one_line() -> None:
    """In a process of its own: the second signal comes while the line is written, the third behind it."""
    script = (
        "import os, signal, sys\n"
        "from helios.cli import main as command_line\n"
        "class Impatient:\n"
        "    def write(self, text):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return sys.__stderr__.write(text)\n"
        "    flush = sys.__stderr__.flush\n"
        "def fail(words):\n"
        "    sys.stderr = Impatient()\n"
        "    raise KeyboardInterrupt\n"
        "command_line._run = fail\n"
        "status = command_line.main(['pull'])\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (130, "helios: interrupted\n")


def test_a_mistake_shows_no_traceback_and_imports_no_engine() -> None:
    """A wrong setting is found before anything heavy is loaded."""
    script = (
        "import sys; from helios.cli.main import main; status = main(['serve', '--port', '70000']);"
        "heavy = {'numpy', 'tokenizers', 'helios.engine'} & set(sys.modules); sys.exit(f'{status} {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr.splitlines() == [
        "helios: --port is 70000; it must be a whole number from 0 to 65,535",
        "2 []",
    ]


def test_a_server_loads_no_library_that_it_may_never_need() -> None:
    """Each would be resident for good: signatures are a child's, the page of metrics and grammars come when asked for."""
    script = (
        "import sys, helios.cli.serve, helios.server.server, helios.engine, helios.ignition.prepared_core;"
        "unused = {'cryptography', 'prometheus_client', 'grpc', 'llguidance', 'PIL', 'gguf', 'http.client'};"
        "sys.exit(str(sorted(unused & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == "[]\n"


def test_a_refusal_of_the_system_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: list[str]) -> int:
        raise OSError(28, "No space left on device", "a\nfile")

    monkeypatch.setattr(command_line, "_run", fail)
    assert main(["pull"]) == 1
    assert capsys.readouterr().err == "helios: [Errno 28] No space left on device: 'a\\nfile'\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "helios.py", "serve", "--print-config"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "helios: [Errno 28] No space left on device\n")


def test_a_closed_pipe_is_no_traceback() -> None:
    writer = subprocess.Popen(
        [sys.executable, "helios.py"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.close()
    assert writer.stderr is not None
    with writer.stderr:
        assert "Traceback" not in writer.stderr.read()
    writer.wait()
