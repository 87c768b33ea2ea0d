"""Structured requests to compiled grammars, for the tokens and the answer syntax of one model.

It knows the tokenizer and the frontend's syntax data, no request body and no scheduler. Compiling is native code without the
interpreter lock, bounded in size and steps; a compiled grammar serves any number of choices, each with a constraint of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from helios.contract.enums import ToolSyntax
from helios.contract.frontend import Frontend
from helios.errors import ConstraintError, InvalidValueError
from helios.prompt.grammar.calls import CallableTool
from helios.prompt.grammar.constraint import GrammarConstraint
from helios.prompt.grammar.envelope import Content, envelope, markers_of
from helios.prompt.grammar.forms import form_expression
from helios.prompt.grammar.lark import LarkText, Spelling, first_line
from helios.prompt.grammar.opening import Opening
from helios.prompt.grammar.request import StructuredRequest, Tool, ToolUse
from helios.prompt.grammar.schema import enforceable
from helios.tokenizer.tokenizer import Tokenizer

_CACHED = 64
# A row holds two items for each optional property. The states of a lexer take up to 2 kB each: 50,000 are 100 MB at the very most.
_LIMITS = LLParserLimits(max_items_in_row=4_000, max_lexer_states=50_000, verbose_errors=False)


class CompiledGrammar:
    """A grammar that was accepted. Safe to use from several threads."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher  # never advanced, only copied
        self._vocabulary = vocabulary

    def start(self) -> GrammarConstraint:
        """A constraint at the beginning of the answer."""
        return GrammarConstraint(self._matcher.deep_copy(), self._vocabulary)


class Grammars:
    """Made once for an engine: 0.1 s and 12 MiB for 50,000 tokens. `vocabulary` is the model's, which may be larger
    than the tokenizer's."""

    def __init__(self, tokenizer: Tokenizer, frontend: Frontend, vocabulary: int) -> None:
        self._frontend = frontend
        self._vocabulary = vocabulary
        self._spelling = Spelling(tokenizer, markers_of(frontend))
        self._tokens = _library_tokens(tokenizer, self._spelling, frontend.eos_tokens, vocabulary)
        self._compiled: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, request: StructuredRequest, opening: Opening = Opening.EITHER) -> CompiledGrammar | None:
        """The grammar of an answer, None where every token is allowed. InvalidValueError for what cannot be enforced."""
        if not request.is_constrained:
            return None
        if not self._frontend.eos_tokens:
            raise InvalidValueError("a structured answer needs an end of generation, which this model does not declare")
        text = self._written(request, opening)
        with self._lock:
            found = self._compiled.get(text)
            if found is not None:
                self._compiled.move_to_end(text)
                return found
        compiled = self._new(text, request.param)
        with self._lock:
            self._compiled[text] = compiled
            if len(self._compiled) > _CACHED:
                self._compiled.popitem(last=False)
        return compiled

    def _written(self, request: StructuredRequest, opening: Opening) -> str:
        lark = LarkText(self._spelling)
        tools = self._tools(request)
        form = None if request.answer is None else form_expression(lark, request.answer)
        content = Content(
            form, tools, request.tool_use is ToolUse.REQUIRED, request.is_parallel and request.named is None
        )
        return lark.written(envelope(lark, self._frontend, content, opening))

    def _tools(self, request: StructuredRequest) -> list[CallableTool]:
        if request.tool_use is ToolUse.NONE or not request.tools:
            return []
        if self._frontend.tool_syntax is ToolSyntax.NONE:
            raise InvalidValueError("this model has no syntax for tool calls", hint="leave tools out", param="tools")
        called = [tool for tool in request.tools if request.named in (None, tool.name)]
        return [self._callable(tool, request.tool_use) for tool in called]

    def _callable(self, tool: Tool, use: ToolUse) -> CallableTool:
        """A strict tool's schema is enforced always, another's where a call is asked for."""
        if not tool.is_strict and use is ToolUse.AUTO:
            return CallableTool(tool.name, _loose(tool.parameters), tool.param)
        schema = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
        return CallableTool(tool.name, enforceable(schema, tool.param, self._spelling.can_spell), tool.param)

    def _new(self, text: str, param: str) -> CompiledGrammar:
        matcher = LLMatcher(self._tokens, text, log_level=0, limits=_LIMITS)
        compiled = CompiledGrammar(matcher, self._vocabulary)
        if not matcher.is_error():
            try:
                compiled.start().mask()  # what takes too many steps, or allows nothing, shows here
                return compiled
            except ConstraintError as error:
                problem = error.message
        else:
            problem = first_line(matcher.get_error())
        raise InvalidValueError(f"{param} cannot be enforced: {problem}", param=param)


def _loose(parameters: Any) -> Mapping[str, Any]:
    """The schema of an object that may have a tool's parameters, whatever they hold."""
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return (
        {"type": "object", "properties": dict.fromkeys(properties, True)}
        if isinstance(properties, dict)
        else {"type": "object"}
    )


class _Vocabulary:
    """What the library asks of a tokenizer. It is never asked to tokenize: forcing is off in every grammar."""

    def __init__(self, tokenizer: Tokenizer, spelling: Spelling, eos_token: int, vocabulary: int) -> None:
        table = list(tokenizer.byte_table(skip_special=False))[:vocabulary]
        self.tokens = table + [b""] * (vocabulary - len(table))
        self.special_token_ids = sorted(spelling.special_tokens)
        self.eos_token_id = eos_token
        self.bos_token_id = None
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", errors="replace"), allow_special=False)


def _library_tokens(
    tokenizer: Tokenizer, spelling: Spelling, eos_tokens: tuple[int, ...], vocabulary: int
) -> LLTokenizer:
    eos = list(eos_tokens) or [0]
    return LLTokenizer(TokenizerWrapper(_Vocabulary(tokenizer, spelling, eos[0], vocabulary)), eos_token=eos)
