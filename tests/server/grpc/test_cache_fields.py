"""Sessions and hints about the cache: what is asked of it, and what is told to the caller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helios.errors import InvalidValueError
from helios.scheduler.request import Retention
from helios.server.grpc.cache_fields import CacheRules, read_cache_rules
from helios.server.grpc.schema import inference_pb2
from tests.server.grpc.conftest import Client, request_of
from tests.server.scripted import ScriptedDevice

N_PROMPT = 100


def hints(*actions: dict[str, Any], version: str = "0.1", message_id: str = "m1") -> inference_pb2.KVHintsEnvelope:
    """An envelope; `payload` of an action is a plain dict."""
    envelope = inference_pb2.KVHintsEnvelope(protocol_version=version, message_id=message_id)
    for action in actions:
        payload = action.pop("payload", {})
        added = envelope.actions.add(**{"action_type": "kv.retain", "action_version": "1.0", **action})
        added.payload.update(payload)
    return envelope


def retain(*directives: dict[str, Any], **payload: Any) -> dict[str, Any]:
    return {"payload": {"directives": list(directives), **payload}}


def rules_of(**fields: Any) -> CacheRules:
    return read_cache_rules(request_of(**fields), lambda salt: salt)


def retention_of(**fields: Any) -> Retention | None:
    return rules_of(**fields).retention(N_PROMPT)


def test_without_session_and_hints_nothing_is_retained() -> None:
    assert retention_of() is None
    assert retention_of(session_id="") is None


def test_a_session_keeps_everything_for_good() -> None:
    """GRPC-2: session_id."""
    found = retention_of(session_id="s1")
    assert found is not None
    assert (found.n_most_tokens, found.duration_s) == (None, None)
    assert found == retention_of(session_id="s1")
    assert found != retention_of(session_id="s2")


def test_callers_of_different_salts_do_not_touch_one_anothers_sessions() -> None:
    keys = {
        retention_of(session_id="s", kv={"cache_salt": salt}).key  # type: ignore[union-attr]
        for salt in ("", "a", "b")
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("directives", "n_most", "duration_s"),
    [
        ([{"priority": 50}], None, None),
        ([{"priority": 50, "end": 40, "duration": 60}], 40, 60),
        (
            [{"priority": 90, "end": 40, "duration": 60}, {"priority": 10, "start": 40, "end": 80, "duration": 5}],
            80,
            60,
        ),
        ([{"priority": 90, "end": 40, "duration": 60}, {"priority": 10, "start": 40, "end": 80}], 80, None),
        ([{"priority": 50}, {"priority": 0, "covers_output": True}], N_PROMPT, None),
        ([{"priority": 50, "covers_output": True}], None, None),
        ([{"priority": 50}, {"priority": 0, "start": 30}], 30, None),
        ([{"priority": 0}], 0, None),
        ([], 0, None),
    ],
)
def test_directives_together_keep_a_beginning(
    directives: list[dict[str, Any]], n_most: int | None, duration_s: float | None
) -> None:
    """GRPC-2: pages are of use behind those before them only, so a beginning is kept, as long as the longest says."""
    found = retention_of(session_id="s", kv_hints=hints(retain(*directives)))
    assert found is not None
    assert (found.n_most_tokens, found.duration_s) == (n_most, duration_s)


def test_a_scope_comes_before_the_session_and_that_before_the_message() -> None:
    keep = {"priority": 1}
    by_scope = retention_of(session_id="s", kv_hints=hints(retain(keep, scope="x")))
    by_session = retention_of(session_id="s", kv_hints=hints(retain(keep)))
    by_message = retention_of(kv_hints=hints(retain(keep)))
    assert len({found.key for found in (by_scope, by_session, by_message) if found}) == 3
    assert by_session == retention_of(session_id="s")


def test_a_hint_without_any_name_takes_nobodys_place() -> None:
    """It is its request's own, and a message of the same name as a request is another."""
    found = [
        retention_of(request_id=request_id, kv_hints=hints(retain({"priority": 1}), message_id=message_id))
        for request_id, message_id in (("a", ""), ("b", ""), ("c", "a"), ("d", "a"))
    ]
    assert len({each.key for each in found[:3] if each}) == 3
    assert found[2] == found[3]


@pytest.mark.parametrize(
    ("param", "message_id"), [("kv_hints.message_id", "m" * 1025), ("request_id", "")], ids=["message", "request"]
)
def test_a_name_that_the_cache_would_hold_has_a_limit(param: str, message_id: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{param} has 1,025 characters"):
        retention_of(request_id="r" * 1025, kv_hints=hints(retain({"priority": 1}), message_id=message_id))


@pytest.mark.parametrize(
    "action",
    [
        retain({}),
        retain({"priority": 101}),
        retain({"priority": 1.5}),
        retain({"priority": True}),
        retain({"priority": 1, "start": -1}),
        retain({"priority": 1, "start": 5, "end": 5}),
        retain({"priority": 1, "duration": -1}),
        retain({"priority": 1, "duration": 1e9}),
        retain({"priority": 1, "covers_output": True, "start": 1}),
        retain({"priority": 1, "colour": "red"}),
        retain({"priority": 1, "duration": float("inf")}),
        retain("none"),  # type: ignore[arg-type]
        retain(scope=5),
        retain(scope="s" * 1025),
        {"payload": {}},
        {"payload": {"directives": "all"}},
        {"action_version": "2.0"},
        {"action_version": ""},
        retain(*[{"priority": 1}] * 129),
    ],
)
def test_a_malformed_action_is_refused(action: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        rules_of(kv_hints=hints(action))


def test_several_actions_share_a_scope_and_are_not_too_many() -> None:
    keep = {"priority": 1}
    with pytest.raises(InvalidValueError, match="scope"):
        rules_of(kv_hints=hints(retain(keep, scope="a"), retain(keep, scope="b")))
    with pytest.raises(InvalidValueError, match="17"):
        rules_of(kv_hints=hints(*(retain(keep) for _ in range(17))))


@pytest.mark.parametrize("version", ["", "1.0", "00.1", "x"])
def test_another_protocol_is_refused(version: str) -> None:
    """GRPC-2: kv_hints of major version 0 are understood."""
    with pytest.raises(InvalidValueError, match="protocol_version"):
        rules_of(kv_hints=hints(version=version))


def test_unknown_actions_are_named_to_the_caller_and_have_no_effect(client: Client, device: ScriptedDevice) -> None:
    """GRPC-2: in trailing metadata, as JSON."""
    envelope = hints(
        {"action_id": "a1", "action_type": "kv.move", "action_version": "9"},
        retain({"priority": 1}, scope="x") | {"action_id": "a2"},
        {"action_id": "ä\n", "action_type": "kv.other"},
    )
    client.generate(kv_hints=envelope)
    assert json.loads(client.trailing["x-kv-hints-ignored"]) == [
        {"action_id": "a1", "action_type": "kv.move"},
        {"action_id": "ä\n", "action_type": "kv.other"},
    ]
    assert device.requests[0].retention is not None
    client.stream(kv_hints=hints({"action_type": "kv.move"}))
    assert "x-kv-hints-ignored" in client.trailing
    assert device.requests[1].retention is None
    client.generate()
    assert "x-kv-hints-ignored" not in client.trailing


def test_what_is_told_of_unknown_actions_is_bounded(client: Client) -> None:
    """Headers have a limit at the client."""
    client.generate(kv_hints=hints(*({"action_type": "t" * 500, "action_id": str(i)} for i in range(1000))))
    told = client.trailing["x-kv-hints-ignored"]
    assert len(told) <= 2100
    assert json.loads(told)
