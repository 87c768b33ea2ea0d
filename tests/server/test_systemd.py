"""A service manager played by the test: it listens for notifications, passes a socket, and sends signals to a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from helios.errors import SettingError
from helios.server.systemd import Notifier, activated_socket
from helios.settings import ServiceManager, service_manager
from tests.server.conftest import raw_chat
from tests.server.test_cancellation import read_until
from tests.server.test_connection import HEALTH, read_all, read_response

ROOT = Path(__file__).parents[2]


class Manager:
    """The notification socket, and the processes that were started under it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = str(directory / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.settimeout(30)
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *words: str, passed: socket.socket | None = None, **variables: str) -> subprocess.Popen[str]:
        """A scripted server; `passed` becomes its descriptor 3, as execve keeps the process id that LISTEN_PID names."""
        command = [sys.executable, "-m", "tests.server.serve_scripted", str(self.directory), "drain_timeout=5", *words]
        environment = {**os.environ, "NOTIFY_SOCKET": self.address, **variables}
        if passed is not None:
            shell = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&0 0</dev/null'
            command = ["sh", "-c", shell, "sh", *command]
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=passed if passed is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def next_message(self) -> str:
        return self.socket.recv(4096).decode()

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()
        self.socket.close()


@pytest.fixture
def manager() -> Iterator[Manager]:
    with TemporaryDirectory(prefix="helios-") as directory:
        playing = Manager(Path(directory))
        yield playing
        playing.close()


def url_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert " at " in line, child.communicate()
    return line.rpartition(" at ")[2].strip()


def connect(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30)


# -- a whole life


def test_a_service_says_when_it_is_ready_and_when_it_stops(manager: Manager) -> None:
    """Issue 6.4: ready is said when requests are answered and not before; exit status 0 after SIGTERM."""
    child = manager.start("port=0")
    message = manager.next_message()
    url = url_of(child)
    assert message == f"READY=1\nSTATUS=serving scripted-1b at {url}"
    assert httpx.get(url + "/ready").status_code == 200
    child.send_signal(signal.SIGTERM)
    assert manager.next_message().startswith("STOPPING=1\n")
    _, said = child.communicate(timeout=30)
    assert (child.returncode, said) == (0, "")


def test_sigterm_lets_open_answers_finish_and_takes_no_more(manager: Manager) -> None:
    """HTTP-4, research item 47: a request that is being sent is still answered, with the reason; nobody new gets in."""
    child = manager.start("port=0", "drain_timeout=20")
    url = url_of(child)
    with connect(url) as slow, connect(url) as late, connect(url) as idle:
        slow.sendall(raw_chat(stream=True, messages=[{"role": "user", "content": "slow"}]))
        read_until(slow, b"role")
        late.sendall(raw_chat()[:-1])
        idle.sendall(HEALTH)
        read_response(idle, bytearray())
        child.send_signal(signal.SIGTERM)
        assert idle.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(url)
        late.sendall(raw_chat()[-1:])
        answer = read_all(late)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After" in answer
        assert b"onnection: close" in answer
        assert child.poll() is None
        slow.close()
        _, said = child.communicate(timeout=30)
    assert child.returncode == 0, said
    assert "Traceback" not in said


def test_answers_that_do_not_finish_are_dropped_at_the_limit(manager: Manager) -> None:
    """HTTP-4."""
    child = manager.start("port=0", "drain_timeout=0.3")
    with connect(url_of(child)) as slow:
        slow.sendall(raw_chat(stream=True, messages=[{"role": "user", "content": "slow"}]))
        read_until(slow, b"role")
        child.send_signal(signal.SIGTERM)
        assert b"[DONE]" not in read_all(slow)
    assert child.wait(30) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_there(manager: Manager, second: signal.Signals) -> None:
    child = manager.start("port=0", "drain_timeout=3600")
    with connect(url_of(child)) as slow:
        slow.sendall(raw_chat(stream=True, messages=[{"role": "user", "content": "slow"}]))
        read_until(slow, b"role")
        child.send_signal(signal.SIGTERM)
        assert manager.next_message().startswith("READY=1")
        assert manager.next_message().startswith("STOPPING=1")  # the first was taken
        child.send_signal(second)
        assert child.wait(30) == 1


# -- watchdog


def test_the_watchdog_is_fed_while_the_worker_lives(manager: Manager) -> None:
    """Issue 6.4: three times within its time, and not once the worker is dead."""
    child = manager.start("port=0", WATCHDOG_USEC="150000")
    url_of(child)
    assert manager.next_message().startswith("READY=1")
    for _ in range(5):
        assert manager.next_message() == "WATCHDOG=1"
    (manager.directory / "broken").touch()
    manager.socket.settimeout(0.5)
    fed = iter(manager.next_message, None)
    with pytest.raises(TimeoutError):
        deque(islice(fed, 40))  # more than wait in the socket


def test_a_watchdog_of_another_process_is_not_fed(manager: Manager) -> None:
    url_of(manager.start("port=0", WATCHDOG_USEC="30000", WATCHDOG_PID="1"))
    assert manager.next_message().startswith("READY=1")
    manager.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        manager.next_message()


# -- socket activation


def test_a_passed_socket_is_served_with_what_waits_in_it(manager: Manager) -> None:
    """Clients that came before the process are answered; the socket comes before --host and --port."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port), timeout=30)
        early.sendall(HEALTH)
        child = manager.start("host=192.0.2.1", "port=1", passed=held)
        assert url_of(child) == f"http://127.0.0.1:{port}"
        assert read_response(early, bytearray())[0] == 200
        early.close()
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
        socket.create_connection(("127.0.0.1", port)).close()  # the manager still holds it


def test_the_file_of_a_passed_socket_stays(manager: Manager) -> None:
    path = manager.directory / "api.sock"
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(path))
        held.listen()
        child = manager.start(passed=held)
        assert url_of(child) == f"unix:{path}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://helios/health").status_code == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    assert path.exists()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_passed_socket_that_does_not_listen_is_one_line(manager: Manager, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as held:
        held.bind(("127.0.0.1", 0))
        child = manager.start("port=0", passed=held)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 1
    assert said == "the service manager passes a socket that does not listen; give one ListenStream=\n"


def test_several_passed_sockets_are_refused() -> None:
    with pytest.raises(SettingError, match="passes 2 sockets; give one ListenStream="):
        activated_socket(ServiceManager(None, None, 2))


# -- without one, and with one that has gone


def test_without_a_service_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"):
        monkeypatch.delenv(name, raising=False)
    none = service_manager()
    assert none == ServiceManager(None, None, 0)
    assert activated_socket(none) is None
    with Notifier(none) as notifier:
        notifier.ready("x")
        notifier.stopping()
        asyncio.run(notifier.feed_watchdog(lambda: True))  # returns


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LISTEN_FDS": "1", "LISTEN_PID": "1"}, ServiceManager(None, None, 0)),
        ({"LISTEN_FDS": "1"}, ServiceManager(None, None, 0)),
        ({"LISTEN_FDS": "x", "LISTEN_PID": "own"}, ServiceManager(None, None, 0)),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "own"}, ServiceManager(None, None, 2)),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "own"}, ServiceManager(None, 1.5, 0)),
        ({"WATCHDOG_USEC": "-5"}, ServiceManager(None, None, 0)),
        ({"NOTIFY_SOCKET": ""}, ServiceManager(None, None, 0)),
    ],
)
def test_variables_for_another_process_are_not_ours(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: ServiceManager
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(os.getpid()) if value == "own" else value)
    assert service_manager() == expected


def test_an_abstract_address_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0helios-test-{os.getpid()}")
        listening.settimeout(10)
        with Notifier(ServiceManager(f"@helios-test-{os.getpid()}", None, 0)) as notifier:
            notifier.stopping()
        assert listening.recv(100).startswith(b"STOPPING=1")


def test_a_service_manager_that_has_gone_is_mentioned_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Notifier(ServiceManager(str(tmp_path / "gone"), None, 0)) as notifier:
        notifier.ready("x")
        notifier.stopping()
    assert len(caplog.records) == 1
