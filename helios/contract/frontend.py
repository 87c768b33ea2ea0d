"""The frontend part of a prepared contract: selectors, markers, message boundaries and image tokens as frozen values.

It knows the schema and keeps no message. Which data a syntax has, and which it lacks, is settled by `frontend_rules.py` and
`vision_rules.py` before anything here is built.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.contract.enums import (
    ImageLayout,
    ImagePreparation,
    MessageRole,
    ReasoningSyntax,
    RenderingConstraint,
    ToolSyntax,
)
from helios.contract.schema import contract_pb2


@dataclass(frozen=True, slots=True)
class Markers:
    """A pair of markers; the counts say how many newlines beside each belong to the markup."""

    opener: str
    closer: str
    newlines_before_opener: int
    newlines_after_opener: int
    newlines_before_closer: int
    newlines_after_closer: int

    @classmethod
    def from_message(cls, message: contract_pb2.Markers) -> Markers:
        return cls(
            opener=message.opener,
            closer=message.closer,
            newlines_before_opener=message.newlines_before_opener,
            newlines_after_opener=message.newlines_after_opener,
            newlines_before_closer=message.newlines_before_closer,
            newlines_after_closer=message.newlines_after_closer,
        )


@dataclass(frozen=True, slots=True)
class ToolMarkers:
    """The markup of tool calls. `generic_recipient` takes any registered name and is empty without recipient frames."""

    call: Markers
    tag_separator: str
    call_separator: str
    generic_recipient: str

    @classmethod
    def from_message(cls, message: contract_pb2.ToolMarkers) -> ToolMarkers:
        call = Markers.from_message(message.call)
        return cls(call, message.tag_separator, message.call_separator, message.generic_recipient)


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markup of reasoning; None where recipient headers delimit it."""

    reasoning: Markers | None
    terminal_markers: tuple[str, ...]

    @classmethod
    def from_message(cls, message: contract_pb2.ReasoningMarkers) -> ReasoningMarkers:
        reasoning = Markers.from_message(message.reasoning) if message.HasField("reasoning") else None
        return cls(reasoning, tuple(message.terminal_markers))


@dataclass(frozen=True, slots=True)
class AssistantBoundary:
    """What brackets the assistant's turn. The last two are empty without recipient headers."""

    opener: str
    message_end: str
    header_end: str
    internal_end: str

    @classmethod
    def from_message(cls, message: contract_pb2.AssistantBoundary) -> AssistantBoundary:
        return cls(message.opener, message.message_end, message.header_end, message.internal_end)


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """Image tokens by id, spans that one round feeds whole as (opener, closer), and how pixels become patches."""

    feature_tokens: tuple[int, ...]
    atomic_spans: tuple[tuple[int, int], ...]
    patch_pixels: int
    merged_patches: int
    min_pixels: int
    max_pixels: int
    channel_mean: tuple[float, ...]
    channel_deviation: tuple[float, ...]

    @classmethod
    def from_message(cls, message: contract_pb2.ImageTokens) -> ImageTokens:
        return cls(
            feature_tokens=tuple(message.feature_tokens),
            atomic_spans=tuple((span.opener, span.closer) for span in message.atomic_spans),
            patch_pixels=message.patch_pixels,
            merged_patches=message.merged_patches,
            min_pixels=message.min_pixels,
            max_pixels=message.max_pixels,
            channel_mean=tuple(message.channel_mean),
            channel_deviation=tuple(message.channel_deviation),
        )


@dataclass(frozen=True, slots=True)
class Frontend:
    """What prompt and output need besides tokenizer and template. Data of a syntax that is NONE is None."""

    tool_syntax: ToolSyntax
    reasoning_syntax: ReasoningSyntax
    image_preparation: ImagePreparation
    image_layout: ImageLayout
    eos_tokens: tuple[int, ...]
    bos_text: str
    eos_text: str
    adds_bos: bool
    tool_markers: ToolMarkers | None
    reasoning_markers: ReasoningMarkers | None
    assistant: AssistantBoundary | None
    prefix_boundaries: tuple[tuple[MessageRole, RenderingConstraint], ...]
    image_tokens: ImageTokens | None

    @classmethod
    def from_message(cls, message: contract_pb2.FrontendContract) -> Frontend:
        has = message.HasField
        return cls(
            tool_syntax=ToolSyntax(message.tool_syntax),
            reasoning_syntax=ReasoningSyntax(message.reasoning_syntax),
            image_preparation=ImagePreparation(message.image_preparation),
            image_layout=ImageLayout(message.image_layout),
            eos_tokens=tuple(message.eos_tokens),
            bos_text=message.bos_text,
            eos_text=message.eos_text,
            adds_bos=message.adds_bos,
            tool_markers=ToolMarkers.from_message(message.tool_markers) if has("tool_markers") else None,
            reasoning_markers=(
                ReasoningMarkers.from_message(message.reasoning_markers) if has("reasoning_markers") else None
            ),
            assistant=AssistantBoundary.from_message(message.assistant) if has("assistant") else None,
            prefix_boundaries=tuple(
                (MessageRole(boundary.role), RenderingConstraint(boundary.constraint))
                for boundary in message.prefix_boundaries
            ),
            image_tokens=ImageTokens.from_message(message.image_tokens) if has("image_tokens") else None,
        )
