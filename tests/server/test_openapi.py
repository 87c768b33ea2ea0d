"""The OpenAPI document against the server that it describes: what breaks it is refused, what is answered keeps to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from helios.errors import RequestError
from helios.server.frontend import Frontend
from helios.server.openapi.noted import noted_properties
from helios.server.routes import ROUTES
from helios.settings import Settings
from helios.tokenizer.tokenizer import Tokenizer
from tests.server.conftest import RunningServer, run_server
from tests.server.scripted_engine import ScriptedEngine

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
N_EXAMPLES = 25
WITH_BODY = [route.path for route in ROUTES if route.method == "POST"]
ASKED = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def described(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    engine = ScriptedEngine(tokenizer, scores_prompts=False)
    server = run_server(engine, Settings(port=0, drain_timeout=0.2))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def document(described: RunningServer) -> dict[str, Any]:
    status, headers, body = described.exchange("GET", "/openapi.json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def schema_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """A component as a schema of its own."""
    return {**document["components"]["schemas"][name], "components": document["components"]}


def body_schema(document: dict[str, Any], path: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema


# -- the document


def test_every_route_is_described_and_nothing_else(document: dict[str, Any]) -> None:
    described = {
        (method.upper(), path.replace("{model}", "")) for path, ways in document["paths"].items() for method in ways
    }
    assert described == {(route.method, route.path) for route in ROUTES if route.path != "*"}  # which is no path


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for path, ways in document["paths"].items():
        if "post" in ways:
            jsonschema.Draft202012Validator.check_schema(body_schema(document, path))


def test_ranges_are_those_that_are_checked(document: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Taken from the readers, and with this model's own names and vocabulary."""
    chat = body_schema(document, "/v1/chat/completions")["properties"]
    assert chat["temperature"] == {"type": ["number", "null"], "minimum": 0, "maximum": 2}
    assert chat["top_logprobs"] == {"type": ["integer", "null"], "minimum": 0, "maximum": 20}
    assert chat["stream_options"]["properties"] == {"include_usage": {"type": ["boolean", "null"]}}
    assert chat["model"] == {"enum": ["scripted-1b", "scripted", None]}
    assert chat["stop_token_ids"]["items"]["maximum"] == tokenizer.vocabulary_size - 1
    assert chat["best_of"] == {"enum": [None, 1]}
    assert body_schema(document, "/v1/completions")["properties"]["logprobs"]["type"] == ["integer", "null"]
    assert body_schema(document, "/v1/messages")["properties"]["top_k"]["type"] == ["integer", "null"]


def test_no_field_that_is_read_is_without_a_form(document: dict[str, Any]) -> None:
    """A new field whose value a reader looks at itself has to be written down with the bodies."""
    for path in WITH_BODY:
        schema = body_schema(document, path)
        for body in schema.get("anyOf", [schema]):
            assert [name for name, field in body["properties"].items() if not field] == []


def test_what_is_asked_is_noted() -> None:
    def read(fields: Any) -> None:
        fields.integer("a", 1, 5)
        fields.value("b")
        inside = fields.object("c")
        assert inside.text("d") == "x"
        assert fields.object("e") is None
        fields.table.get("f")

    assert noted_properties(read, {"a": 3, "c": {"d": "x"}}) == {
        "a": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
        "b": {},
        "c": {"type": ["object", "null"], "properties": {"d": {"type": ["string", "null"]}}},
        "e": {"type": ["object", "null"]},
        "f": {},
    }


def test_keys_are_described_where_they_are_wanted(
    document: dict[str, Any], tokenizer: Tokenizer, tmp_path: Any
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret")
    keys.chmod(0o600)
    assert all(way["security"] == [] for ways in document["paths"].values() for way in ways.values())
    server = run_server(ScriptedEngine(tokenizer), Settings(port=0, api_key_file=str(keys), drain_timeout=0.2))
    try:
        guarded = json.loads(server.exchange("GET", "/openapi.json", headers={"X-Api-Key": "secret"})[2])
        assert server.exchange("GET", "/openapi.json")[0] == 401
    finally:
        server.stop()
    open_paths = {path for path, ways in guarded["paths"].items() if not next(iter(ways.values()))["security"]}
    assert open_paths == {"/", "/health", "/ready"}
    assert "401" in guarded["paths"]["/tokenize"]["post"]["responses"]


# -- generated requests

READ = ["/v1/models", "/v1/models/{model}", "/tokenizer_info", "/health", "/ready", "/openapi.json"]
CASES = [(path, GenerationMode.POSITIVE) for path in (*READ, *WITH_BODY)] + [
    (path, GenerationMode.NEGATIVE) for path in WITH_BODY
]


@pytest.mark.parametrize(("path", "mode"), CASES, ids=[f"{path}-{mode.value}" for path, mode in CASES])
def test_generated_requests_are_answered_as_described(
    described: RunningServer, document: dict[str, Any], path: str, mode: GenerationMode
) -> None:
    """Issue 6: no 5xx, no answer or event that is not described, and what breaks the schema is refused."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=described.url)
    operation = schema[path]["POST" if path in WITH_BODY else "GET"]

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=N_EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    def run(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, timeout=30)

    run()


# -- every field by itself

PROBES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 17, 21, 101, 1.5, -2.5, -1e9, 1 << 40, 1 << 64, "", "x", "none", "0", "x" * 5000,
    [], [1], [1.5], ["x"], [""], ["a", "b", "c", "d", "e"], [[1]], [[]], [None], [{}], list(range(1025)), [{"role": "user"}],
    {}, {"1": 1}, {"1": 101}, {"x": 1}, {"01": 1}, {"type": "text"}, {"type": "x"}, {"type": "function"}, {"regex": ""},
    {"include_usage": 1}, {"choice": []}, [{"role": "x", "content": "x"}], [{"type": "function", "function": {"name": "a b"}}],
    [{"role": "tool", "content": None}], [{"role": "user", "content": [{"type": "text"}]}],
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_field_that_breaks_its_schema_is_refused(
    described: RunningServer, document: dict[str, Any], path: str
) -> None:
    """Each field alone, each value: refused where the schema says so, and never more than refused."""
    schema = body_schema(document, path)
    frontend = Frontend(described.engine, 1)  # type: ignore[arg-type]
    prepare = frontend.prepare_chat if "chat" in path else frontend.prepare_completion
    taken: list[str] = []
    for name, field in schema["properties"].items():
        validator = jsonschema.Draft202012Validator(field)
        for value in PROBES:
            with suppress(RequestError):
                prepare(json.dumps(schema["examples"][0] | {name: value}).encode())
                if not validator.is_valid(value):
                    taken.append(f"{name}={str(value)[:60]}")
    frontend.close()
    assert taken == []


# -- written requests, and whole answers

ANSWERED = [
    {},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"logprobs": True, "top_logprobs": 2, "n": 2},
    {"stream": True, "logprobs": True, "top_logprobs": 1},
    {"return_token_ids": True, "return_token_timestamps": True},
    {"stream": True, "return_token_ids": True, "return_token_timestamps": True, "max_tokens": 2},
]


@pytest.mark.parametrize("fields", ANSWERED, ids=str)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_answers_and_chunks_keep_to_their_schemas(
    described: RunningServer, document: dict[str, Any], path: str, fields: dict[str, Any]
) -> None:
    """Closed schemas: a field that is not described would be seen."""
    described.engine.logprob = -0.25
    name, asked = ("ChatCompletion", ASKED) if "chat" in path else ("Completion", {"prompt": "hi"})
    if name == "Completion" and "logprobs" in fields:
        fields = {name: value for name, value in fields.items() if name != "top_logprobs"} | {"logprobs": 2}
    body = asked | fields
    jsonschema.validate(body, body_schema(document, path), jsonschema.Draft202012Validator)
    status, _, content = described.exchange("POST", path, json.dumps(body).encode())
    assert status == 200, content
    if "stream" not in fields:
        jsonschema.validate(json.loads(content), schema_of(document, name))
        return
    *chunks, end = [block.removeprefix("data: ") for block in content.decode().split("\n\n") if block]
    assert end == "[DONE]"
    for chunk in chunks:
        jsonschema.validate(json.loads(chunk), schema_of(document, name + "Chunk"))


@pytest.mark.parametrize("path", WITH_BODY)
def test_the_examples_of_the_document_are_served(described: RunningServer, document: dict[str, Any], path: str) -> None:
    for example in body_schema(document, path)["examples"]:
        assert described.exchange("POST", path, json.dumps(example).encode())[0] == 200
