"""The one line that the log has of each call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from helios.errors import InternalError
from helios.server.grpc.schema import control_pb2
from tests.server.grpc.conftest import Client, RunningGrpc, request_of, wait_until
from tests.server.scripted import ScriptedDevice
from tests.server.test_access_log import Lines, without_times


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return Lines(caplog)


@pytest.mark.parametrize("name", ["Generate", "GenerateStream"])
def test_an_answer_is_one_line(client: Client, device: ScriptedDevice, lines: Lines, name: str) -> None:
    """Issue 6.7, over gRPC: what a chat's line has."""
    device.says("Hello world")
    answer = client.generate if name == "Generate" else client.stream
    answer("hi", request_id="mine-1")
    line = lines.next()
    assert "first_token_s" in line
    assert without_times(line) == {
        "request_id": "mine-1",
        "method": "gRPC",
        "path": f"/vllm.Inference/{name}",
        "status": "OK",
        "prompt_tokens": 2,
        "reused_tokens": 0,
        "output_tokens": len(client.engine.tokenizer.encode("Hello world", allow_special=False)) + 1,
        "finish": "stop",
    }


def test_each_sequence_has_its_own_end(served: RunningGrpc, lines: Lines) -> None:
    call = served.client().open(request_of(request_id="two", sampling={"num_sequences": 2}))
    wait_until(lambda: len(served.engine.generations) == 2)
    served.engine.generations[0].give(40)
    served.engine.generations[0].give(served.engine.eos_tokens[0])
    served.client().control("Abort", control_pb2.AbortResponse, request_ids=["two"])
    list(call)
    assert lines.next(1)["finish"] == "stop,aborted"
    assert lines.next(1)["output_tokens"] == 2
    abort = without_times(lines.next(0))
    assert abort.pop("request_id").startswith("req-")
    assert abort == {"method": "gRPC", "path": "/vllm.Control/Abort", "status": "OK"}


def test_a_refusal_is_one_line(client: Client, lines: Lines) -> None:
    """A name that cannot be shown is not in it."""
    client.refused(model="other", request_id="two\nlines")
    for index in range(2):
        line = lines.next(index)
        assert (line["status"], line["error"]) == ("NOT_FOUND", "model_not_found")
        assert line["request_id"].startswith("req-")


def test_what_is_refused_before_it_is_read_has_no_time(
    scripted: Any, start: Callable[..., RunningGrpc], lines: Lines, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("secret\n")
    start(scripted, api_key_file=str(tmp_path / "keys")).client(authorization="Bearer other").refused()
    line = lines.next()
    assert line["status"] == "UNAUTHENTICATED"
    assert "total_s" not in line
    assert "other" not in str(line)


def test_a_caller_that_leaves_and_an_engine_that_fails_are_told_with_what_came_before(
    served: RunningGrpc, lines: Lines
) -> None:
    for index, status in enumerate(("CANCELLED", "INTERNAL")):
        call = served.client().open(request_of())
        wait_until(lambda n=index: len(served.engine.generations) > n)  # type: ignore[misc]
        served.engine.generations[index].give(40)
        assert next(call).HasField("prompt_info")
        if status == "CANCELLED":
            call.cancel()
        else:
            served.engine.generations[index].fail(InternalError("the device is gone"))
            with pytest.raises(grpc.RpcError):
                list(call)
        line = lines.next(index)
        assert (line["status"], line["output_tokens"], line["finish"]) == (status, 1, "unfinished")
    assert line["error"] == InternalError.code


def test_prompts_are_logged_only_where_that_is_asked_for(
    spoken: Callable[..., Client], lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6.7."""
    spoken().generate("my secret")
    lines.next()
    assert "secret" not in str([record.__dict__ for record in caplog.records])
    spoken(log_prompts=True).generate("my secret")
    assert lines.next(1)["prompts"] == ["my secret"]


def test_the_time_to_the_first_token_begins_with_the_message(
    scripted: Any, start: Callable[..., RunningGrpc], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over HTTP: the engine is told when the request was there, not when its prompt was prepared."""
    submit, arrived = scripted.submit, []

    def noting(request: Any, arrived_s: float | None = None) -> Any:
        arrived.append(arrived_s)
        return submit(request, arrived_s)

    monkeypatch.setattr(scripted, "submit", noting)
    scripted.answer = "Hello"
    start(scripted).client().generate()
    assert arrived[0] is not None
