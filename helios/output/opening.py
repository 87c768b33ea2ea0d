"""What a prompt already holds of the answer that is to follow.

It knows where messages begin and end, and no template. Only the open assistant envelope counts: behind the last message end, what
stands in front of a reasoning opener is a tool's response that the template embedded (FE-4).
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.output.syntax import AnswerSyntax
from helios.tokenizer.tokenizer import Tokenizer

_FIRST_WINDOW = 256  # tokens; the envelope of a prompt that is not continued is much shorter


def open_answer(prompt_tokens: Sequence[int], tokenizer: Tokenizer, syntax: AnswerSyntax) -> str:
    """The marked text of the open answer, "" when the prompt holds nothing of it."""
    if not syntax.answer_opener:
        return ""
    n_tokens = min(_FIRST_WINDOW, len(prompt_tokens))
    while True:
        text = _marked(prompt_tokens[len(prompt_tokens) - n_tokens :], tokenizer, syntax)
        opener, end = text.rfind(syntax.answer_opener), text.rfind(syntax.message_end) if syntax.message_end else -1
        if max(opener, end) >= 0 or n_tokens == len(prompt_tokens):
            return _envelope(text, opener, end, syntax)
        n_tokens = min(2 * n_tokens, len(prompt_tokens))


def _envelope(text: str, opener: int, end: int, syntax: AnswerSyntax) -> str:
    if max(opener, end) < 0:
        return ""
    if syntax.has_frames:
        return text[max(opener, end) :]
    if opener > end:
        return text[opener + len(syntax.answer_opener) :]
    behind = text[end + len(syntax.message_end) :]
    start = behind.rfind(syntax.reasoning_opener) if syntax.reasoning_opener else -1
    return behind[start:] if start >= 0 else ""


def _marked(token_ids: Sequence[int], tokenizer: Tokenizer, syntax: AnswerSyntax) -> str:
    """The marked text of a stretch of tokens; an unfinished character at its end is left out."""
    characters = syntax.markup.characters
    table = tokenizer.byte_table(skip_special=True)
    pieces: list[str] = []
    pending: list[bytes] = []
    for token_id in token_ids:
        if token_id in characters:
            pieces += [b"".join(pending).decode("utf-8", errors="replace"), characters[token_id]]
            pending.clear()
        else:
            pending.append(table[token_id])
    return "".join([*pieces, b"".join(pending).decode("utf-8", errors="ignore")])
