"""What the table says of a pointer's alignment is what its kernel needs, and no less: the emulator stops at a wider load."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from tests.device.compiling import compiler
from tests.kernels import test_attention, test_distribution, test_embed, test_linear, test_norm, test_rope
from tests.kernels.formats import BF16_ROWS
from tests.kernels.harness import load
from tests.kernels.paged import FORMATS
from tests.simt.conduct import SM_90A_CONDUCTS, Conduct, conducted, failure, set_conduct
from tests.simt.test_conducts import CHECKS, ROPE_SHAPE, Check

linear = test_linear.test_outputs_are_those_of_float64_on_the_same_inputs
attention = test_attention.test_both_ways_agree_with_float64_and_with_each_other
rope = partial(test_rope.test_rows_are_rotated_and_cached, is_interleaved=False, order="serial", **ROPE_SHAPE)
COPIED_AHEAD: list[tuple[str, Check]] = [  # asynchronously, which the emulator checks itself
    *(("weight", partial(linear, layout=layout, n_out=16, n_in=32)) for layout in BF16_ROWS),
    *(("x", partial(linear, layout=layout, n_out=16, n_in=32)) for layout in BF16_ROWS),
    *(("kv", partial(attention, shape=(2, 1, 16), kv=kv)) for kv in FORMATS),
]
OF_STRUCTS: list[tuple[str, Check]] = [
    *(
        ("weight", partial(test_embed.test_rows_are_those_of_the_tokens, layout=layout, order="serial"))
        for layout in BF16_ROWS
        if not layout.startswith("q4")  # four bytes of a row stand together
    ),
    ("y", partial(test_norm.test_bf16_rows_are_the_nearest_numbers_and_their_sums, order="serial")),
    ("y", partial(test_norm.test_quantised_rows_are_within_half_a_step, n_rows=5)),
    ("qkv", partial(rope, kv="q8")),
    *(("kv", partial(rope, kv=kv)) for kv in FORMATS if kv != "q8"),  # which is stored by 4 bytes
    (
        "distributions",
        partial(test_distribution.test_the_rows_that_ask_are_reported_in_order, order="serial", vocabulary=31),
    ),
]


@pytest.mark.parametrize("conduct", [Conduct(), SM_90A_CONDUCTS[0]], ids=str)
def test_kernels_need_no_better_alignment_than_their_table_says(conduct: Conduct) -> None:
    """CARD-3: every kernel of the vocabulary, with no pointer at a multiple of more."""
    library = load("simt", is_barely_aligned=True)
    library.launched.clear()
    for check in CHECKS:
        with conducted(conduct):
            check(library=library)
    assert library.launched == library.kernels.keys()


@pytest.mark.parametrize(("field", "check"), [*COPIED_AHEAD, *OF_STRUCTS])
def test_a_pointer_that_stands_four_bytes_off_is_a_failure_with_its_place(field: str, check: Check) -> None:
    """CARD-3: what would be a misaligned address on a GPU."""
    if (field, check) in OF_STRUCTS and "clang" in compiler().version:
        pytest.skip("only GCC reports a struct that is read or written off its alignment")
    library = load("simt", misplaced=field)
    set_conduct(Conduct())
    with suppress(AssertionError):  # of what the blocks that stopped did not write
        check(library=library)
    said = failure()
    set_conduct(Conduct())
    assert "aligned to its" in said
    assert " at cuda_src/cuda/" in said
