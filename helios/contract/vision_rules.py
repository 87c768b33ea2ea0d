"""Rules over image input: feature slots, patches, image tokens, and what the graphs bind of them (CON-12, FE-5).

They know no pixels. A contract either has all of image input (capacities, preparation, layout, token data, an encoding program for
each capacity) or none of it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from helios.contract.enums import ImageLayout, ImagePreparation, ValueSource
from helios.contract.rule import Rule, Subject, Violations, repeated, rule
from helios.contract.schema import contract_pb2 as contract
from helios.contract.schema import execution_pb2 as execution
from helios.contract.sources import PATCH_CHANNELS

MAX_FEATURE_SLOTS = 1 << 16
MAX_FEATURES = 1 << 20
MAX_PATCH_PIXELS = 256
MAX_IMAGE_PIXELS = 1 << 28
_IMAGE_SOURCES = (
    contract.VALUE_SOURCE_IMAGE_FEATURE_INDEX,
    contract.VALUE_SOURCE_IMAGE_CONTEXT_INDEX,
    contract.VALUE_SOURCE_IMAGE_FEATURE_SLOT,
    contract.VALUE_SOURCE_IMAGE_TENSOR,
)


@rule("vision-parts", "image input is declared whole or not at all")
def vision_parts(subject: Subject) -> Violations:
    model, frontend = subject.model, subject.model.frontend
    has_vision = model.HasField("vision")
    present = {
        "image_preparation": ImagePreparation(frontend.image_preparation) is not ImagePreparation.NONE,
        "image_layout": ImageLayout(frontend.image_layout) is not ImageLayout.NONE,
        "image_tokens": frontend.HasField("image_tokens"),
    }
    for name, is_present in present.items():
        if is_present != has_vision:
            says = "selects nothing, the model has vision" if has_vision else "is given without vision"
            yield f"frontend, field {name!r} {says}"


@rule("vision-capacities", "the features of an image fit a slot")
def vision_capacities(subject: Subject) -> Violations:
    if not subject.model.HasField("vision"):
        return
    vision = subject.model.vision
    for name, limit in (("feature_slots", MAX_FEATURE_SLOTS), ("window_features", MAX_FEATURES)):
        if not 0 < getattr(vision, name) <= limit:
            yield f"vision, field {name!r} is {getattr(vision, name):,}, not 1 to {limit:,}"
    if not vision.patches_per_feature:
        yield "vision, field 'patches_per_feature' is 0"
    if not vision.patch_capacities:
        yield "vision, field 'patch_capacities' is empty"
    for smaller, larger in pairwise(vision.patch_capacities):
        if larger <= smaller:
            yield f"vision, field 'patch_capacities' has {larger:,} behind {smaller:,}"
    for capacity in vision.patch_capacities:
        n_features, rest = divmod(capacity, vision.patches_per_feature)
        if rest or not 0 < n_features <= vision.window_features:
            yield (
                f"vision, field 'patch_capacities' has {capacity:,}, not 1 to {vision.window_features:,} features "
                f"of {vision.patches_per_feature:,} patches"
            )


@rule("vision-programs", "each patch capacity was captured")
def vision_programs(subject: Subject) -> Violations:
    declared = set(subject.model.vision.patch_capacities)
    captured = {
        program.packed_token_capacity: program.name
        for program in subject.manifest.programs
        if program.operation == execution.OPERATION_ENCODE_IMAGE
    }
    for capacity in sorted(declared - captured.keys()):
        yield f"vision, field 'patch_capacities' has {capacity:,}, no program encodes that many patches"
    for capacity in sorted(captured.keys() - declared):
        yield f"program {captured[capacity]!r} encodes {capacity:,} patches, vision, field 'patch_capacities' lacks it"


@rule("image-tokens", "an image's tokens may be fed, and no token stands for two things")
def image_tokens(subject: Subject) -> Violations:
    model, tokens = subject.model, subject.model.frontend.image_tokens
    if not model.HasField("vision"):
        return
    if not tokens.feature_tokens:
        yield "image_tokens, field 'feature_tokens' is empty"
    spans = [token for span in tokens.atomic_spans for token in (span.opener, span.closer)]
    for name, ids in (("feature_tokens", tokens.feature_tokens), ("atomic_spans", spans)):
        for token in ids:
            if token >= model.input_vocabulary:
                yield f"image_tokens, field {name!r} has token {token:,}, input ends at {model.input_vocabulary:,}"
    for token in repeated([*tokens.feature_tokens, *spans]):
        yield f"image_tokens, token {token:,} is named twice"


@rule("image-geometry", "pixels become whole patches, and patches whole features")
def image_geometry(subject: Subject) -> Violations:
    tokens = subject.model.frontend.image_tokens
    if not subject.model.HasField("vision"):
        return
    if not 0 < tokens.patch_pixels <= MAX_PATCH_PIXELS:
        yield f"image_tokens, field 'patch_pixels' is {tokens.patch_pixels:,}, not 1 to {MAX_PATCH_PIXELS}"
    ratio = subject.model.vision.patches_per_feature
    if tokens.merged_patches**2 != ratio:
        yield f"image_tokens, field 'merged_patches' is {tokens.merged_patches:,}, a feature has {ratio:,} patches"
    most = min(max(subject.model.vision.patch_capacities) * tokens.patch_pixels**2, MAX_IMAGE_PIXELS)
    if not 0 < tokens.min_pixels <= tokens.max_pixels <= most:
        yield (
            f"image_tokens, fields 'min_pixels' and 'max_pixels' are {tokens.min_pixels:,} and {tokens.max_pixels:,}, "
            f"the largest program encodes {most:,}"
        )
    for name, is_positive in (("channel_mean", False), ("channel_deviation", True)):
        values = getattr(tokens, name)
        if len(values) != PATCH_CHANNELS or any(not math.isfinite(v) or (is_positive and v <= 0) for v in values):
            says = f"{PATCH_CHANNELS} {'numbers above 0' if is_positive else 'finite numbers'}"
            yield f"image_tokens, field {name!r} is not {says}"


@rule("image-sources", "image values come with image input")
def image_sources(subject: Subject) -> Violations:
    if subject.model.HasField("vision"):
        return
    for graph in subject.model.graphs:
        for binding in graph.bindings:
            if binding.source in _IMAGE_SOURCES:
                where = f"graph {graph.program!r}, binding {binding.destination!r}, field 'source'"
                yield f"{where} is {ValueSource(binding.source).name}, the model has no vision"


RULES: tuple[Rule, ...] = (
    vision_parts,
    vision_capacities,
    vision_programs,
    image_tokens,
    image_geometry,
    image_sources,
)
