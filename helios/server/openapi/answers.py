"""The documents that the server answers with, as JSON schemas.

It knows the fields of responses and chunks and nothing of requests. Where a schema here is closed, a document has no other fields.
"""

from __future__ import annotations

from collections.abc import Mapping

from helios.server.openapi.schema import COUNT, MAYBE_TEXT, STRING, Schema, array, or_null, table

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
    error = {"message": STRING, "type": STRING, "param": MAYBE_TEXT, "code": STRING}
    return {"Error": _closed({"error": _closed(error)})}


def _shared() -> dict[str, Schema]:
    usage = _closed(
        {
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "total_tokens": COUNT,
            "prompt_tokens_details": _closed({"cached_tokens": COUNT}),
        },
        {"completion_tokens_details": _closed({"reasoning_tokens": COUNT})},
    )
    scored = {"token": STRING, "logprob": _LOGPROB, "bytes": array({"type": "integer", "minimum": 0, "maximum": 255})}
    ranked = _closed({"logprob": _LOGPROB, "rank": {"type": ["integer", "null"]}, "decoded_token": STRING})
    return {
        "Usage": usage,
        "ChatLogprobs": _closed(
            {
                "content": array(_closed({**scored, "top_logprobs": array(_closed(scored))})),
                "refusal": {"type": "null"},
            }
        ),
        "CompletionLogprobs": _closed(
            {
                "tokens": array(STRING),
                "token_logprobs": array(or_null(_LOGPROB)),
                "top_logprobs": array({"type": ["object", "null"], "additionalProperties": _LOGPROB}),
                "text_offset": array(COUNT),
            }
        ),
        "PromptLogprobs": array({"type": ["object", "null"], "additionalProperties": ranked}),
        "Performance": _closed({"ingress_ns": COUNT, "enqueue_ns": COUNT, "reused_prompt_tokens": COUNT}),
    }


def _envelope(kind: str, choice: Schema, *, is_chunk: bool) -> Schema:
    """A response, or a chunk of one, around its choices. Usage is on exactly one of a stream's chunks, if that."""
    usage = {"anyOf": [ref("Usage"), {"type": "null"}]} if is_chunk else ref("Usage")
    required = {
        "id": STRING,
        "object": {"const": kind},
        "created": COUNT,
        "model": STRING,
        "choices": array(choice),
    }
    observed = {
        "prompt_token_ids": array(COUNT),
        "reused_prompt_tokens": COUNT,
        "performance": ref("Performance"),
        "prompt_logprobs": ref("PromptLogprobs"),
    }
    if is_chunk:
        return _closed(required, {"usage": usage, **observed})
    return _closed({**required, "usage": usage}, observed)


def _choice(content: Mapping[str, Schema], logprobs: str, reasons: list[str], *, is_chunk: bool) -> Schema:
    """One choice: its content, and what was observed of its tokens."""
    required = {
        "index": COUNT,
        **content,
        "logprobs": {"anyOf": [ref(logprobs), {"type": "null"}]},
        "finish_reason": {"enum": [*reasons, None] if is_chunk else reasons},
    }
    observed = {"token_ids": array(COUNT), "token_timestamps_ns": array({"type": "integer"})}
    return _closed(required, {**observed, "prompt_logprobs": ref("PromptLogprobs")})


def _chat() -> dict[str, Schema]:
    reasons = ["stop", "length", "tool_calls"]
    function = _closed({"name": STRING, "arguments": STRING})
    call = _closed({"id": STRING, "type": {"const": "function"}, "function": function})
    message = _closed(
        {"role": {"const": "assistant"}, "content": MAYBE_TEXT, "refusal": {"type": "null"}},
        {"reasoning_content": STRING, "tool_calls": array(call)},
    )
    piece = _closed(
        {"index": COUNT, "function": _closed({"arguments": STRING}, {"name": STRING})}, {"id": STRING, "type": STRING}
    )
    delta = _closed(
        {}, {"role": {"const": "assistant"}, "content": STRING, "reasoning_content": STRING, "tool_calls": array(piece)}
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
        _choice({"text": STRING}, "CompletionLogprobs", reasons, is_chunk=is_chunk) for is_chunk in (False, True)
    )
    return {
        "Completion": _envelope("text_completion", whole, is_chunk=False),
        "CompletionChunk": _envelope("text_completion", chunk, is_chunk=True),
    }


def _models() -> dict[str, Schema]:
    model = {
        "id": STRING,
        "object": {"const": "model"},
        "created": COUNT,
        "owned_by": STRING,
        "root": STRING,
        "max_model_len": COUNT,
    }
    return {
        "Model": _closed(model),
        "ModelList": _closed({"object": {"const": "list"}, "data": array(ref("Model"), minItems=1)}),
    }


def _tokens() -> dict[str, Schema]:
    rendered = {
        "request_id": STRING,
        "token_ids": array(COUNT),
        "sampling_params": {"type": "object"},
        "model": STRING,
        "stream": {"type": "boolean"},
        "cache_salt": MAYBE_TEXT,
        "priority": {"type": "integer"},
    }
    counted = {"count": COUNT, "max_model_len": COUNT, "tokens": array(COUNT)}
    return {
        "Tokens": _closed(counted, {"token_strs": array(STRING)}),
        "Text": _closed({"prompt": STRING}),
        "Tokenizer": {"type": "object"},
        "Rendered": _closed(rendered),
        "RenderedPrompts": array(ref("Rendered")),
    }


def _states() -> dict[str, Schema]:
    return {"State": _closed({"status": STRING}), "Version": _closed({"version": STRING})}


def _other_apis() -> dict[str, Schema]:
    """Documents whose whole form is OpenAI's Responses and Anthropic's Messages: what a client looks for first."""
    problem = {"type": "object", "required": ["type", "message"]}
    error = _closed({"type": {"const": "error"}, "error": problem}, {"request_id": STRING})
    return {
        "Response": table(
            {"id": STRING, "object": {"const": "response"}, "status": STRING, "output": array({"type": "object"})}
        ),
        "Message": table(
            {
                "id": STRING,
                "type": {"const": "message"},
                "role": {"const": "assistant"},
                "content": array({"type": "object", "required": ["type"]}),
                "stop_reason": MAYBE_TEXT,
                "usage": {"type": "object"},
            }
        ),
        "MessageTokens": _closed({"input_tokens": COUNT}),
        "MessageError": error,
    }


def _closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    return {**table(required, optional), "additionalProperties": False}
