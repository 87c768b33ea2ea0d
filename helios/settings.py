"""Every start-up setting, written once: its default, help text and accepted range.

Flags, `HELIOS_<NAME>` variables and TOML keys are derived from the one dataclass here, which is also the only code that reads
`os.environ`. A flag wins over the environment, the environment over the file, the file over the default; a malformed value
stops the start with the accepted range, and what `toml_of` writes is read back as the same settings.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from helios.errors import MissingFileError, SettingError

VERSION = "0.1.0"
ENVIRONMENT_PREFIX = "HELIOS_"
_ZMQ_ENDPOINT = (
    r"tcp://(\*|[\w.-]+|\[[0-9A-Fa-f:.]+\]):(\*|\d{1,5})|ipc://[^\s\x00-\x1f\x7f]+",
    "tcp://ADDRESS:PORT or ipc://PATH; * is every address, or a free port",
)
_BOOLEANS: Mapping[object, bool] = {True: True, "true": True, False: False, "false": False}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting's value may be. `choices` is for text; `low` and `high` are inclusive, for numbers; `words` stand beside
    them."""

    kind: type[int] | type[float] | type[str] | type[bool]
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    form: tuple[str, str] | None = None  # of text: a pattern, and what it describes
    is_list: bool = False
    is_file: bool = False
    words: tuple[str, ...] = ()

    @property
    def accepted(self) -> str:
        """The accepted range in words, for messages and `--help`."""
        if self.form is not None:
            return self.form[1]
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        noun = {int: "a whole number", float: "a number", str: "text"}[self.kind]
        limits = noun if self.low is None else f"{noun} from {self.low:,} to {self.high:,}"
        return " or ".join((limits, *self.words))

    def parse(self, name: str, raw: object) -> Any:
        """`raw` (flag text, variable text or TOML value) as a checked value; SettingError when it is not one.

        A list is a TOML array, a flag given several times, or text with commas; its value is a tuple.
        """
        if self.is_list:
            one = dataclasses.replace(self, is_list=False)
            return tuple(dict.fromkeys(one.parse(name, part) for part in _parts(raw)))
        if raw in self.words:
            return raw
        try:
            value = self._convert(raw)
        except (ValueError, KeyError):
            raise SettingError(f"{name} is {str(raw)[:80]!r}", hint=f"it must be {self.accepted}") from None
        is_inside = self.low is None or self.high is None or self.low <= value <= self.high
        is_formed = self.form is None or re.fullmatch(self.form[0], value, re.ASCII) is not None
        if not is_inside or value == "" or not is_formed or (self.choices and value not in self.choices):
            raise SettingError(f"{name} is {str(raw)[:80]}", hint=f"it must be {self.accepted}")
        return value

    def _convert(self, raw: object) -> Any:
        if self.kind is bool:
            return _BOOLEANS[raw if isinstance(raw, bool) else str(raw).lower()]
        if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
            raise ValueError
        if self.kind is int and isinstance(raw, float):
            raise ValueError
        if self.kind is str:
            if not isinstance(raw, str):
                raise ValueError
            raw.encode()  # bytes of the environment that are no UTF-8 raise UnicodeEncodeError, a ValueError
            if "\0" in raw:  # which no path and no name can have
                raise ValueError
        return self.kind(raw)


def _parts(raw: object) -> Sequence[object]:
    """The elements of a list setting as it was given."""
    values = raw if isinstance(raw, (list, tuple)) else [raw]
    return [part for value in values for part in (value.split(",") if isinstance(value, str) else [value])]


def _setting(default: object, text: str, kind: type[Any], **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={"rule": Rule(kind, text, **limits)})


@dataclass(frozen=True)
class Settings:
    """The settings of one process. None means that the core or the machine decides."""

    host: str = _setting(
        "127.0.0.1",
        "where to listen",
        str,
        form=(r"(?!unix:$)[^\x00-\x1f\x7f]+", "an address, or unix:PATH for a socket file"),
    )
    port: int = _setting(8000, "TCP port to listen on; 0 takes a free one", int, low=0, high=65535)
    tls_cert: str | None = _setting(
        None, "PEM file of the certificate and its chain; the server then speaks HTTPS", str, is_file=True
    )
    tls_key: str | None = _setting(None, "PEM file of the certificate's private key", str, is_file=True)
    api_key_file: str | None = _setting(
        None,
        "file of API keys, one a line; who has none of them gets /health, /ready and the page alone",
        str,
        is_file=True,
    )
    key_salts: bool = _setting(False, "cached prefixes are shared among requests of the same API key only", bool)
    public_metrics: bool = _setting(False, "answer /metrics without an API key", bool)
    cors_origin: tuple[str, ...] = _setting(
        (),
        "origin whose pages may call the API; give several by commas or by repeating it",
        str,
        form=(
            r"\*|https?://[a-z0-9.-]+(:\d+)?|https?://\[[0-9a-f:]+\](:\d+)?",
            "* or an origin such as https://example.org",
        ),
        is_list=True,
    )
    tls_client_ca: str | None = _setting(
        None, "PEM file of authorities; a client must then show a certificate of theirs", str, is_file=True
    )
    listen_backlog: int = _setting(1024, "connections that may wait to be accepted", int, low=1, high=65535)
    connection_limit: int = _setting(4096, "connections that may be open at once", int, low=1, high=1_000_000)
    grpc_port: int | None = _setting(
        None, "TCP port of vllm.Inference over gRPC, 0 for a free one (not served)", int, low=0, high=65535
    )
    grpc_host: str | None = _setting(None, "address of the gRPC port (--host, or 127.0.0.1 beside a socket file)", str)
    grpc_model_id: str | None = _setting(
        None, "path or name from which gRPC routers load the tokenizer and the chat template (the served name)", str
    )
    grpc_max_message_mb: int = _setting(32, "MiB of one gRPC request", int, low=1, high=1024)
    grpc_default_max_new_tokens: int | str = _setting(
        20,
        "tokens of a gRPC answer whose request gives no limit; context fills the context",
        int,
        low=1,
        high=(1 << 31) - 1,
        words=("context",),
    )
    kv_events: str | None = _setting(
        None,
        "where to publish over ZeroMQ which prefixes the cache holds, for routers (not published)",
        str,
        form=_ZMQ_ENDPOINT,
    )
    kv_events_replay: str | None = _setting(
        None, "where to answer who has missed some of it (nowhere)", str, form=_ZMQ_ENDPOINT
    )
    kv_events_topic: str | None = _setting(None, "topic of what is published (the empty one)", str)
    alias: tuple[str, ...] = _setting(
        (),
        "name of the model that requests may use too; give several by commas or by repeating it",
        str,
        form=(r"[^\s,\x00-\x1f]{1,200}", "up to 200 characters without spaces and commas"),
        is_list=True,
    )
    device: str = _setting(
        "auto",
        "where programs run",
        str,
        form=(r"auto|cpu|simt|cuda(:[0-9]{1,3})?", "auto, cpu, cuda, cuda:N, or simt, an emulator for tests"),
    )
    context: int | None = _setting(
        None, "tokens of one request, prompt and answer (the core's)", int, low=16, high=1 << 24
    )
    kv: str | None = _setting(
        None,
        "how keys and values are kept; q8 takes half the memory (the core's; of a GGUF f16, on cuda bf16)",
        str,
        choices=("f16", "q8", "bf16"),
    )
    max_active: int | None = _setting(None, "requests generated at once (the core's)", int, low=1, high=4096)
    cache_gb: float | None = _setting(
        None,
        "GiB of KV cache (half of what is free, 95 % on a GPU, at most two contexts a slot)",
        float,
        low=0.001,
        high=1 << 20,
    )
    offload_gb: float = _setting(
        0.0,
        "GiB of host memory for what the cache drops; of no use on cpu, whose memory is the host's",
        float,
        low=0,
        high=1 << 20,
    )
    gap_target: float = _setting(
        100.0, "milliseconds that arriving prompts may put between two tokens of a stream", float, low=1, high=60_000
    )
    queue_capacity: int = _setting(256, "requests that may wait for a slot", int, low=1, high=1_000_000)
    threads: int | None = _setting(None, "worker threads of the CPU device (one a core)", int, low=1, high=1024)
    frontend_workers: int = _setting(2, "threads that render and tokenise prompts", int, low=1, high=256)
    temperature: float | None = _setting(
        None, "sampling temperature of requests without one (the core's)", float, low=0, high=2
    )
    top_p: float | None = _setting(None, "top_p of requests without one (the core's)", float, low=0, high=1)
    top_k: int | None = _setting(
        None, "top_k of requests without one, 0 for all (the core's)", int, low=0, high=(1 << 31) - 1
    )
    min_p: float | None = _setting(None, "min_p of requests without one (the core's)", float, low=0, high=1)
    repetition_penalty: float | None = _setting(
        None, "repetition_penalty of requests without one (the core's)", float, low=0.01, high=100
    )
    frequency_penalty: float | None = _setting(
        None, "frequency_penalty of requests without one (the core's)", float, low=-2, high=2
    )
    presence_penalty: float | None = _setting(
        None, "presence_penalty of requests without one (the core's)", float, low=-2, high=2
    )
    accept: str = _setting("local", "publisher namespace whose cores are accepted", str)
    header_limit: int = _setting(32 << 10, "bytes of one request's headers", int, low=1 << 10, high=1 << 20)
    header_fields: int = _setting(100, "fields of one request's headers", int, low=8, high=10_000)
    body_limit: int = _setting(8 << 20, "bytes of one request's body, inflated", int, low=1 << 10, high=1 << 30)
    body_memory: int = _setting(1 << 30, "bytes of all bodies that are held at once", int, low=1 << 20, high=1 << 40)
    send_buffer: int = _setting(
        256 << 10, "bytes of an answer that the system may hold for its reader", int, low=4 << 10, high=1 << 26
    )
    header_timeout: float = _setting(20.0, "seconds for a request's headers to arrive", float, low=0.05, high=3600)
    body_timeout: float = _setting(60.0, "seconds for a request's body to arrive", float, low=0.05, high=3600)
    idle_timeout: float = _setting(75.0, "seconds that an idle connection stays open", float, low=0.05, high=86400)
    stall_timeout: float = _setting(300.0, "seconds that a reader may take nothing", float, low=0.05, high=86400)
    ping_interval: float = _setting(
        15.0, "seconds of silence before a stream sends a comment", float, low=0.05, high=3600
    )
    device_timeout: float = _setting(
        120.0, "seconds that one step of the device may take before it counts as dead", float, low=0.05, high=86400
    )
    drain_timeout: float = _setting(5.0, "seconds that shutdown waits for open answers", float, low=0, high=3600)
    vllm_metrics: bool = _setting(False, "show /metrics under vLLM's names too, for gateways that scrape those", bool)
    log_level: str = _setting("info", "least level that is logged", str, choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("text", "form of a line of the log", str, choices=("text", "json"))
    log_prompts: bool = _setting(False, "log the text of every prompt that is generated from", bool)

    RULES: ClassVar[dict[str, Rule]]

    @classmethod
    def load(cls, flags: Mapping[str, object], config: Path | None = None) -> Settings:
        """Merge `flags` (absent or None: not given), the environment, and the TOML file `config` or `HELIOS_CONFIG`."""
        values: dict[str, Any] = {}
        table = _read_config(config or _environment_path("CONFIG"))
        for name, rule in cls.RULES.items():
            variable = ENVIRONMENT_PREFIX + name.upper()
            flag = flags.get(name)
            if flag is not None:
                values[name] = rule.parse(f"--{name.replace('_', '-')}", flag)
            elif os.environ.get(variable):
                values[name] = rule.parse(variable, os.environ[variable])
            elif name in table:
                values[name] = rule.parse(f"setting {name}", table[name])
        return cls(**values)


Settings.RULES = {field.name: field.metadata["rule"] for field in dataclasses.fields(Settings)}


def flag_help(name: str) -> str:
    """The `--help` line of setting `name`: what it is, what it accepts, its default."""
    rule = Settings.RULES[name]
    default = getattr(Settings, name)
    is_unset = default is None or default == ()
    ending = "" if is_unset else f"; default {str(default).lower() if rule.kind is bool else default}"
    return f"{rule.help} ({rule.accepted}{ending})"


def setting_names() -> Sequence[str]:
    """Every setting, in the order of the dataclass."""
    return tuple(Settings.RULES)


def toml_of(settings: Settings) -> str:
    """A settings file that says what `settings` does, each key under its help; what the core or the machine decides is left out."""
    blocks = []
    for name in setting_names():
        value = getattr(settings, name)
        line = f"# {name} =" if value is None else f"{name} = {_toml_value(value)}"
        blocks.append(f"# {flag_help(name)}\n{line}\n")
    return "\n".join(blocks)


def _toml_value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(
            "\x7f", "\\u007f"
        )  # which TOML, unlike JSON, wants escaped
    return str(value).lower() if isinstance(value, bool) else repr(value)


def cache_directory() -> Path:
    """Where prepared cores, keys and extracted libraries live: HELIOS_HOME, else the user's cache directory."""
    home = _environment_path("HOME")
    if home is not None:
        return home
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache") / "helios"


def client_api_key() -> str | None:
    """HELIOS_API_KEY: what `chat` and `bench` show to the server at `--url`."""
    return os.environ.get(ENVIRONMENT_PREFIX + "API_KEY") or None


def native_directory() -> Path | None:
    """HELIOS_NATIVE: a directory of built libraries to use instead of the packaged ones."""
    return _environment_path("NATIVE")


def kernel_target() -> str | None:
    """HELIOS_KERNELS: the kernel library to load, where the choice by processor is not wanted."""
    return os.environ.get(ENVIRONMENT_PREFIX + "KERNELS") or None


def activations() -> str | None:
    """HELIOS_ACTIVATIONS: what the linear maps of a model prepared for the CPU read, `q8`, `q12` or `bf16`."""
    return os.environ.get(ENVIRONMENT_PREFIX + "ACTIVATIONS") or None


def cuda_runtime() -> Path | None:
    """HELIOS_CUDART: the CUDA runtime library to load, where the search for one is not wanted."""
    return _environment_path("CUDART")


def cuda_toolkits() -> list[Path]:
    """CUDA_HOME and CUDA_PATH: where a CUDA toolkit is, by the custom of its users."""
    return [Path(text) for name in ("CUDA_HOME", "CUDA_PATH") if (text := os.environ.get(name))]


def core_key_text() -> str | None:
    """HELIOS_CORE_KEY: the key of encrypted cores, 64 hexadecimal digits."""
    return os.environ.get(ENVIRONMENT_PREFIX + "CORE_KEY") or None


def core_key_file() -> Path | None:
    """HELIOS_CORE_KEY_FILE: a file that holds the same."""
    return _environment_path("CORE_KEY_FILE")


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """What systemd tells a service by environment (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3))."""

    notify_address: str | None
    watchdog_s: float | None
    n_sockets: int


def service_manager() -> ServiceManager:
    """NOTIFY_SOCKET, WATCHDOG_USEC and LISTEN_FDS, the last two where they are meant for this process."""
    variables = os.environ
    own_id = str(os.getpid())
    watchdog_us = variables.get("WATCHDOG_USEC", "")
    is_watched = watchdog_us.isdecimal() and int(watchdog_us) > 0 and variables.get("WATCHDOG_PID", own_id) == own_id
    n_sockets = variables.get("LISTEN_FDS", "")
    is_activated = n_sockets.isdecimal() and variables.get("LISTEN_PID") == own_id
    return ServiceManager(
        notify_address=variables.get("NOTIFY_SOCKET") or None,
        watchdog_s=int(watchdog_us) / 1e6 if is_watched else None,
        n_sockets=int(n_sockets) if is_activated else 0,
    )


def _environment_path(name: str) -> Path | None:
    text = os.environ.get(ENVIRONMENT_PREFIX + name)
    return Path(text).expanduser() if text else None


def _read_config(path: Path | None) -> Mapping[str, object]:
    """The table of a TOML settings file; a key that is no setting stops the start."""
    if path is None:
        return {}
    import tomllib

    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MissingFileError(f"settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"settings file {path} is not TOML: {error}") from error
    unknown = sorted(set(table) - set(Settings.RULES))
    if unknown:
        raise SettingError(f"settings file {path} has unknown key {unknown[0]!r}", hint="see `helios serve --help`")
    return table
