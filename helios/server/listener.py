"""The place where a server can be reached: a TCP address or a socket file, taken before a model is loaded.

It knows addresses and no HTTP. A listener is bound and not listening yet, so that a port in use is found at once and nobody
connects to a server that cannot answer; closing it removes the socket file that it made.
"""

from __future__ import annotations

import errno
import socket
import ssl
import stat
from contextlib import suppress
from pathlib import Path

from helios.errors import SettingError
from helios.owner import Owner
from helios.server.path_lock import PathLock
from helios.server.systemd import activated_socket
from helios.server.tls import server_context
from helios.settings import Settings, service_manager

UNIX_PREFIX = "unix:"
# Owner and group: a reverse proxy of the same group may connect, nobody else.
_SOCKET_FILE_MODE = 0o660
# A peer that vanished without a word is found in about a minute and a half.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Listener(Owner):
    """Owns a bound socket and, where we made one, its file. Accepted sockets inherit the options that are set on it."""

    def __init__(
        self,
        bound: socket.socket,
        tls: ssl.SSLContext | None,
        path: Path | None = None,
        lock: PathLock | None = None,
    ) -> None:
        self.socket = bound
        self.tls = tls
        self._path = path
        self._file_id = _file_id(path) if path else None
        self._lock = lock

    @property
    def url(self) -> str:
        """Where clients find it; the path of a socket file as `unix:PATH`."""
        if self.socket.family == socket.AF_UNIX:
            return f"{UNIX_PREFIX}{self.socket.getsockname()}"
        scheme = "http" if self.tls is None else "https"
        host, port = self.socket.getsockname()[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def listen_error(self, error: OSError) -> SettingError:
        """What the user is told when the address was taken and cannot be listened on."""
        if self.socket.family == socket.AF_UNIX:
            return _path_error(error, self.socket.getsockname())
        host, port = self.socket.getsockname()[:2]
        return _address_error(error, host, port)

    def close(self) -> None:
        """Also remove the socket file, unless another server has put its own there."""
        self.socket.close()
        if self._path is not None and self._file_id is not None and _file_id(self._path) == self._file_id:
            self._path.unlink()
            self._file_id = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def bind(settings: Settings) -> Listener:
    """Take the address of `settings` with its certificate; SettingError when one of them cannot be had.

    A socket that the service manager passes comes before `--host` and `--port`, and its file is not ours to remove.
    """
    tls = server_context(settings)
    passed = activated_socket(service_manager())
    if passed is not None:
        listener = Listener(passed, tls)
    elif settings.host.startswith(UNIX_PREFIX):
        path = Path(settings.host.removeprefix(UNIX_PREFIX))
        lock = PathLock(path)
        try:
            listener = Listener(_bind_path(path), tls, path, lock)
        except BaseException:
            lock.close()
            raise
    else:
        listener = Listener(_bind_address(settings.host, settings.port), tls)
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
    return listener


def _bind_address(host: str, port: int) -> socket.socket:
    """A TCP socket. `::` takes IPv4 as well; an IPv6 address may be written in brackets."""
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(f"--host {host[:200]!r} is no address of this machine: {reason}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _keep_alive(bound)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _address_error(error, host, port) from error
    return bound


def _address_error(error: OSError, host: str, port: int) -> SettingError:
    if error.errno == errno.EADDRINUSE:
        return SettingError(f"port {port} on {host} is in use", hint="choose another with --port")
    if error.errno == errno.EACCES:
        return SettingError(
            f"port {port} on {host} is not allowed to this user", hint="choose one above 1023 with --port"
        )
    return SettingError(
        f"cannot listen on {host} port {port}: {error.strerror}", hint="choose another with --host or --port"
    )


def _keep_alive(bound: socket.socket) -> None:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # each system has its own
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_path(path: Path) -> socket.socket:
    """A unix socket at `path`. A socket file that nobody listens on is replaced, anything else there is left alone."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        bound.bind(str(path))
        path.chmod(_SOCKET_FILE_MODE)  # nobody can connect before listen(), so there is no moment between
    except OSError as error:
        bound.close()
        raise _path_error(error, path) from error
    except SettingError:
        bound.close()
        raise
    return bound


def _path_error(error: OSError, path: Path | str) -> SettingError:
    reason = error.strerror or error  # a path that is too long has no number
    return SettingError(f"cannot listen on {UNIX_PREFIX}{path}: {reason}", hint="choose another with --host")


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SettingError(f"{path} is there and is no socket", hint="choose another with --host")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                path.unlink()
            return
        except BlockingIOError:
            pass  # its queue is full, so somebody listens
    raise SettingError(f"{UNIX_PREFIX}{path} is in use", hint="choose another with --host")


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
