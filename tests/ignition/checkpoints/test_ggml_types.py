"""Block sizes and dequantised values against the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf as outside
import numpy as np
import pytest

from helios.ignition.checkpoints.ggml_types import READABLE_TYPES, GgmlType, block_elements, dequantize, row_bytes
from helios.ignition.checkpoints.gguf import open_gguf
from tests.ignition.checkpoints import raw_gguf as raw


def test_numbers_and_block_sizes_are_ggmls() -> None:
    for type_ in GgmlType:
        theirs = outside.GGMLQuantizationType[type_.name]
        assert theirs == type_
        assert outside.GGML_QUANT_SIZES[theirs] == (block_elements(type_), row_bytes(type_, block_elements(type_)))


@pytest.mark.parametrize("type_", sorted(READABLE_TYPES), ids=lambda type_: type_.name)
def test_every_readable_type_dequantises_to_the_outside_values(type_: GgmlType, tmp_path: Path) -> None:
    """Random blocks, every nibble and sign, scales that are small, negative and zero."""
    generator = np.random.default_rng(11)
    theirs = outside.GGMLQuantizationType(type_)
    values = generator.standard_normal((6, 128)).astype(np.float32) * np.float32(0.05)
    values[2] = 0
    values[3] *= -1000
    stored = np.ascontiguousarray(outside.quants.quantize(values, theirs))
    path = tmp_path / "one.gguf"
    path.write_bytes(raw.gguf(tensors=[raw.tensor("w", [128, 3, 2], int(type_))], data=stored.tobytes()))
    with open_gguf(path) as file:
        read = dequantize(file.tensor("w", (2, 3, 128)))
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read.reshape(6, 128), outside.quants.dequantize(stored, theirs))
