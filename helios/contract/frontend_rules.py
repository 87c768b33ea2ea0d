"""Rules over the frontend: ends of generation, syntaxes and their markers, message boundaries (FE-1 to FE-4).

They know markers as text and no tokenizer: whether a marker is one token is for the frontend, who has the vocabulary. A frontend
that passes has the data that its syntaxes need, and none that nothing would read.
"""

from __future__ import annotations

from collections.abc import Iterator

from helios.contract.enums import MessageRole, ReasoningSyntax, ToolSyntax
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import contract_pb2 as contract

MAX_EOS = 16  # HELIOS_MAX_EOS of kernels.h
MAX_MARKER_CHARACTERS = 200
MAX_NEWLINES = 4

# A reasoning syntax that only one tool syntax can carry, the tool syntax that needs a reasoning syntax of its own, and the one
# whose elements leave no place for tags.
_NEEDS_TOOL = {
    ReasoningSyntax.XTML_THINK: ToolSyntax.XTML,
    ReasoningSyntax.RECIPIENT_HEADERS: ToolSyntax.RECIPIENT_FRAMES,
}
_NEEDS_REASONING = {ToolSyntax.RECIPIENT_FRAMES: ReasoningSyntax.RECIPIENT_HEADERS}
_NEVER_TOGETHER = (ToolSyntax.XTML, ReasoningSyntax.THINK_TAGS)


@rule("frontend", "prompt and output need their syntax, and generation its ends")
def frontend(subject: Subject) -> Violations:
    model = subject.model
    if not model.HasField("frontend"):
        yield "field 'frontend' is missing"
    n_eos = len(model.frontend.eos_tokens)
    if n_eos > MAX_EOS:
        yield f"frontend, field 'eos_tokens' has {n_eos} tokens, at most {MAX_EOS} are served"
    for token in model.frontend.eos_tokens:
        if token >= model.vocabulary:
            yield f"frontend, field 'eos_tokens' has token {token:,}, the vocabulary ends at {model.vocabulary:,}"
    for token in repeated(model.frontend.eos_tokens):
        yield f"frontend, field 'eos_tokens' has token {token} twice"


@rule("syntax-pairs", "some syntaxes share their frames, and one parser consumes both (FE-2)")
def syntax_pairs(subject: Subject) -> Violations:
    tool, reasoning = _syntaxes(subject)
    if _NEEDS_TOOL.get(reasoning, tool) is not tool:
        needed = _NEEDS_TOOL[reasoning].name
        yield f"frontend, field 'reasoning_syntax' is {reasoning.name}, which needs the tool syntax {needed}"
    if _NEEDS_REASONING.get(tool, reasoning) is not reasoning:
        needed = _NEEDS_REASONING[tool].name
        yield f"frontend, field 'tool_syntax' is {tool.name}, which needs the reasoning syntax {needed}"
    if (tool, reasoning) == _NEVER_TOGETHER:
        yield f"frontend, field 'reasoning_syntax' is {reasoning.name}, which the tool syntax {tool.name} cannot carry"


@rule("syntax-data", "a syntax has its markers, and no syntax has none (FE-2)")
def syntax_data(subject: Subject) -> Violations:
    tool, reasoning = _syntaxes(subject)
    frontend = subject.model.frontend
    expected = {
        "tool_markers": tool is not ToolSyntax.NONE,
        "reasoning_markers": reasoning is not ReasoningSyntax.NONE,
        "assistant": tool is not ToolSyntax.NONE or reasoning is not ReasoningSyntax.NONE,
    }
    for name, is_expected in expected.items():
        if frontend.HasField(name) != is_expected:
            says = "is missing" if is_expected else "is given"
            yield f"frontend, field {name!r} {says}, the syntaxes are {tool.name} and {reasoning.name}"


@rule("markers", "a parser waits for text that can come")
def markers(subject: Subject) -> Violations:
    tool, reasoning = _syntaxes(subject)
    frontend = subject.model.frontend
    if tool is not ToolSyntax.NONE:
        yield from _pair_problems("tool_markers, call", frontend.tool_markers.call)
        yield from _text_problems("tool_markers", "tag_separator", frontend.tool_markers.tag_separator, needed=False)
        yield from _text_problems("tool_markers", "call_separator", frontend.tool_markers.call_separator, needed=False)
        recipient = frontend.tool_markers.generic_recipient
        if bool(recipient) != (tool is ToolSyntax.RECIPIENT_FRAMES):
            yield f"frontend, tool_markers, field 'generic_recipient' is {recipient[:50]!r} for {tool.name}"
    has_headers = reasoning is ReasoningSyntax.RECIPIENT_HEADERS
    if reasoning is not ReasoningSyntax.NONE and not has_headers:
        yield from _pair_problems("reasoning_markers, reasoning", frontend.reasoning_markers.reasoning)
    if has_headers and frontend.reasoning_markers.HasField("reasoning"):
        yield "frontend, reasoning_markers, field 'reasoning' is given, headers delimit reasoning"
    if frontend.HasField("assistant"):
        yield from _boundary_problems(frontend.assistant, has_headers)


def _pair_problems(where: str, pair: contract.Markers) -> Iterator[str]:
    yield from _text_problems(where, "opener", pair.opener)
    yield from _text_problems(where, "closer", pair.closer)
    if pair.opener == pair.closer:
        yield f"frontend, {where}, field 'closer' is {pair.closer!r}, the opener too"
    for side in ("before_opener", "after_opener", "before_closer", "after_closer"):
        n_newlines = getattr(pair, f"newlines_{side}")
        if n_newlines > MAX_NEWLINES:
            yield f"frontend, {where}, field 'newlines_{side}' is {n_newlines:,}, not 0 to {MAX_NEWLINES}"


def _text_problems(where: str, field: str, text: str, *, needed: bool = True) -> Iterator[str]:
    if not needed <= len(text) <= MAX_MARKER_CHARACTERS:
        yield f"frontend, {where}, field {field!r} has {len(text)} characters, not {needed:d} to {MAX_MARKER_CHARACTERS}"


def _boundary_problems(assistant: contract.AssistantBoundary, has_headers: bool) -> Iterator[str]:
    yield from _text_problems("assistant", "opener", assistant.opener)
    yield from _text_problems("assistant", "message_end", assistant.message_end, needed=False)
    for field in ("header_end", "internal_end"):
        text = getattr(assistant, field)
        yield from _text_problems("assistant", field, text, needed=has_headers)
        if text and not has_headers:
            yield f"frontend, assistant, field {field!r} is {text[:50]!r} without recipient headers"


@rule("reasoning-terminals", "only the opener of a tool call ends reasoning without its closer (FE-2)")
def reasoning_terminals(subject: Subject) -> Violations:
    frontend = subject.model.frontend
    opener = frontend.tool_markers.call.opener
    for marker in frontend.reasoning_markers.terminal_markers:
        if not marker or marker != opener:
            says = f"the tool call's opener is {opener[:50]!r}" if opener else "no tool syntax is declared"
            yield f"frontend, reasoning_markers, field 'terminal_markers' has {marker[:50]!r}, {says}"
    for marker in repeated(frontend.reasoning_markers.terminal_markers):
        yield f"frontend, reasoning_markers, field 'terminal_markers' has {marker[:50]!r} twice"


@rule("prefix-boundaries", "a role has one rule for where a prompt may be cut (FE-4)")
def prefix_boundaries(subject: Subject) -> Violations:
    for role in repeated(boundary.role for boundary in subject.model.frontend.prefix_boundaries):
        yield f"frontend, field 'prefix_boundaries' has the role {MessageRole(role).name} twice"


def _syntaxes(subject: Subject) -> tuple[ToolSyntax, ReasoningSyntax]:
    frontend = subject.model.frontend
    return ToolSyntax(frontend.tool_syntax), ReasoningSyntax(frontend.reasoning_syntax)


RULES: tuple[Rule, ...] = (
    frontend,
    syntax_pairs,
    syntax_data,
    markers,
    reasoning_terminals,
    prefix_boundaries,
)
