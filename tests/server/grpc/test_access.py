"""Who may call, and over what: API keys, certificates, client certificates, addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helios.errors import SettingError
from helios.server.grpc.address import take_address
from helios.server.grpc.schema import control_pb2
from helios.settings import Settings
from tests.server.certificates import make_certificate
from tests.server.grpc.conftest import DEADLINE_S, Client, RunningGrpc
from tests.server.scripted_engine import ScriptedEngine


@pytest.fixture
def answering(scripted: ScriptedEngine) -> ScriptedEngine:
    scripted.answer = "Hello"
    return scripted


def key_file(directory: Path) -> dict[str, str]:
    path = directory / "keys"
    path.write_text("first-key\nsecond-key\n")
    path.chmod(0o600)
    return {"api_key_file": str(path)}


def test_with_keys_a_call_without_one_is_unauthenticated(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path
) -> None:
    """GRPC-4: the keys are HTTP's, in the same fields; health stays open to supervisors."""
    served = start(answering, **key_file(tmp_path))
    for client in (served.client(), served.client(authorization="Bearer third-key")):
        assert client.refused()[0] is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as caught:
            client.control("GetModelInfo", control_pb2.ModelInfo)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for client in (served.client(authorization="Bearer first-key"), served.client(x_api_key="second-key")):
        assert client.generate().outputs.text == "Hello"
    stub = health_pb2_grpc.HealthStub(served.client().channel)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S).status == 1


def test_keys_may_part_caches(answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path) -> None:
    """--key-salts: prefixes and sessions of different keys are apart."""
    served = start(answering, key_salts=True, **key_file(tmp_path))
    for key in ("first-key", "second-key", "second-key"):
        served.client(authorization=f"Bearer {key}").generate(session_id="s", kv={"cache_salt": "c"})
    first, second, again = (generation.request for generation in answering.generations)
    assert first.cache_salt != second.cache_salt == again.cache_salt
    assert first.retention != second.retention == again.retention


def secure_client(served: RunningGrpc, authority: Path, pair: tuple[Path, Path] | None = None) -> Client:
    key, certificate = (None, None) if pair is None else (path.read_bytes() for path in pair)
    credentials = grpc.ssl_channel_credentials(authority.read_bytes(), key, certificate)
    channel = grpc.secure_channel(served.target, credentials)
    served.channels.append(channel)
    return Client(channel, served.engine)


def test_a_certificate_makes_it_tls(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path
) -> None:
    """GRPC-4: the server's own certificate; plain text is not spoken then."""
    ours, other = make_certificate(tmp_path / "ours"), make_certificate(tmp_path / "other")
    served = start(answering, **ours.settings)
    assert secure_client(served, ours.certificate).generate().outputs.text == "Hello"
    for client in (served.client(), secure_client(served, other.certificate)):
        assert client.refused()[0] is grpc.StatusCode.UNAVAILABLE


def test_authorities_make_it_mutual(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path
) -> None:
    """GRPC-4: --tls-client-ca; a client without a certificate of theirs is not let in."""
    ours, theirs, other = (make_certificate(tmp_path / name) for name in ("ours", "theirs", "other"))
    served = start(answering, **ours.settings, tls_client_ca=str(theirs.certificate))
    pair = theirs.key, theirs.certificate
    assert secure_client(served, ours.certificate, pair).generate().outputs.text == "Hello"
    strangers = (None, (other.key, other.certificate))
    for stranger in strangers:
        assert secure_client(served, ours.certificate, stranger).refused()[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost"])
def test_the_address_is_where_it_was_asked_for(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], host: str
) -> None:
    """GRPC-1: a port of its own, also beside a socket file."""
    served = start(answering, grpc_host=host)
    assert served.client().generate().outputs.text == "Hello"


def test_beside_a_socket_file_it_is_this_machines_own(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc], tmp_path: Path
) -> None:
    served = start(answering, host=f"unix:{tmp_path}/s")
    assert served.target.startswith("127.0.0.1:")
    assert served.client().generate().outputs.text == "Hello"


def test_a_port_in_use_is_found_before_anything_is_loaded() -> None:
    """The message names the flag that helps."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match="--grpc-port"):
            take_address(Settings(), port)


def test_a_port_on_which_connections_have_just_ended_is_free(
    answering: ScriptedEngine, start: Callable[..., RunningGrpc]
) -> None:
    """A server that is started again where its predecessor has closed them."""
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            before.accept()[0].close()
            assert connection.recv(1) == b""
    assert start(answering, grpc_port=port).client().generate().outputs.text == "Hello"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a b"])
def test_a_host_that_is_none_is_a_wrong_setting(host: str) -> None:
    with pytest.raises(SettingError, match="--grpc-host"):
        take_address(Settings(grpc_host=host), 0)


def test_certificates_that_cannot_be_used_are_a_wrong_setting(tmp_path: Path) -> None:
    ours = make_certificate(tmp_path / "ours")
    settings: list[dict[str, Any]] = [
        {"tls_cert": str(ours.certificate)},
        {"tls_client_ca": str(ours.certificate)},
        {**ours.settings, "tls_client_ca": str(tmp_path / "none")},
        {**ours.settings, "tls_client_ca": str(ours.key)},
    ]
    for each in settings:
        with pytest.raises(SettingError):
            take_address(Settings(**each), 0)
