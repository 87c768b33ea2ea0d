"""Every route there is, and none that is not."""

from __future__ import annotations

import json

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helios import errors
from helios.server.routes import ROUTES
from helios.server.status import WireError, error_body, status_of
from tests.server.conftest import RunningServer


@pytest.mark.parametrize("path", ["/v1", "/v1/chat/completions/", "/v1/models/", "/metrics/x", "/%2e%2e/etc", "/é"])
def test_an_unknown_path_is_not_found(server: RunningServer, path: str) -> None:
    response = httpx.post(server.url + path, json={})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("route", [route for route in ROUTES if route.path != "*"], ids=lambda route: route.path)
def test_a_wrong_method_is_told_the_right_one(server: RunningServer, route: object) -> None:
    path = route.path + "scripted-1b" if route.path.endswith("/models/") else route.path  # type: ignore[attr-defined]
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
        response = httpx.request(method, server.url + path)
        assert response.status_code == 405
        assert response.headers["Allow"] == ", ".join(route.methods)  # type: ignore[attr-defined]
        error = WireError(405, f"{path} does not take {method}")
        assert response.json() == route.error_body(error)  # type: ignore[attr-defined]


def test_the_server_as_a_whole_tells_every_method(server: RunningServer) -> None:
    """RFC 9110, 9.3.7; no other method has such a target."""
    status, headers, body = server.exchange("OPTIONS", "*")
    assert (status, headers["Allow"], body) == (204, "POST, GET, HEAD, OPTIONS", b"")
    assert server.exchange("GET", "*")[0] == 400


def test_models_are_listed_and_shown(server: RunningServer) -> None:
    models = httpx.get(server.url + "/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == ["scripted-1b", "scripted"]
    assert models["data"][0]["root"] == "scripted-1b"
    assert models["data"][0]["max_model_len"] == 4096
    assert httpx.get(server.url + "/v1/models/scripted").json() == models["data"][1]
    missing = httpx.get(server.url + "/v1/models/nobody")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_liveness_is_not_readiness(server: RunningServer) -> None:
    """Research item 48."""
    for path in ("/health", "/ready"):
        assert httpx.get(server.url + path).status_code == 200
        assert httpx.head(server.url + path).status_code == 200
    server.engine.is_draining = True
    assert httpx.get(server.url + "/ready").status_code == 503
    assert httpx.get(server.url + "/health").status_code == 200
    server.engine.is_broken = True
    assert httpx.get(server.url + "/health").status_code == 503


def test_metrics_are_prometheus_text(server: RunningServer) -> None:
    """MET-1: an outside parser reads them, counters only grow, and no client text is in a label."""
    server.chat(model="secret-name")
    server.chat()
    server.exchange("GET", "/secret-path")
    response = httpx.get(server.url + "/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert families["helios_submissions"].type == "counter"
    assert families["helios_submissions"].samples[0].value == 1
    assert families["helios_requests_admitted"].type == "gauge"
    requests = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["helios_http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert requests == {
        ("/v1/chat/completions", "404"): 1,
        ("/v1/chat/completions", "200"): 1,
        ("unknown", "404"): 1,
    }
    assert "secret" not in response.text


def test_a_wrong_message_is_counted(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(b"nonsense\r\n\r\n")
    while connection.recv(1000):
        pass
    assert 'route="unread",status="400"' in httpx.get(server.url + "/metrics").text


def test_a_bug_is_a_500_without_its_text(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> bool:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(server.engine, "is_alive", explode)
    response = httpx.get(server.url + "/health")
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text


STATUSES = {
    errors.InvalidValueError("x"): 400,
    errors.ContextLengthError(9, 8): 400,
    errors.UnknownModelError("a", "b"): 404,
    errors.QueueFullError(1, 1): 429,
    errors.AdmissionError("x"): 503,
    errors.ShuttingDownError(): 503,
    errors.OutOfMemoryError("x"): 500,
    errors.InternalError("x"): 500,
    errors.DeviceError("x"): 500,
    errors.CoreError("x"): 500,
    errors.HeliosError("x"): 500,
    WireError(413, "x"): 413,
}


@pytest.mark.parametrize(("error", "number"), STATUSES.items(), ids=lambda value: type(value).__name__)
def test_every_family_of_errors_has_its_status(error: errors.HeliosError, number: int) -> None:
    """HTTP-3: the class decides."""
    status = status_of(error)
    assert status.number == number
    assert (number in (429, 503)) is bool(status.headers)
    body = json.loads(json.dumps(error_body(error)))
    assert set(body["error"]) == {"message", "type", "param", "code"}
