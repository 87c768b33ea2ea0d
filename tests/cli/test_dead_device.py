"""A `helios serve` whose device dies while it answers: it says so on every page, serves nothing more, and exits when told to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.cli.server_process import ServerProcess
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target
from tests.ignition.tiny_model import TinyModel, write_tiny

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NAMESPACE = "dead-device-tests"
# `helios serve` with one change: the device dies in the fourth completion.
PROGRAM = """
import sys
from helios.cli.main import main
from helios.errors import DeviceError
from helios.runtime.model import ModelRuntime
complete, n_done = ModelRuntime.complete, 0
def dying(runtime):
    global n_done
    n_done += 1
    if n_done == 4:
        raise DeviceError("an illegal address was read")
    return complete(runtime)
ModelRuntime.complete = dying
sys.exit(main(sys.argv[1:]))
"""


# And one whose device does not come back from it.
HANGING = PROGRAM.replace('raise DeviceError("an illegal address was read")', "import time; time.sleep(3600)")
PATIENCE_S = 60  # with a server on a busy machine


@pytest.fixture(params=[PROGRAM])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    checkpoint = write_tiny(tmp_path / "tiny.gguf", TinyModel())
    core = tmp_path / "tiny.core"
    prepare(checkpoint, core, host_target(), PrepareOptions(), key=KEY, namespace=NAMESPACE)
    words = ["serve", str(core), "--port", "0", "--accept", NAMESPACE, "--device", "cpu", "--threads", "1"]
    words += ["--log-level", "error", "--device-timeout", "3" if request.param == HANGING else "3600"]
    with ServerProcess([sys.executable, "-c", request.param, *words]) as process:
        yield process


def test_a_dead_device_is_told_to_everyone_and_the_process_exits(server: ServerProcess) -> None:
    """CACHE-4, HTTP-3: not ready, not alive, every request an error, status 0 after SIGTERM."""
    url = f"http://{server.endpoint.host}:{server.endpoint.port}"
    assert httpx.get(url + "/health", timeout=PATIENCE_S).status_code == 200
    body = {"prompt": [5, 6, 7], "max_tokens": 100, "ignore_eos": True}
    for _ in range(2):  # the one that was running, and one that comes later
        response = httpx.post(url + "/v1/completions", json=body, timeout=PATIENCE_S)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "device_error"
    assert httpx.get(url + "/ready", timeout=PATIENCE_S).status_code == 503
    assert httpx.get(url + "/health", timeout=PATIENCE_S).status_code == 503
    page = httpx.get(url + "/metrics", timeout=PATIENCE_S).text
    assert "helios_requests_failed_total 2.0" in page
    assert "helios_requests_admitted 0.0" in page
    server.close()  # SIGTERM, and SIGKILL to one that does not follow
    assert server.exit_status == 0
    assert "the device failed, nothing is served any more: an illegal address was read" in server.last_words
    assert "Traceback" not in server.last_words


@pytest.mark.parametrize("server", [HANGING], indirect=True)
def test_a_device_that_never_comes_back_does_not_keep_the_process(server: ServerProcess) -> None:
    """HTTP-3, HTTP-4: its requests end, health tells it, and SIGTERM is followed by the end, with status 1."""
    url = f"http://{server.endpoint.host}:{server.endpoint.port}"
    body = {"prompt": [5, 6, 7], "max_tokens": 100, "ignore_eos": True}
    for _ in range(2):
        response = httpx.post(url + "/v1/completions", json=body, timeout=PATIENCE_S)
        assert (response.status_code, response.json()["error"]["code"]) == (500, "device_stalled")
    health = httpx.get(url + "/health", timeout=PATIENCE_S)
    assert (health.status_code, health.json()) == (503, {"status": "failed", "error": "device_stalled"})
    server.close()
    assert server.exit_status == 1
