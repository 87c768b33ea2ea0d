"""The units that `helios systemd` prints, read as systemd reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helios.cli.main import main
from helios.settings import setting_names

ROOT = Path(__file__).parents[2]
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in setting_names():
        monkeypatch.delenv("HELIOS_" + name.upper(), raising=False)
    monkeypatch.setattr(sys, "argv", [str(ROOT / "helios.py")])
    return ROOT / "helios.py"


class Printed:
    """What the verb prints for given words."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        assert main(["systemd", *words]) == 0
        self.text, self.warnings = capsys.readouterr()

    def values(self, name: str) -> list[str]:
        return re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)

    def value(self, name: str) -> str:
        (value,) = self.values(name)
        return value


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    return subprocess.run(
        [ANALYZE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )


@needs_systemd
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--device", "cpu", "--port", "80"),
        ("--user", "root", "--host", "unix:/run/helios/api.sock", "--drain-timeout", "600"),
        (
            'a name 100% "odd" $HOME\'s \\',
            "--cors-origin",
            "https://a.b",
            "--cors-origin",
            "https://c.d",
            "--log-prompts",
        ),
    ],
)
def test_systemd_accepts_the_unit(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 6.4: verify has nothing to say, not even a warning of an unknown directive."""
    unit = tmp_path / "helios.service"
    unit.write_text(Printed(capsys, *words).text)
    verified = analyze("verify", unit)
    assert (verified.returncode, verified.stdout) == (0, "")


@needs_systemd
def test_systemd_would_say_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test above can fail."""
    unit = tmp_path / "helios.service"
    unit.write_text(Printed(capsys).text.replace("ProtectSystem", "ProtectSistem"))
    assert "ProtectSistem" in analyze("verify", unit).stdout


@needs_systemd
@pytest.mark.parametrize("words", [("--port", "9000"), ("--host", "::"), ("--host", "unix:/run/helios/a%b.sock")])
def test_systemd_accepts_the_socket_unit_beside_it(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "helios.service").write_text(Printed(capsys, *words).text)
    socket_unit = tmp_path / "helios.socket"
    socket_unit.write_text(Printed(capsys, "--socket", *words).text)
    verified = analyze("verify", socket_unit, tmp_path / "helios.service")
    assert (verified.returncode, verified.stdout) == (0, "")


@needs_systemd
@pytest.mark.parametrize(("device", "most"), [("cpu", 1.4), ("auto", 1.5)])
def test_the_service_is_confined(device: str, most: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 6.4: systemd's own measure, 0 for no exposure to 10; what remains is the network and /proc/meminfo."""
    unit = tmp_path / "helios.service"
    unit.write_text(Printed(capsys, "--device", device).text)
    found = re.search(
        r"Overall exposure level for helios.service: ([\d.]+)", analyze("security", "--offline=yes", unit).stdout
    )
    assert found is not None
    assert float(found[1]) <= most


def test_the_life_of_the_service(capsys: pytest.CaptureFixture[str], program: Path) -> None:
    """Issue 6.4: told when ready, watched, restarted but not for ever, and given time to drain."""
    unit = Printed(capsys, "--drain-timeout", "12.5", "--connection-limit", "10000")
    assert unit.value("ExecStart") == f"{sys.executable} {program} serve --connection-limit 10000 --drain-timeout 12.5"
    assert (unit.value("Type"), unit.value("Restart"), unit.value("KillMode")) == ("notify", "on-failure", "mixed")
    assert int(unit.value("WatchdogSec")) > 0
    assert int(unit.value("StartLimitBurst")) > 0
    assert unit.value("RestartPreventExitStatus") == "2"
    assert int(unit.value("TimeoutStopSec")) > 12.5 + 5
    assert int(unit.value("LimitNOFILE")) > 10_000
    assert unit.value("NoNewPrivileges") == "yes"
    assert unit.value("ProtectSystem") == "strict"
    assert (unit.value("DynamicUser"), unit.value("StateDirectory")) == ("yes", "helios")
    assert unit.value("Environment") == "HELIOS_HOME=%S/helios"


def test_a_user_of_its_own_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    unit = Printed(capsys, "--user", "helios")
    assert (unit.value("User"), unit.values("DynamicUser")) == ("helios", [])


def test_files_of_settings_are_credentials(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Root alone has to be able to read them, and they are read from where the unit puts them."""
    config, keys = tmp_path / "helios.toml", tmp_path / "50% keys"
    config.write_text("port = 9000\n")
    keys.write_text("secret")
    unit = Printed(capsys, "--config", str(config), "--api-key-file", str(keys))
    assert unit.values("LoadCredential") == [f"api_key_file:{tmp_path}/50%% keys", f"config:{config}"]
    assert unit.value("ExecStart").endswith("serve --config %d/config --api-key-file %d/api_key_file")
    assert "secret" not in unit.text


@pytest.mark.parametrize(
    ("words", "capability"),
    [
        (("--port", "443"), "CAP_NET_BIND_SERVICE"),
        (("--grpc-port", "1"), "CAP_NET_BIND_SERVICE"),
        (("--port", "8443"), ""),
        (("--port", "443", "--host", "unix:/run/helios/x"), ""),
    ],
)
def test_only_a_low_port_needs_a_capability(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], capability: str
) -> None:
    unit = Printed(capsys, *words)
    assert unit.value("CapabilityBoundingSet") == unit.value("AmbientCapabilities") == capability
    assert unit.value("PrivateUsers") == ("no" if capability else "yes")


def test_a_model_file_is_named_whole_and_a_name_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my model.gguf").touch()
    assert Printed(capsys, "my model.gguf").value("ExecStart").endswith(f'serve "{tmp_path}/my model.gguf"')
    assert Printed(capsys, "a-name").value("ExecStart").endswith("serve a-name")


def test_a_place_that_the_service_cannot_see_is_mentioned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert Path("/root").is_dir()
    monkeypatch.setattr(sys, "argv", ["/root"])
    assert Printed(capsys).warnings == (
        "helios: /root is where the unit's service cannot look; put it into /opt or /srv\n"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "ListenStream=127.0.0.1:8000"),
        (("--host", "::", "--port", "80"), "ListenStream=[::]:80"),
        (("--host", "[::1]"), "ListenStream=[::1]:8000"),
        (("--host", "unix:/run/a"), "ListenStream=/run/a"),
        (("--host", "unix:/run/a"), "SocketMode=0660"),
        (("--listen-backlog", "5"), "Backlog=5"),
    ],
)
def test_the_socket_unit_holds_the_address(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert line in Printed(capsys, "--socket", *words).text.splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--socket", "--host", "localhost"), "--host 'localhost' is no IP address; a socket unit needs one"),
        (("--socket", "--port", "0"), "--port is 0; a socket unit needs a port of its own"),
        (("two\nlines",), "'two\\nlines' cannot be written into a unit; use a path of printable characters"),
        (("--port", "x"), "--port is 'x'; it must be"),
    ],
)
def test_what_no_unit_can_say_is_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert main(["systemd", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"helios: {message}")
