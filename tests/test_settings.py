"""Settings: written once, read from four places in order, refused with the accepted range."""

from __future__ import annotations

import argparse
import dataclasses
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import settings as examples
from hypothesis import strategies as st

from helios.cli.model import add_settings
from helios.errors import MissingFileError, SettingError
from helios.settings import (
    Rule,
    Settings,
    cache_directory,
    flag_help,
    kernel_target,
    native_directory,
    setting_names,
    toml_of,
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in setting_names():
        monkeypatch.delenv("HELIOS_" + name.upper(), raising=False)
    for name in ("HOME", "CONFIG", "NATIVE", "KERNELS"):
        monkeypatch.delenv("HELIOS_" + name, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_every_default_is_an_accepted_value() -> None:
    for name, rule in Settings.RULES.items():
        default = getattr(Settings(), name)
        if default is not None:
            assert rule.parse(name, default) == default
            assert type(default) is (tuple if rule.is_list else rule.kind)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "helios.toml"
    config.write_text('port = 1\nhost = "file"\nthreads = 1\nidle_timeout = 3\n')
    monkeypatch.setenv("HELIOS_PORT", "2")
    monkeypatch.setenv("HELIOS_HOST", "environment")
    settings = Settings.load({"port": "3", "host": None, "unrelated": "x"}, config)
    assert (settings.port, settings.host, settings.threads) == (3, "environment", 1)
    assert settings.idle_timeout == 3.0
    assert isinstance(settings.idle_timeout, float)
    assert settings.queue_capacity == Settings().queue_capacity
    monkeypatch.setenv("HELIOS_CONFIG", str(config))
    assert Settings.load({}).threads == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "eighty"),
        ("port", "-1"),
        ("port", "65536"),
        ("port", "80.5"),
        ("port", ""),
        ("threads", "0"),
        ("queue_capacity", "1e3"),
        ("body_timeout", "nan"),
        ("body_timeout", "inf"),
        ("device", "tpu"),
        ("host", ""),
        ("log_level", "LOUD"),
        ("cache_gb", "0"),
        ("offload_gb", "-1"),
        ("gap_target", "0.5"),
        ("temperature", "2.5"),
        ("top_k", "40.5"),
        ("vllm_metrics", "yes"),
        ("grpc_port", "65536"),
        ("grpc_default_max_new_tokens", "0"),
        ("grpc_default_max_new_tokens", "all"),
    ],
)
def test_a_malformed_value_says_what_is_accepted(name: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.load({name: value})
    assert f"--{name.replace('_', '-')}" in str(caught.value)
    assert Settings.RULES[name].accepted in str(caught.value)


def test_a_malformed_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_PORT", "x")
    with pytest.raises(SettingError, match="HELIOS_PORT is 'x'; it must be a whole number from 0 to 65,535"):
        Settings.load({})


def test_what_is_true_or_false_can_be_said_in_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, ["vllm_metrics"])
    assert not Settings.load(vars(parser.parse_args([]))).vllm_metrics
    assert Settings.load(vars(parser.parse_args(["--vllm-metrics"]))).vllm_metrics
    config = tmp_path / "helios.toml"
    config.write_text("vllm_metrics = true\n")
    assert Settings.load({}, config).vllm_metrics
    monkeypatch.setenv("HELIOS_VLLM_METRICS", "False")
    assert not Settings.load({}, config).vllm_metrics
    assert flag_help("vllm_metrics").endswith("(true or false; default false)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = true", "setting port is"),
        ("port = 1.5", "setting port is"),
        ("vllm_metrics = 1", "setting vllm_metrics is '1'; it must be true or false"),
        ("port = [1]", "setting port is"),
        ("host = 7", "setting host is"),
        ("host = 'unix:'", "setting host is unix:; it must be an address, or unix:PATH for a socket file"),
        (r'host = "unix:a\nb"', "it must be an address, or unix:PATH"),
        (r'host = "unix:a\u0000b"', "it must be an address, or unix:PATH"),
        (r'tls_cert = "a\u0000b"', "it must be text"),
        (r'kv_events = "ipc://a\u0000b"', "it must be tcp://ADDRESS:PORT or ipc://PATH"),
        ("prot = 1", "unknown key 'prot'"),
        ("port = ", "is not TOML"),
    ],
)
def test_a_wrong_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "helios.toml"
    config.write_text(text)
    with pytest.raises(SettingError, match=message):
        Settings.load({}, config)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="cannot be read"):
        Settings.load({}, tmp_path / "nowhere.toml")


def test_help_says_what_a_setting_is_accepts_and_defaults_to() -> None:
    assert flag_help("port").endswith("(a whole number from 0 to 65,535; default 8000)")
    assert flag_help("device").endswith("(auto, cpu, cuda, cuda:N, or simt, an emulator for tests; default auto)")
    assert "default" not in flag_help("context")


def test_a_list_can_be_given_in_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6.8. Several flags, commas, an array; the same one twice is one."""
    parser = argparse.ArgumentParser()
    add_settings(parser, ["cors_origin"])
    flags = parser.parse_args(["--cors-origin", "http://a.b,https://c.d:8", "--cors-origin", "http://a.b"])
    assert Settings.load(vars(flags)).cors_origin == ("http://a.b", "https://c.d:8")
    assert Settings.load(vars(parser.parse_args([]))).cors_origin == ()
    config = tmp_path / "helios.toml"
    config.write_text('cors_origin = ["*", "http://[::1]:80"]\n')
    assert Settings.load({}, config).cors_origin == ("*", "http://[::1]:80")
    monkeypatch.setenv("HELIOS_CORS_ORIGIN", "https://x.y,http://a.b")
    assert Settings.load({}, config).cors_origin == ("https://x.y", "http://a.b")


@pytest.mark.parametrize("value", ["https://a.b/", "https://a.b/path", "a.b", "null", "*.a.b", "https://A.b", "", ","])
def test_what_no_browser_sends_is_no_origin(value: str) -> None:
    with pytest.raises(SettingError, match=r"it must be \* or an origin such as https://example.org"):
        Settings.load({"cors_origin": [value]})


def _values(rule: Rule) -> st.SearchStrategy[object]:
    """Accepted values of a setting."""
    if rule.is_list:
        return st.sampled_from([(), ("*",), ("https://a.b", "http://[::1]:8080")])
    if rule.choices:
        return st.sampled_from(rule.choices)
    if rule.kind is bool:
        return st.booleans()
    if rule.form is not None:
        return st.from_regex(re.compile(rule.form[0], re.ASCII), fullmatch=True)
    if rule.kind is str:
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
    low, high = rule.low, rule.high
    assert low is not None
    assert high is not None
    numbers = st.integers(int(low), int(high)) if rule.kind is int else st.floats(low, high)
    return st.one_of(numbers, st.sampled_from(rule.words)) if rule.words else numbers


@for_all(st.fixed_dictionaries({}, optional={name: _values(rule) for name, rule in Settings.RULES.items()}))
@examples(max_examples=50)
def test_what_is_written_is_read_back_the_same(values: dict[str, object]) -> None:
    """Issue 6.8: --print-config makes a file for --config."""
    given = Settings(**values)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "helios.toml"
        path.write_text(toml_of(given), "utf-8")
        assert Settings.load({}, path) == given


def test_a_written_file_explains_every_setting() -> None:
    text = toml_of(Settings())
    assert all(f"# {flag_help(name)}\n" in text for name in setting_names())
    assert '\nhost = "127.0.0.1"\n' in text
    assert "\n# context =\n" in text
    assert "\ncors_origin = []\n" in text


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_directories_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "helios"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the XDG rules say to ignore it
    assert cache_directory() == tmp_path / ".cache" / "helios"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "helios"
    monkeypatch.setenv("HELIOS_HOME", "~/here")
    assert cache_directory() == tmp_path / "here"
    assert native_directory() is None
    assert kernel_target() is None
    monkeypatch.setenv("HELIOS_NATIVE", str(tmp_path))
    monkeypatch.setenv("HELIOS_KERNELS", "cpu.x86-64-v3")
    assert native_directory() == tmp_path
    assert kernel_target() == "cpu.x86-64-v3"


def test_a_word_may_stand_beside_numbers() -> None:
    assert Settings.load({"grpc_default_max_new_tokens": "context"}).grpc_default_max_new_tokens == "context"
    assert Settings.load({"grpc_default_max_new_tokens": "7"}).grpc_default_max_new_tokens == 7
    assert flag_help("grpc_default_max_new_tokens").endswith("or context; default 20)")
