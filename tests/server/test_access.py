"""API keys over real HTTP: nothing that is not public without one, no key shown, and no cache shared where that is asked for."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from helios.errors import AccessError, SettingError
from helios.server import access as access_module
from helios.server.access import Access, read_access
from helios.server.routes import ROUTES
from helios.settings import Settings
from tests.server.conftest import RunningServer, wait_until

KEYS = ("sk-first#1", "second")
PUBLIC = {"/", "/health", "/ready"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{KEYS[0]}\n\n  {KEYS[1]}  \r\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def guarded(start_server: Callable[..., RunningServer], key_file: Path) -> RunningServer:
    return start_server(api_key_file=str(key_file))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_that_is_not_public_wants_a_key(guarded: RunningServer, route: object) -> None:
    """Issue 6.5, research 1.13: denied by default, and unread: the body of a request without a key is not taken."""
    path, method = route.path, route.method  # type: ignore[attr-defined]
    status, headers, body = guarded.exchange(method, path)
    if path in PUBLIC:
        assert status == 200
        return
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="helios"')
    assert json.loads(body) == route.error_body(AccessError(is_given=False))  # type: ignore[attr-defined]
    assert json.loads(body)["error"]["type"] == "authentication_error"
    assert guarded.exchange(method, path, headers=bearer(KEYS[0]))[0] != 401
    assert guarded.engine.generations == []


@pytest.mark.parametrize("path", ["/nowhere", "//health", "/health/", "/ready/../v1/models", "/%2e/health", "/v1"])
def test_what_is_not_there_is_not_told_without_a_key(guarded: RunningServer, path: str) -> None:
    assert guarded.exchange("GET", path)[0] == 401
    assert guarded.exchange("GET", path, headers=bearer(KEYS[1]))[0] == 404


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        (bearer(KEYS[0]), True),
        (bearer(KEYS[1]), True),
        ({"authorization": f"bearer   {KEYS[1]}"}, True),
        ({"X-Api-Key": KEYS[1]}, True),
        ({**bearer("EMPTY"), "X-Api-Key": KEYS[0]}, True),
        (bearer(KEYS[0] + "x"), False),
        (bearer(KEYS[0][:-1]), False),
        (bearer(KEYS[0].upper()), False),
        (bearer("# ours"), False),
        (bearer(""), False),
        ({"Authorization": KEYS[0]}, False),
        ({"Authorization": f"Basic {KEYS[0]}"}, False),
        ({"Authorization": f"Bearer {KEYS[0]}, Bearer x"}, False),
        ({"X-Api-Key": ""}, False),
        ({"Cookie": KEYS[0]}, False),
    ],
)
def test_one_of_the_keys_lets_in_and_nothing_else(
    guarded: RunningServer, headers: dict[str, str], is_let_in: bool
) -> None:
    assert guarded.exchange("GET", "/v1/models", headers=headers)[0] == (200 if is_let_in else 401)


def test_openais_client_is_let_in_and_told_when_not(guarded: RunningServer) -> None:
    base_url = guarded.url + "/v1"
    with openai.OpenAI(base_url=base_url, api_key=KEYS[1], max_retries=0) as client:
        assert client.models.list().data[0].id == "scripted-1b"
    with (
        openai.OpenAI(base_url=base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="not one of this server's"),
    ):
        client.models.list()


def test_a_key_is_never_in_an_answer_or_the_log(guarded: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="helios")
    _, headers, body = guarded.exchange("GET", "/v1/models", headers=bearer("almost-" + KEYS[0]))
    guarded.exchange("GET", "/v1/models", headers=bearer(KEYS[0]))
    assert KEYS[0].encode() not in body
    assert KEYS[0] not in str(headers)
    wait_until(lambda: len(caplog.records) == 2)
    assert KEYS[0] not in str([record.__dict__ for record in caplog.records])


def test_metrics_are_public_where_the_setting_says_so(
    start_server: Callable[..., RunningServer], key_file: Path
) -> None:
    open_server = start_server(api_key_file=str(key_file), public_metrics=True)
    assert open_server.exchange("GET", "/metrics")[0] == 200
    assert open_server.exchange("GET", "/v1/models")[0] == 401


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Research 1.13: whichever key it is, and if it is one, as many comparisons of as many bytes."""
    compared: list[tuple[int, int]] = []
    compare_digest = hmac.compare_digest

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return compare_digest(left, right)

    monkeypatch.setattr(access_module.hmac, "compare_digest", compare)
    access = Access(("a", "bb", "ccc"))
    for key in ("a", "ccc", "x" * 100):
        compared.clear()
        try:
            access.check({"authorization": f"Bearer {key}"})
        except AccessError:
            assert key.startswith("x")
        assert compared == [(32, 32)] * 3


def test_keys_part_the_prefix_cache_where_that_is_asked_for(
    start_server: Callable[..., RunningServer], key_file: Path
) -> None:
    """Issue 6.5: nobody learns from reused tokens what another key's holder asked."""

    def salts(server: RunningServer, *requests: tuple[str, dict[str, object]]) -> list[str]:
        server.engine.generations.clear()
        for key, fields in requests:
            response = httpx.post(server.url + "/v1/chat/completions", json=CHAT | fields, headers=bearer(key))
            assert response.status_code == 200
        return [generation.request.cache_salt for generation in server.engine.generations]

    given: tuple[tuple[str, dict[str, object]], ...] = (
        (KEYS[0], {}),
        (KEYS[0], {}),
        (KEYS[1], {}),
        (KEYS[0], {"cache_salt": "s"}),
        (KEYS[1], {"cache_salt": "s"}),
    )
    first, again, other, salted, other_salted = salts(start_server(api_key_file=str(key_file), key_salts=True), *given)
    assert first == again
    assert len({first, other, salted, other_salted}) == 4
    assert KEYS[0] not in first
    assert salts(start_server(api_key_file=str(key_file)), *given) == ["", "", "", "s", "s"]


# -- the file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no key; write one a line"),
        (b"# nothing\n\n", "holds no key"),
        (b"good\nnot good\n", "has no key in line 2; a key is 1 to 512 visible ASCII"),
        ("schlüssel\n".encode(), "has no key in line 1"),
        (b"\xff\xfe\n", "is not text: byte 0 is no UTF-8"),
        (b"x" * 513, "has no key in line 1"),
    ],
)
def test_a_wrong_file_stops_the_start_and_shows_no_key(key_file: Path, content: bytes, message: str) -> None:
    key_file.write_bytes(content)
    with pytest.raises(SettingError) as refusal:
        read_access(Settings(api_key_file=str(key_file)))
    assert message in str(refusal.value)
    assert "good" not in str(refusal.value)


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: No such file"):
        read_access(Settings(api_key_file=str(tmp_path / "nowhere")))


def test_salts_of_keys_need_keys() -> None:
    with pytest.raises(SettingError, match="--key-salts is given and --api-key-file is not"):
        read_access(Settings(key_salts=True))


@pytest.mark.parametrize(
    ("mode", "is_told"), [(0o600, False), (0o400, False), (0o640, False), (0o644, True), (0o660, True)]
)
def test_a_file_that_others_can_read_is_mentioned(
    key_file: Path, mode: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    key_file.chmod(mode)
    read_access(Settings(api_key_file=str(key_file)))
    assert [f"(mode {mode:04o})" in record.getMessage() for record in caplog.records] == [True] * is_told


def test_without_keys_everything_is_open(server: RunningServer) -> None:
    """And a client that sends one anyway, as OpenAI's must, is served."""
    assert server.exchange("GET", "/v1/models", headers=bearer("EMPTY"))[0] == 200
    assert json.loads(server.exchange("GET", "/v1/models")[2])["object"] == "list"
