"""Which recipe captures which architecture: the one list of what Helios can prepare.

It knows names only. A recipe is chosen by the checkpoint's `general.architecture` and by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helios.errors import CheckpointError
from helios.ignition.capture import Capture
from helios.ignition.checkpoints.gguf import Gguf
from helios.ignition.preparation.geometry import ServingGeometry
from helios.ignition.preparation.kv_format import KvFormat
from helios.ignition.recipes.hyperparameters import DenseHyperparameters
from helios.ignition.recipes.llama import CapturedModel, capture_dense


@dataclass(frozen=True, slots=True)
class Recipe:
    """A dense decoder whose queries and keys are rotated in `pairs`: "interleaved" (2i, 2i+1) or "half" (i, i + n/2)."""

    pairs: str

    def capture(
        self,
        checkpoint: Gguf,
        hyper: DenseHyperparameters,
        geometry: ServingGeometry,
        kv_format: KvFormat,
        capture: Capture,
    ) -> CapturedModel:
        return capture_dense(checkpoint, hyper, geometry, kv_format, capture, pairs=self.pairs)


# GGUF stores Llama's queries and keys permuted for interleaved pairs, and Qwen2's as they were trained.
RECIPES: Mapping[str, Recipe] = {"llama": Recipe("interleaved"), "qwen2": Recipe("half")}


def recipe_for(architecture: str) -> Recipe:
    """Raises CheckpointError with the known names."""
    if architecture not in RECIPES:
        raise CheckpointError(
            f"architecture {architecture[:100]!r} is not one that this build prepares",
            hint=f"it prepares {', '.join(sorted(RECIPES))}",
        )
    return RECIPES[architecture]
