"""The CUDA kernels keep what their tests ask of them in every order of threads and in both copy modes.

First-in order with eager copies is what every test in tests/kernels runs; a kernel that lacks a barrier or a wait passes
there. So the tests that cross a block's threads run again here, each under the other conducts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.kernels import (
    test_attention,
    test_distribution,
    test_elementwise,
    test_embed,
    test_linear,
    test_linear_w12,
    test_norm,
    test_page_copy,
    test_rope,
    test_rows_q12,
    test_sample,
    test_score,
    test_state,
)
from tests.kernels.formats import ALL
from tests.kernels.harness import load
from tests.kernels.paged import FORMATS
from tests.simt.conduct import CONDUCTS, Conduct, conducted

Check = Callable[..., None]
ROPE_SHAPE = {"n_heads": 4, "n_kv_heads": 4, "head_dim": 32, "n_rot": 16}
CHECKS: list[Check] = [
    *(partial(test_embed.test_rows_are_those_of_the_tokens, layout=layout, order="serial") for layout in ALL),
    partial(test_norm.test_rms_norm_gathers_and_scales, width=100),
    partial(test_norm.test_quantised_rows_are_within_half_a_step, n_rows=5),
    test_norm.test_ties_round_to_even_and_the_largest_becomes_127,
    partial(test_norm.test_bf16_rows_are_the_nearest_numbers_and_their_sums, order="serial"),
    *(
        partial(test_linear.test_outputs_are_those_of_float64_on_the_same_inputs, layout=a, n_out=99, n_in=288)
        for a in ALL
    ),
    *(partial(test_linear.test_linear_add_adds_and_silu_gate_gates, layout=layout) for layout in ALL),
    partial(test_linear_w12.test_outputs_are_those_of_float64_on_the_same_inputs, n_out=40, n_in=64),
    partial(test_linear_w12.test_linear_add_adds_and_silu_gate_gates, n_rows=11),
    partial(test_rows_q12.test_a_row_has_the_same_bits_in_every_batch_and_fused_with_its_norm, order="serial"),
    partial(test_elementwise.test_bias_is_added_to_live_rows_and_columns, order="serial"),
    partial(test_elementwise.test_silu_gate_is_the_same_in_any_place, width=13, is_in_place=True),
    *(partial(test_attention.test_a_bad_page_hides_only_the_segments_that_need_it, kv=kv) for kv in FORMATS),
    test_attention.test_nan_stays_in_its_row,
    *(
        partial(test_attention.test_both_ways_agree_with_float64_and_with_each_other, shape=(2, 1, 16), kv=kv)
        for kv in FORMATS
    ),
    test_rope.test_overflowing_halves_become_infinite_and_small_ones_subnormal,
    *(
        partial(test_rope.test_rows_are_rotated_and_cached, is_interleaved=each, order="serial", kv=kv, **ROPE_SHAPE)
        for each in (True, False)
        for kv in FORMATS
    ),
    partial(test_page_copy.test_a_saved_page_is_the_page_and_nothing_else_changes, order="serial"),
    partial(test_page_copy.test_a_restored_page_is_the_row_and_nothing_else_changes, order="serial"),
    test_state.test_prompt_and_pending_lanes_expand_to_rows_in_lane_order,
    test_state.test_hundreds_of_lanes_are_placed_one_after_the_other,
    test_state.test_page_table_entries_outside_the_table_are_skipped,
    test_state.test_slot_init_sets_up_rows_and_only_those,
    test_state.test_commit_advances_lanes_and_reports_them,
    test_state.test_hostile_numbers_stay_inside,
    partial(test_sample.test_greedy_takes_the_largest_logit_and_the_lowest_id_on_a_tie, vocabulary=100),
    test_sample.test_penalties_and_bias_are_applied_in_order,
    test_sample.test_only_allowed_tokens_are_chosen,
    test_sample.test_logprobs_are_of_the_raw_logits,
    partial(test_sample.test_exactly_the_kept_tokens_are_drawn, top_k=5, top_p=0.9, min_p=0.0, kind="ties"),
    test_score.test_a_prompt_token_has_the_bits_that_it_has_when_it_is_sampled,
    partial(test_distribution.test_the_rows_that_ask_are_reported_in_order, order="serial", vocabulary=31),
]


@pytest.mark.parametrize("conduct", CONDUCTS[1:], ids=str)
def test_kernels_do_not_depend_on_the_order_of_threads_and_copies(conduct: Conduct) -> None:
    """CARD-3: every kernel of the vocabulary."""
    library = load("simt")
    library.launched.clear()
    for check in CHECKS:
        with conducted(conduct):
            check(library=library)
    assert library.launched == library.kernels.keys()
