"""The body of `POST /v1/chat/completions`, checked into a typed ChatRequest.

It knows the OpenAI field names and nothing of templates, tokens or responses. What it returns is complete: no later step
looks at the JSON again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from helios.errors import InvalidValueError
from helios.prompt.conversation import Conversation
from helios.prompt.grammar.request import StructuredRequest, read_structured
from helios.server.conversation_fields import read_messages
from helios.server.fields import Fields
from helios.server.options import MAX_CANDIDATES, GenerationOptions, Limits, read_options
from helios.server.stop_fields import check_ending
from helios.server.template_fields import read_prompt_ending
from helios.server.unserved import CHAT, refuse_unserved


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to continue, how, and in which form."""

    conversation: Conversation
    structured: StructuredRequest
    options: GenerationOptions


def read_chat_request(fields: Fields, limits: Limits, new_seed: int) -> ChatRequest:
    """Check a request body; raises RequestError naming the field. `new_seed` is used when the request gives none."""
    refuse_unserved(fields, CHAT)
    options = read_options(fields, limits, limit_names=("max_completion_tokens", "max_tokens"), new_seed=new_seed)
    sampling = dataclasses.replace(options.sampling, candidates=_read_candidates(fields))
    structured = read_structured(fields.table)
    check_form(structured, options, limits)
    conversation = read_conversation(fields, structured)
    return ChatRequest(conversation, structured, dataclasses.replace(options, sampling=sampling))


def check_form(
    structured: StructuredRequest, options: GenerationOptions, limits: Limits, *, stop_name: str = "stop"
) -> None:
    """What the model can call, and what cannot stand beside the answer's form."""
    if structured.callable_tools and not limits.calls_tools:
        raise InvalidValueError("this model calls no tools", hint="leave them out", param="tools")
    form_param = None if structured.answer is None else structured.answer.param
    check_ending(options.stops, form_param, ignores_eos=options.ignores_eos, stop_name=stop_name)


def read_conversation(fields: Fields, structured: StructuredRequest) -> Conversation:
    """The conversation in a body. Tools that may not be called are not shown either."""
    messages = read_messages(fields)
    ending = read_prompt_ending(fields, messages)
    return Conversation(
        messages=messages,
        tools=tuple(fields.list("tools") or ()) if structured.callable_tools else None,
        adds_generation_prompt=ending.adds_generation_prompt,
        continues_final_message=ending.continues_final_message,
        variables=ending.variables,
    )


def _read_candidates(fields: Fields) -> int | None:
    """Alternatives to report for each token: None without `logprobs`, else `top_logprobs` or 0."""
    is_asked = fields.boolean("logprobs")
    n_candidates = fields.integer("top_logprobs", 0, MAX_CANDIDATES)
    if n_candidates and not is_asked:
        raise InvalidValueError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return (n_candidates or 0) if is_asked else None
