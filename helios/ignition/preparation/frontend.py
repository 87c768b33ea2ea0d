"""What a checkpoint's chat template says about the answers: turns, tool calls and reasoning, declared as syntax data.

It knows spellings that templates have in common, no architecture. What it does not recognise it declares as no syntax, so that
serving refuses tools instead of guessing; a template without tools of its own gets the built-in preamble.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from helios.contract.schema import contract_pb2 as pb
from helios.errors import CheckpointError
from helios.ignition.preparation.geometry import MAX_EOS
from helios.ignition.preparation.tokenizer import TokenizerFacts
from helios.ignition.preparation.tool_preamble import CALL_CLOSER, CALL_OPENER, with_tool_preamble


@dataclass(frozen=True, slots=True)
class _Turn:
    """How the assistant's turn is opened, and how any turn ends. `sign` in a template tells that it writes such turns."""

    sign: str
    opener: str
    message_end: str


_TURNS = (
    _Turn("<|im_start|>", "<|im_start|>assistant\n", "<|im_end|>"),
    _Turn("<|start_header_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    _Turn("<start_of_turn>", "<start_of_turn>model\n", "<end_of_turn>"),
)
_THINK_OPENER, _THINK_CLOSER = "<think>", "</think>"


def declare_frontend(facts: TokenizerFacts) -> tuple[pb.FrontendContract, TokenizerFacts]:
    """The frontend's part of the contract, and the facts with the template that belongs to it."""
    if len(facts.end_tokens) > MAX_EOS:
        raise CheckpointError(f"the vocabulary has {len(facts.end_tokens)} end tokens, at most {MAX_EOS} are served")
    template = facts.chat_template or ""
    turn = next((turn for turn in _TURNS if turn.sign in template), None)
    tool_syntax, takes_tools = _tool_syntax(template, turn)
    has_reasoning = turn is not None and _THINK_OPENER in template and _THINK_CLOSER in template
    frontend = pb.FrontendContract(
        tool_syntax=tool_syntax,
        reasoning_syntax=pb.REASONING_SYNTAX_THINK_TAGS if has_reasoning else pb.REASONING_SYNTAX_NONE,
        image_preparation=pb.IMAGE_PREPARATION_NONE,
        image_layout=pb.IMAGE_LAYOUT_NONE,
        eos_tokens=facts.end_tokens,
        bos_text=facts.bos_text,
        eos_text=facts.eos_text,
        adds_bos=facts.adds_bos,
    )
    has_tools = tool_syntax != pb.TOOL_SYNTAX_NONE
    if has_tools:
        frontend.tool_markers.CopyFrom(_tool_markers(tool_syntax))
    if has_reasoning:
        frontend.reasoning_markers.CopyFrom(_reasoning_markers(CALL_OPENER if has_tools else None))
    if turn is not None and (has_tools or has_reasoning):
        frontend.assistant.CopyFrom(pb.AssistantBoundary(opener=turn.opener, message_end=turn.message_end))
    if has_tools and not takes_tools:
        facts = dataclasses.replace(facts, chat_template=with_tool_preamble(template))
    return frontend, facts


def _tool_syntax(template: str, turn: _Turn | None) -> tuple[pb.ToolSyntax, bool]:
    """How calls are spelled, and whether the template shows tools itself. Tools in an unknown form are no tools."""
    if turn is None:
        return pb.TOOL_SYNTAX_NONE, False
    if not re.search(r"\btools\b", template):
        return pb.TOOL_SYNTAX_JSON_TAGS, False
    if CALL_OPENER not in template:
        return pb.TOOL_SYNTAX_NONE, True
    if "<function=" in template:
        return pb.TOOL_SYNTAX_FUNCTION_TAGS, True
    if "<arg_key>" in template:
        return pb.TOOL_SYNTAX_ARGUMENT_TAGS, True
    return pb.TOOL_SYNTAX_JSON_TAGS, True


def _tool_markers(syntax: pb.ToolSyntax) -> pb.ToolMarkers:
    """Newlines as the trained templates put them around a call."""
    return pb.ToolMarkers(
        call=pb.Markers(
            opener=CALL_OPENER,
            closer=CALL_CLOSER,
            newlines_before_opener=2 if syntax == pb.TOOL_SYNTAX_FUNCTION_TAGS else 1,
            newlines_after_opener=1,
            newlines_before_closer=1,
            newlines_after_closer=1,
        ),
        tag_separator="\n",
        call_separator="\n",
    )


def _reasoning_markers(tool_opener: str | None) -> pb.ReasoningMarkers:
    return pb.ReasoningMarkers(
        reasoning=pb.Markers(
            opener=_THINK_OPENER,
            closer=_THINK_CLOSER,
            newlines_after_opener=1,
            newlines_before_closer=1,
            newlines_after_closer=2,
        ),
        terminal_markers=[] if tool_opener is None else [tool_opener],
    )
