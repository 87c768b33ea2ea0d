"""Log-probabilities as JSON: for chat, for completions, and for prompts.

It knows tokens' bytes and no flow. Every number is finite, and a token that is no text by itself is spelled so that it can be told
from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from helios.scheduler.request import Token
from helios.server.attribution import TokenPart
from helios.tokenizer.tokenizer import Tokenizer

_LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI writes this


def shown_logprob(logprob: float | None) -> float:
    """A number that JSON can hold."""
    return _LEAST_LOGPROB if logprob is None or not logprob >= _LEAST_LOGPROB else min(logprob, 0.0)


def chat_logprobs(tokenizer: Tokenizer, parts: Iterable[TokenPart]) -> dict[str, Any] | None:
    """`logprobs` of a chat choice: one entry for each token with text in the content."""
    content = [
        {
            **_scored(part.spelled, part.token.logprob),
            "top_logprobs": [
                _scored(tokenizer.token_bytes(token_id), logprob) for token_id, logprob in part.token.candidates
            ],
        }
        for part in parts
    ]
    return {"content": content, "refusal": None} if content else None


def _scored(spelled: bytes, logprob: float | None) -> dict[str, Any]:
    return {
        "token": spelled.decode("utf-8", errors="replace"),
        "logprob": shown_logprob(logprob),
        "bytes": list(spelled),
    }


def completion_logprobs(
    tokenizer: Tokenizer,
    parts: Sequence[TokenPart],
    n_candidates: int,
    first_offset: int = 0,
    *,
    is_prompt: bool = False,
    n_unseen: int = 0,
) -> dict[str, Any]:
    """`logprobs` of a completion choice: four lists of equal length. `first_offset` is where the tokens begin in the text, in
    characters. The first token of a prompt has no score, since nothing stands before it; the first `n_unseen` are not in the text.
    """
    offsets, shown = [], b""
    for index, part in enumerate(parts):
        offsets.append(first_offset + len(shown.decode("utf-8", errors="ignore")))
        shown += b"" if index < n_unseen else part.spelled
    scored = parts[1:] if is_prompt else parts
    unscored = [None] * (len(parts) - len(scored))
    return {
        "tokens": [token_name(part.spelled) for part in parts],
        "token_logprobs": unscored + [shown_logprob(part.token.logprob) for part in scored],
        "top_logprobs": unscored + [_top(tokenizer, part, n_candidates) for part in scored],
        "text_offset": offsets,
    }


def _top(tokenizer: Tokenizer, part: TokenPart, n_candidates: int) -> dict[str, float]:
    """The most likely tokens by name, and the token itself, so that it can be looked up."""
    named = {
        token_name(tokenizer.token_bytes(token_id)): shown_logprob(logprob)
        for token_id, logprob in reversed(part.token.candidates[:n_candidates])
    }
    ordered = dict(reversed(named.items()))
    ordered.setdefault(token_name(tokenizer.token_bytes(part.token.token_id)), shown_logprob(part.token.logprob))
    return ordered


def token_name(spelled: bytes) -> str:
    """A token's text, or its bytes in the spelling that OpenAI has for those that are no text."""
    try:
        return spelled.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def prompt_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[Token], n_candidates: int
) -> list[dict[str, dict[str, Any]] | None]:
    """`prompt_logprobs`: for each prompt token its own score and the best, by id; null for the first."""
    return [None, *(_prompt_entry(tokenizer, token, n_candidates) for token in tokens)]


def _prompt_entry(tokenizer: Tokenizer, token: Token, n_candidates: int) -> dict[str, dict[str, Any]]:
    ranked = [(token.token_id, token.logprob, token.rank)] + [
        (token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(token.candidates[:n_candidates], 1)
    ]
    return {
        str(token_id): {
            "logprob": shown_logprob(logprob),
            "rank": rank,
            "decoded_token": tokenizer.token_bytes(token_id).decode("utf-8", errors="replace"),
        }
        for token_id, logprob, rank in ranked
    }
