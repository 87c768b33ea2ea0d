"""HTTPS with stock clients, slow and wrong clients of it, and what is said about files that cannot be used."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from helios.errors import SettingError
from helios.server.listener import bind
from helios.settings import Settings
from tests.server.certificates import Certificate, make_certificate
from tests.server.conftest import RunningServer, has_something, raw_chat, wait_until
from tests.server.scripted_engine import ScriptedEngine
from tests.server.test_connection import HEALTH, read_response


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def server(start_server: Callable[..., RunningServer], certificate: Certificate) -> RunningServer:
    return start_server(**certificate.settings)


def connect(
    server: RunningServer, certificate: Certificate, *, receive_buffer_bytes: int | None = None
) -> ssl.SSLSocket:
    connection = server.connect(receive_buffer_bytes)
    secure = certificate.client_context().wrap_socket(connection, server_hostname="127.0.0.1")
    server.sockets.append(secure)
    return secure


def test_stock_clients_speak_https(server: RunningServer, certificate: Certificate) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    with httpx.Client(verify=certificate.client_context()) as client:
        assert client.get(server.url + "/health").json() == {"status": "ok"}
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", http_client=client) as api:
            message = [{"role": "user", "content": "hi"}]
            answer = api.chat.completions.create(model="scripted", messages=message)  # type: ignore[call-overload]
            assert answer.choices[0].message.content == "Hello world"
            chunks = api.chat.completions.create(model="scripted", messages=message, stream=True)  # type: ignore[call-overload]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"


def test_a_client_that_does_not_know_the_certificate_refuses_it(server: RunningServer) -> None:
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(server.url + "/health")
    assert server.engine.n_admitted == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the very versions that must not work
def test_nothing_older_than_tls_1_2_is_spoken(server: RunningServer, certificate: Certificate) -> None:
    for version, is_spoken in (
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ):
        context = certificate.client_context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        try:
            with context.wrap_socket(server.connect(), server_hostname="localhost") as secure:
                assert secure.version() == version.name.replace("v1_", "v1.")
            was_spoken = True
        except (ssl.SSLError, ConnectionError):
            was_spoken = False
        assert was_spoken is is_spoken


def test_http_1_1_is_what_is_negotiated(server: RunningServer, certificate: Certificate) -> None:
    context = certificate.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(server.connect(), server_hostname="localhost") as secure:
        assert secure.selected_alpn_protocol() == "http/1.1"


def test_who_does_not_shake_hands_is_dropped(
    start_server: Callable[..., RunningServer], certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """A silent client, half a hello, and one who speaks plainly; others are served, and nothing is logged of them."""
    server = start_server(header_timeout=600, **certificate.settings)
    with server.connect() as silent, server.connect() as half, server.connect() as plain:
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        plain.sendall(HEALTH)
        secure = connect(server, certificate)
        secure.sendall(HEALTH)
        assert read_response(secure, bytearray())[0] == 200
        for dropped in (silent, half, plain):
            server.pass_time_until(lambda dropped=dropped: has_something(dropped), 600)
            assert not _rest(dropped).startswith(b"HTTP")
    assert not caplog.records


def test_handshakes_count_as_connections(start_server: Callable[..., RunningServer], certificate: Certificate) -> None:
    """--connection-limit, and who never begins one makes room for who does."""
    server = start_server(connection_limit=2, **certificate.settings)
    silent = [server.connect() for _ in range(2)]
    server.engine.answer = None
    for index in range(2):
        connect(server, certificate).sendall(raw_chat())
        server.generation(index)
        assert _rest(silent[index]) == b""
    late = connect(server, certificate)
    assert read_response(late, bytearray())[0] == 503, "answers make no room"


def test_a_request_may_come_with_the_end_of_the_handshake(server: RunningServer, certificate: Certificate) -> None:
    """In one piece with it, and so before anybody waits for a request."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificate.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    connection = server.connect()
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            connection.sendall(outgoing.read())
            incoming.write(connection.recv(1 << 16))
    client.write(HEALTH)
    connection.sendall(outgoing.read())
    received = b""
    while not received.endswith(b'{"status":"ok"}'):
        incoming.write(connection.recv(1 << 16))
        with contextlib.suppress(ssl.SSLWantReadError):
            received += client.read()


def _rest(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_a_refusal_arrives_before_the_end(server: RunningServer, certificate: Certificate) -> None:
    secure = connect(server, certificate)
    secure.sendall(b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 100_000)
    status, headers, body = read_response(secure, bytearray())
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(body)["error"]["code"] == "body_too_large"


def test_a_client_that_goes_is_noticed(server: RunningServer, certificate: Certificate) -> None:
    """HTTP-2, with and without a farewell."""
    server.engine.answer = None
    for index, leave in enumerate((ssl.SSLSocket.unwrap, ssl.SSLSocket.close)):
        secure = connect(server, certificate)
        secure.sendall(raw_chat(stream=True))
        generation = server.generation(index)
        generation.give(server.engine.tokenizer.encode("a", allow_special=False)[0])
        secure.recv(1 << 16)
        secure.settimeout(0.5)
        try:
            leave(secure)
        except (ssl.SSLError, TimeoutError, OSError):
            secure.close()
        wait_until(lambda generation=generation: generation.is_cancelled)
    wait_until(lambda: server.engine.n_admitted == 0)


def test_a_reader_that_never_reads_is_dropped(
    start_server: Callable[..., RunningServer], certificate: Certificate, engine: ScriptedEngine
) -> None:
    """Research 1.5b, through the buffers of TLS."""
    engine.answer, engine.logprob = "x" * 2000, -0.5
    server = start_server(send_buffer=4 << 10, stall_timeout=600, **certificate.settings)
    secure = connect(server, certificate, receive_buffer_bytes=4096)
    secure.sendall(raw_chat(logprobs=True, top_logprobs=2))  # more than 300 kB
    generation = server.generation()
    wait_until(lambda: generation.n_taken > 2000)
    assert engine.n_admitted == 1
    server.pass_time_until(lambda: engine.n_admitted == 0, 600)
    assert len(_rest(secure)) < 250_000


def test_a_slow_reader_loses_nothing(
    start_server: Callable[..., RunningServer], certificate: Certificate, engine: ScriptedEngine
) -> None:
    engine.answer, engine.logprob = "y" * 2000, -0.5
    server = start_server(send_buffer=4 << 10, **certificate.settings)
    secure = connect(server, certificate, receive_buffer_bytes=4096)
    secure.sendall(raw_chat(logprobs=True, top_logprobs=2))
    generation = server.generation()
    wait_until(lambda: generation.has_ended)
    _, _, body = read_response(secure, bytearray())
    assert len(body) > 200_000
    assert json.loads(body)["choices"][0]["message"]["content"] == "y" * 2000


def test_shutdown_ends_secure_connections(start_server: Callable[..., RunningServer], certificate: Certificate) -> None:
    """HTTP-4: an idle client that never answers the farewell does not hold it up."""
    server = start_server(drain_timeout=0.2, **certificate.settings)
    secure = connect(server, certificate)
    secure.sendall(HEALTH)
    assert read_response(secure, bytearray())[0] == 200
    server.stop()
    assert _rest(secure) == b""


# -- files


@pytest.fixture
def files(tmp_path: Path, certificate: Certificate) -> dict[str, str]:
    other = make_certificate(tmp_path / "other")
    locked = make_certificate(tmp_path / "locked", b"secret")
    (tmp_path / "text.pem").write_text("this is no certificate")
    (tmp_path / "empty.pem").write_bytes(b"")
    return {
        "good": str(certificate.certificate),
        "key": str(certificate.key),
        "other key": str(other.key),
        "locked": str(locked.certificate),
        "locked key": str(locked.key),
        "text": str(tmp_path / "text.pem"),
        "empty": str(tmp_path / "empty.pem"),
        "missing": str(tmp_path / "missing.pem"),
        "directory": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("certificate_name", "key_name", "message"),
    [
        ("good", None, "--tls-cert is given and --tls-key is not"),
        (None, "key", "--tls-key is given and --tls-cert is not"),
        ("missing", "key", "--tls-cert .*missing.pem cannot be read: No such file or directory"),
        ("good", "missing", "--tls-key .*missing.pem cannot be read: No such file or directory"),
        ("directory", "key", "--tls-cert .* cannot be read: Is a directory"),
        ("good", "other key", "--tls-key .* is not the key of --tls-cert"),
        ("locked", "locked key", "--tls-key .* is encrypted; give one without a password"),
        ("text", "key", "are no PEM certificate and key"),
        ("empty", "key", "are no PEM certificate and key"),
        ("good", "text", "are no PEM certificate and key"),
        ("key", "good", "are no PEM certificate and key"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    files: dict[str, str], certificate_name: str | None, key_name: str | None, message: str
) -> None:
    """And the address is not taken."""
    given = {"tls_cert": certificate_name, "tls_key": key_name}
    settings = Settings(port=0, **{name: files[value] for name, value in given.items() if value})
    n_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(SettingError, match=message) as refusal:
        bind(settings)
    assert "\n" not in str(refusal.value)
    assert len(os.listdir("/proc/self/fd")) == n_before  # noqa: PTH208
