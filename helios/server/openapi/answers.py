"""The documents that the server answers with, as JSON schemas.

It knows the fields of responses and chunks and nothing of requests. Where a schema here is closed, a document has no other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helios.server.openapi.noted import Schema

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_LOGPROB: Schema = {"type": "number", "maximum": 0}


def components() -> dict[str, Schema]:
    """Every named schema."""
    return {
        **_errors(),
        **_shared(),
        **_chat(),
        **_completion(),
        **_models(),
        **_tokens(),
        **_states(),
        **_other_apis(),
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _errors() -> dict[str, Schema]:
    error = {"message": _TEXT, "type": _TEXT, "param": _MAYBE_TEXT, "code": _TEXT}
    return {"Error": _closed({"error": _closed(error)})}


def _shared() -> dict[str, Schema]:
    usage = _closed(
        {
            "prompt_tokens": _COUNT,
            "completion_tokens": _COUNT,
            "total_tokens": _COUNT,
            "prompt_tokens_details": _closed({"cached_tokens": _COUNT}),
        },
        {"completion_tokens_details": _closed({"reasoning_tokens": _COUNT})},
    )
    scored = {"token": _TEXT, "logprob": _LOGPROB, "bytes": _array({"type": "integer", "minimum": 0, "maximum": 255})}
    ranked = _closed({"logprob": _LOGPROB, "rank": {"type": ["integer", "null"]}, "decoded_token": _TEXT})
    return {
        "Usage": usage,
        "ChatLogprobs": _closed(
            {
                "content": _array(_closed({**scored, "top_logprobs": _array(_closed(scored))})),
                "refusal": {"type": "null"},
            }
        ),
        "CompletionLogprobs": _closed(
            {
                "tokens": _array(_TEXT),
                "token_logprobs": _array(_or_null(_LOGPROB)),
                "top_logprobs": _array({"type": ["object", "null"], "additionalProperties": _LOGPROB}),
                "text_offset": _array(_COUNT),
            }
        ),
        "PromptLogprobs": _array({"type": ["object", "null"], "additionalProperties": ranked}),
        "Performance": _closed({"ingress_ns": _COUNT, "enqueue_ns": _COUNT, "reused_prompt_tokens": _COUNT}),
    }


def _envelope(kind: str, choice: Schema, *, is_chunk: bool) -> Schema:
    """A response, or a chunk of one, around its choices. Usage is on exactly one of a stream's chunks, if that."""
    usage = {"anyOf": [ref("Usage"), {"type": "null"}]} if is_chunk else ref("Usage")
    required = {
        "id": _TEXT,
        "object": {"const": kind},
        "created": _COUNT,
        "model": _TEXT,
        "choices": _array(choice),
    }
    observed = {
        "prompt_token_ids": _array(_COUNT),
        "reused_prompt_tokens": _COUNT,
        "performance": ref("Performance"),
        "prompt_logprobs": ref("PromptLogprobs"),
    }
    if is_chunk:
        return _closed(required, {"usage": usage, **observed})
    return _closed({**required, "usage": usage}, observed)


def _choice(content: Mapping[str, Schema], logprobs: str, reasons: list[str], *, is_chunk: bool) -> Schema:
    """One choice: its content, and what was observed of its tokens."""
    required = {
        "index": _COUNT,
        **content,
        "logprobs": {"anyOf": [ref(logprobs), {"type": "null"}]},
        "finish_reason": {"enum": [*reasons, None] if is_chunk else reasons},
    }
    observed = {"token_ids": _array(_COUNT), "token_timestamps_ns": _array({"type": "integer"})}
    return _closed(required, {**observed, "prompt_logprobs": ref("PromptLogprobs")})


def _chat() -> dict[str, Schema]:
    reasons = ["stop", "length", "tool_calls"]
    function = _closed({"name": _TEXT, "arguments": _TEXT})
    call = _closed({"id": _TEXT, "type": {"const": "function"}, "function": function})
    message = _closed(
        {"role": {"const": "assistant"}, "content": _MAYBE_TEXT, "refusal": {"type": "null"}},
        {"reasoning_content": _TEXT, "tool_calls": _array(call)},
    )
    piece = _closed(
        {"index": _COUNT, "function": _closed({"arguments": _TEXT}, {"name": _TEXT})}, {"id": _TEXT, "type": _TEXT}
    )
    delta = _closed(
        {}, {"role": {"const": "assistant"}, "content": _TEXT, "reasoning_content": _TEXT, "tool_calls": _array(piece)}
    )
    whole = _choice({"message": message}, "ChatLogprobs", reasons, is_chunk=False)
    chunk = _choice({"delta": delta}, "ChatLogprobs", reasons, is_chunk=True)
    return {
        "ChatCompletion": _envelope("chat.completion", whole, is_chunk=False),
        "ChatCompletionChunk": _envelope("chat.completion.chunk", chunk, is_chunk=True),
    }


def _completion() -> dict[str, Schema]:
    reasons = ["stop", "length"]
    whole, chunk = (
        _choice({"text": _TEXT}, "CompletionLogprobs", reasons, is_chunk=is_chunk) for is_chunk in (False, True)
    )
    return {
        "Completion": _envelope("text_completion", whole, is_chunk=False),
        "CompletionChunk": _envelope("text_completion", chunk, is_chunk=True),
    }


def _models() -> dict[str, Schema]:
    model = {
        "id": _TEXT,
        "object": {"const": "model"},
        "created": _COUNT,
        "owned_by": _TEXT,
        "root": _TEXT,
        "max_model_len": _COUNT,
    }
    return {
        "Model": _closed(model),
        "ModelList": _closed({"object": {"const": "list"}, "data": {**_array(ref("Model")), "minItems": 1}}),
    }


def _tokens() -> dict[str, Schema]:
    rendered = {
        "request_id": _TEXT,
        "token_ids": _array(_COUNT),
        "sampling_params": {"type": "object"},
        "model": _TEXT,
        "stream": {"type": "boolean"},
        "cache_salt": _MAYBE_TEXT,
        "priority": {"type": "integer"},
    }
    counted = {"count": _COUNT, "max_model_len": _COUNT, "tokens": _array(_COUNT)}
    return {
        "Tokens": _closed(counted, {"token_strs": _array(_TEXT)}),
        "Text": _closed({"prompt": _TEXT}),
        "Tokenizer": {"type": "object"},
        "Rendered": _closed(rendered),
        "RenderedPrompts": _array(ref("Rendered")),
    }


def _states() -> dict[str, Schema]:
    return {"State": _closed({"status": _TEXT}), "Version": _closed({"version": _TEXT})}


def _other_apis() -> dict[str, Schema]:
    """Documents whose whole form is OpenAI's Responses and Anthropic's Messages: what a client looks for first."""
    problem = {"type": "object", "required": ["type", "message"]}
    error = _closed({"type": {"const": "error"}, "error": problem}, {"request_id": _TEXT})
    return {
        "Response": _open(
            {"id": _TEXT, "object": {"const": "response"}, "status": _TEXT, "output": _array({"type": "object"})}
        ),
        "Message": _open(
            {
                "id": _TEXT,
                "type": {"const": "message"},
                "role": {"const": "assistant"},
                "content": _array({"type": "object", "required": ["type"]}),
                "stop_reason": _MAYBE_TEXT,
                "usage": {"type": "object"},
            }
        ),
        "MessageTokens": _closed({"input_tokens": _COUNT}),
        "MessageError": error,
    }


def _closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    return {**_open(required, optional), "additionalProperties": False}


def _open(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _array(items: Any) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}
