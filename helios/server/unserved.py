"""Fields that would change the answer and are not served: refused by name, never ignored.

It knows names and the values that ask for nothing. Null always asks for nothing; a field that stands nowhere here and is read
nowhere else is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping

from helios.errors import InvalidValueError
from helios.server.fields import Fields

Neutral = Mapping[str, tuple[object, ...]]

ANYWHERE: Neutral = {
    "functions": ([],), "function_call": ("none", "auto"), "modalities": (["text"],), "audio": (), "web_search_options": (),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (), "grammar": ("",), "json_schema": (),
    "best_of": (1,), "use_beam_search": (False,), "length_penalty": (1,), "include_stop_str_in_output": (False,),
    "min_tokens": (0,), "bad_words": ([],), "allowed_token_ids": (), "truncate_prompt_tokens": (), "chat_template": (),
    "documents": ([],), "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,), "suffix": ("",),
    "typical_p": (1,), "mirostat": (0,), "xtc_probability": (0,), "dry_multiplier": (0,), "logits_processors": ([],),
    "include_reasoning": (True,),
}  # fmt: skip
CHAT: Neutral = {**ANYWHERE, "echo": (False,)}
COMPLETIONS: Neutral = {
    **ANYWHERE, "tools": ([],), "tool_choice": ("none", "auto"), "continue_final_message": (False,),
    "chat_template_kwargs": ({},), "reasoning_effort": (), "top_logprobs": (),
}  # fmt: skip
# What chat takes, under names that other APIs do not have.
OTHER_APIS: Neutral = {
    **ANYWHERE, "n": (1,), "max_completion_tokens": (), "response_format": ({"type": "text"},), "structured_outputs": (),
    "logprobs": (False,), "prompt_logprobs": (), "reasoning_effort": (), "chat_template_kwargs": ({},), "echo": (False,),
    "add_generation_prompt": (True,), "continue_final_message": (False,), "return_token_ids": (False,),
    "return_token_timestamps": (False,),
}  # fmt: skip


def refuse_unserved(fields: Fields, unserved: Neutral, *, hint: str = "leave it out") -> None:
    """Raise InvalidValueError for the first field that asks for what is not served."""
    for name, neutral in unserved.items():
        if not fields.is_neutral(name, neutral):
            raise InvalidValueError(f"{name} is not supported by this server", hint=hint, param=name)
