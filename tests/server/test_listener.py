"""Addresses: IPv4, IPv6, both, socket files; what is there already; what is left behind."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import openai
import pytest

from helios.errors import SettingError
from helios.server.listener import bind
from helios.settings import Settings
from tests.server.conftest import RunningServer
from tests.server.test_connection import HEALTH, read_response


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """A short one: the path of a unix socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="helios-") as directory:
        yield Path(directory) / "api.sock"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_served(start_server: Callable[..., RunningServer], host: str) -> None:
    server = start_server(host=host)
    assert server.url.startswith("http://[::1]:")
    assert httpx.get(server.url + "/health").status_code == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


@needs_ipv6
def test_the_ipv6_wildcard_takes_ipv4_as_well(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(host="::")
    for url in (f"http://[::1]:{server.port}", f"http://127.0.0.1:{server.port}"):
        assert httpx.get(url + "/health").status_code == 200


def test_names_are_addresses(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(host="localhost")
    assert httpx.get(f"http://localhost:{server.port}/health").status_code == 200


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "::zz", "a" * 70, "[127.0.0.1"])
def test_what_is_no_address_here_is_one_line(host: str) -> None:
    with pytest.raises(SettingError) as refusal:
        bind(Settings(host=host, port=0))
    assert "\n" not in str(refusal.value)
    assert host in str(refusal.value)


def test_a_port_in_use_is_said_at_once(server: RunningServer) -> None:
    with pytest.raises(SettingError, match=f"port {server.port} on 127.0.0.1 is in use"):
        bind(Settings(port=server.port))


def test_a_port_that_was_just_left_can_be_taken(start_server: Callable[..., RunningServer]) -> None:
    """Connections in TIME_WAIT do not keep a restarted server out."""
    first = start_server()
    connection = first.connect()
    connection.sendall(HEALTH)
    read_response(connection, bytearray())
    first.stop()
    bind(Settings(port=first.port)).close()


def test_nobody_connects_before_the_server_listens() -> None:
    with bind(Settings(port=0)) as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(listener.socket.getsockname())


# -- socket files


def test_a_socket_file_is_served(start_server: Callable[..., RunningServer], socket_path: Path) -> None:
    server = start_server(host=f"unix:{socket_path}")
    assert server.url == f"unix:{socket_path}"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket_path))) as client:
        assert client.get("http://helios/health").status_code == 200
        with openai.OpenAI(base_url="http://helios/v1", api_key="none", http_client=client) as api:
            message = [{"role": "user", "content": "hi"}]
            chunks = api.chat.completions.create(model="scripted", messages=message, stream=True)  # type: ignore[call-overload]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"


def test_a_socket_file_is_for_its_owner_and_group(
    start_server: Callable[..., RunningServer], socket_path: Path
) -> None:
    start_server(host=f"unix:{socket_path}")
    mode = socket_path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660


def test_a_socket_file_goes_with_its_server(start_server: Callable[..., RunningServer], socket_path: Path) -> None:
    server = start_server(host=f"unix:{socket_path}")
    server.stop()
    assert not socket_path.exists()


def test_a_stale_socket_file_is_replaced(start_server: Callable[..., RunningServer], socket_path: Path) -> None:
    """What a killed server leaves behind."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path))
    server = start_server(host=f"unix:{socket_path}")
    connection = server.connect()
    connection.sendall(HEALTH)
    assert read_response(connection, bytearray())[0] == 200


def test_a_socket_file_in_use_is_left_alone(start_server: Callable[..., RunningServer], socket_path: Path) -> None:
    server = start_server(host=f"unix:{socket_path}")
    with pytest.raises(SettingError, match=r"unix:.*api\.sock is in use"):
        bind(Settings(host=f"unix:{socket_path}"))
    connection = server.connect()
    connection.sendall(HEALTH)
    assert read_response(connection, bytearray())[0] == 200


def test_another_kind_of_file_is_left_alone(socket_path: Path) -> None:
    socket_path.write_text("precious")
    with pytest.raises(SettingError, match="is there and is no socket"):
        bind(Settings(host=f"unix:{socket_path}"))
    assert socket_path.read_text() == "precious"


def test_a_link_to_a_socket_is_no_socket(socket_path: Path) -> None:
    """Nobody can have us remove a file elsewhere."""
    target = socket_path.with_name("target.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(target))
    socket_path.symlink_to(target)
    with pytest.raises(SettingError, match="is there and is no socket"):
        bind(Settings(host=f"unix:{socket_path}"))
    assert target.exists()


def test_the_socket_file_of_a_successor_is_not_removed(socket_path: Path) -> None:
    """Whoever has put it there."""
    listener = bind(Settings(host=f"unix:{socket_path}"))
    socket_path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(socket_path))
        listener.close()
        assert socket_path.exists()


@pytest.mark.parametrize("path", ["", "missing/api.sock", "x" * 200])
def test_a_path_that_cannot_be_is_one_line(socket_path: Path, path: str) -> None:
    n_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(SettingError, match=r"cannot listen on unix:|is there and is no socket") as refusal:
        bind(Settings(host=f"unix:{socket_path.parent / path}"))
    assert "\n" not in str(refusal.value)
    assert len(os.listdir("/proc/self/fd")) == n_before  # noqa: PTH208


def test_two_servers_that_both_load_do_not_share_a_socket_file(tmp_path: Path) -> None:
    """The first is bound and does not listen yet; its file looks as if its owner were dead."""
    path = tmp_path / "s"
    with bind(Settings(host=f"unix:{path}")), pytest.raises(SettingError, match="is in use"):
        bind(Settings(host=f"unix:{path}"))
    assert list(tmp_path.iterdir()) == []
    with bind(Settings(host=f"unix:{path}")) as again:
        assert again.url == f"unix:{path}"


def test_a_killed_servers_lock_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / ".s.lock").touch()
    with bind(Settings(host=f"unix:{tmp_path / 's'}")):
        assert {path.name for path in tmp_path.iterdir()} == {"s", ".s.lock"}
    assert list(tmp_path.iterdir()) == []
