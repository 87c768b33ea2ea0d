"""The address of the gRPC port: taken before a model is loaded, and handed to the library when there is something to serve.

It knows sockets and certificates, no calls. The library binds for itself, so the place is held by a socket that is bound and not
listening until then.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import grpc

from helios.errors import SettingError
from helios.server.listener import UNIX_PREFIX
from helios.server.tls import server_context
from helios.settings import Settings

_DEFAULT_HOST = "127.0.0.1"


class GrpcAddress:
    """Owns the place until `release`. `credentials` None: plain text."""

    def __init__(self, held: socket.socket, credentials: grpc.ServerCredentials | None) -> None:
        self._held = held
        self.credentials = credentials
        host, self.port = held.getsockname()[:2]
        self.target = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'grpc' if self.credentials is None else 'grpcs'}://{self.target}"

    def release(self) -> None:
        """The place is free for the library to bind."""
        self._held.close()

    def __enter__(self) -> GrpcAddress:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def take_address(settings: Settings, port: int) -> GrpcAddress:
    """`port` at the host of `settings`, with its certificate; SettingError when one of them cannot be had."""
    credentials = _credentials(settings)
    host = settings.grpc_host or (_DEFAULT_HOST if settings.host.startswith(UNIX_PREFIX) else settings.host)
    return GrpcAddress(_bind(host, port), credentials)


def _bind(host: str, port: int) -> socket.socket:
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        held = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(f"--grpc-host {host[:200]!r} is no address of this machine: {reason}") from error
    try:
        # As the library does: connections that have ended keep a port for a minute, and a server may start again sooner.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(f"port {port} on {host} is in use", hint="choose another with --grpc-port") from error
        raise SettingError(
            f"cannot listen on {host} port {port}: {error.strerror}", hint="choose another with --grpc-port"
        ) from error
    return held


def _credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """The server's certificate and key, which HTTP has checked by the same rules."""
    if server_context(settings) is None or settings.tls_key is None or settings.tls_cert is None:
        return None
    pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes())
    authorities = None if settings.tls_client_ca is None else Path(settings.tls_client_ca).read_bytes()
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)
