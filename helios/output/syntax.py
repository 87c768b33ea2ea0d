"""How a model spells its answers: the frontend data of its contract, bound to its vocabulary.

It is made once for a model and knows no request. Everything that parsing an answer needs beside the request's tools is here:
which tokens are markup, the state tables, and where in a prompt the open answer begins (FE-2, FE-3).
"""

from __future__ import annotations

from collections.abc import Callable

from helios.contract.enums import ReasoningSyntax, ToolSyntax
from helios.contract.frontend import Frontend
from helios.output.frames import frames_table
from helios.output.markup import Markup
from helios.output.states import StateTable
from helios.output.tagged import tagged_table
from helios.output.xtml import xtml_table
from helios.tokenizer.tokenizer import Tokenizer


class AnswerSyntax:
    """The syntax of one model's answers. Nothing changes after construction, so any number of threads may use it."""

    def __init__(self, frontend: Frontend, tokenizer: Tokenizer) -> None:
        self.markup = Markup(tokenizer)
        self._has_tools = frontend.tool_syntax is not ToolSyntax.NONE
        self.has_frames = frontend.tool_syntax is ToolSyntax.RECIPIENT_FRAMES
        has_elements = frontend.tool_syntax in (ToolSyntax.XTML, ToolSyntax.RECIPIENT_FRAMES)
        self._is_always_parsed = has_elements or frontend.reasoning_syntax is not ReasoningSyntax.NONE
        self._tables = {
            (has_tools, is_structured): _table(frontend, self.markup, has_tools, is_structured)
            for has_tools in ((False, True) if self._has_tools else (False,))
            for is_structured in (False, True)
        }
        assistant, reasoning = frontend.assistant, frontend.reasoning_markers
        self.answer_opener = self.markup.control(assistant.opener) if assistant is not None else ""
        self.message_end = self.markup.control(assistant.message_end) if assistant is not None else ""
        pair = reasoning.reasoning if reasoning is not None else None
        self.reasoning_opener = self.markup.marker(pair.opener) if pair is not None else ""

    def is_parsed(self, *, has_tools: bool) -> bool:
        """Whether an answer can be anything but plain content."""
        return self._is_always_parsed or has_tools or self.markup.has_shown_specials

    def table(self, *, has_tools: bool, is_structured: bool) -> StateTable:
        """The states of an answer to a request with tools, or whose content a grammar constrains."""
        return self._tables[has_tools and self._has_tools, is_structured]


def _table(frontend: Frontend, markup: Markup, has_tools: bool, is_structured: bool) -> StateTable:
    if frontend.tool_syntax is ToolSyntax.RECIPIENT_FRAMES:
        return frames_table(frontend, markup, has_tools=has_tools)
    fill: Callable[..., StateTable] = xtml_table if frontend.tool_syntax is ToolSyntax.XTML else tagged_table
    return fill(frontend, markup, has_tools=has_tools, is_structured=is_structured)
