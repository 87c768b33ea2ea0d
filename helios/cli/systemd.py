"""`helios systemd [MODEL]`: print a unit that runs this program as a hardened service, or the socket unit beside it.

It knows systemd's directives and the settings, and touches nothing. Every file of settings that the command line names is handed to
the service as a credential, so that only root has to be able to read it; the service can do what serving needs and no more.
"""

from __future__ import annotations

import argparse
import ipaddress
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helios.cli.model import add_settings, load_settings
from helios.errors import SettingError
from helios.settings import Settings, setting_names

_N_OTHER_FILES = 256  # descriptors of the process that are no connections
_DEVICE_DRAIN_S = 30  # what may pass between the end of the drain and the end of the process
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # by ProtectHome and PrivateTmp
_UNIX_PREFIX = "unix:"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="what `helios serve` is to serve")
    parser.add_argument("--socket", action="store_true", help="print the socket unit instead; it holds the address")
    parser.add_argument("--user", metavar="NAME", help="run as this user (one made for the service while it runs)")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments)
    if arguments.socket:
        print(socket_unit(settings), end="")
        return 0
    program = (Path(sys.executable), Path(sys.argv[0]).resolve())
    flags = {name: value for name in setting_names() if (value := getattr(arguments, name)) is not None}
    print(service_unit(program, arguments.model, arguments.config, flags, settings, arguments.user), end="")
    for path in (*program, Path(arguments.model or "/").absolute()):
        if path.exists() and any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            print(f"helios: {path} is where the unit's service cannot look; put it into /opt or /srv", file=sys.stderr)
    return 0


def service_unit(
    program: Sequence[Path],
    model: str | None,
    config: Path | None,
    flags: Mapping[str, object],
    settings: Settings,
    user: str | None,
) -> str:
    """The service unit. `flags` are the settings that its command line gives, `settings` all that hold then."""
    files = {name: Path(str(value)) for name, value in flags.items() if Settings.RULES[name].is_file}
    if config is not None:
        files["config"] = config
    words = [*map(str, program), "serve", *_model_words(model)]
    for name, value in {"config": config, **flags}.items():
        if value is not None:
            words += _flag_words(name, f"%d/{name}" if name in files else value)
    command = " ".join(word if word.startswith("%d/") else _quoted(word) for word in words)
    sections = {
        "Unit": [
            "Description=Helios, a language-model server",
            "Wants=network-online.target",
            "After=network-online.target nvidia-persistenced.service",
            "StartLimitIntervalSec=10min",
            "StartLimitBurst=5",
        ],
        "Service": [
            "Type=notify",
            f"ExecStart={command}",
            *(f"LoadCredential={name}:{_escaped(str(path.absolute()))}" for name, path in files.items()),
            *_life(settings),
            *_confinement(settings, user),
        ],
        "Install": ["WantedBy=multi-user.target"],
    }
    return _unit(sections)


def socket_unit(settings: Settings) -> str:
    """The socket unit: connections wait in it while the service starts, and start it."""
    is_path = settings.host.startswith(_UNIX_PREFIX)
    listening = [
        f"ListenStream={_escaped(settings.host.removeprefix(_UNIX_PREFIX)) if is_path else _address(settings)}",
        f"Backlog={settings.listen_backlog}",
    ]
    for_paths = ["SocketMode=0660"]
    for_addresses = [
        "NoDelay=yes",
        "KeepAlive=yes",
        "KeepAliveTimeSec=30",
        "KeepAliveIntervalSec=15",
        "KeepAliveProbes=4",
    ]
    sections = {
        "Unit": ["Description=The address of Helios, a language-model server"],
        "Socket": [*listening, *(for_paths if is_path else for_addresses)],
        "Install": ["WantedBy=sockets.target"],
    }
    return _unit(sections)


def _life(settings: Settings) -> Iterator[str]:
    """How the service starts, is watched and ends."""
    yield "TimeoutStartSec=30min"  # the first start may download and prepare a model
    yield "WatchdogSec=30"
    yield "Restart=on-failure"
    yield "RestartSec=2"
    yield "RestartPreventExitStatus=2"  # a wrong setting stays wrong
    yield f"TimeoutStopSec={math.ceil(settings.drain_timeout) + _DEVICE_DRAIN_S}"
    yield "KillMode=mixed"
    yield f"LimitNOFILE={settings.connection_limit + _N_OTHER_FILES}"


def _confinement(settings: Settings, user: str | None) -> Iterator[str]:
    """What the service may touch."""
    yield "DynamicUser=yes" if user is None else f"User={user}"
    yield "StateDirectory=helios"
    yield "StateDirectoryMode=0700"
    yield "RuntimeDirectory=helios"
    yield "WorkingDirectory=%S/helios"
    yield "Environment=HELIOS_HOME=%S/helios"
    yield "UMask=0077"
    ports = [0 if settings.host.startswith(_UNIX_PREFIX) else settings.port, settings.grpc_port or 0]
    capability = "CAP_NET_BIND_SERVICE" if any(0 < port < 1024 for port in ports) else ""
    yield f"CapabilityBoundingSet={capability}"
    yield f"AmbientCapabilities={capability}"
    yield f"PrivateUsers={'no' if capability else 'yes'}"  # a capability of a user namespace opens no port of the host
    yield from _DEVICES[settings.device in ("cpu", "simt")]
    yield from _FIXED


# By whether there is no device but the processor. CUDA's driver makes code at run time, so memory may become executable for it.
_DEVICES = {
    True: ("PrivateDevices=yes", "MemoryDenyWriteExecute=yes"),
    False: ("DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"),
}
# /proc/meminfo is read, so ProcSubset=pid is not among them.
_FIXED = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "KeyringMode=private",
    "LockPersonality=yes",
    "RemoveIPC=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    "SystemCallErrorNumber=EPERM",
)


def _unit(sections: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def _model_words(model: str | None) -> list[str]:
    """A file by its absolute path, since the service works elsewhere; a name as it is."""
    if model is None:
        return []
    return [str(Path(model).absolute()) if Path(model).exists() else model]


def _flag_words(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    return [word for one in (value if isinstance(value, list) else [value]) for word in (flag, str(one))]


def _address(settings: Settings) -> str:
    """An address with its port, as ListenStream= wants it."""
    try:
        address = ipaddress.ip_address(settings.host.strip("[]"))
    except ValueError:
        raise SettingError(f"--host {settings.host!r} is no IP address", hint="a socket unit needs one") from None
    if settings.port == 0:
        raise SettingError("--port is 0", hint="a socket unit needs a port of its own")
    return f"[{address}]:{settings.port}" if address.version == 6 else f"{address}:{settings.port}"


def _quoted(word: str) -> str:
    """One word of a command line (systemd.service(5), "Command lines")."""
    escaped = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    is_plain = escaped == word and word and not any(character.isspace() or character in "';" for character in word)
    return word if is_plain else f'"{escaped}"'


def _escaped(text: str) -> str:
    """Text in which systemd finds no specifier. SettingError for what no unit can say."""
    if any(not character.isprintable() for character in text):
        raise SettingError(f"{text[:200]!r} cannot be written into a unit", hint="use a path of printable characters")
    return text.replace("%", "%%")
