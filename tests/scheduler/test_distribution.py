"""What a row of logits says of its tokens, against a plain sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helios.scheduler.distribution import LOWEST_LOGPROB, Distribution

LOGITS = st.lists(st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 0.25, 1.0, 3e38]), min_size=1, max_size=24)


@given(LOGITS, st.data())
def test_ranks_are_those_of_a_sort_with_the_lower_id_first(logits: list[float], data: st.DataObject) -> None:
    """GRPC-3."""
    ids = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=30))
    distribution = Distribution(np.array(logits, np.float32), 1.5)
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    assert distribution.ids_by_rank().tolist() == order
    ranked = distribution.ranked(ids)
    assert [one.token_id for one in ranked] == [token for token in order if token in ids]
    assert [one.rank for one in ranked] == [order.index(one.token_id) + 1 for one in ranked]
    assert all(one.logprob == max(np.float32(logits[one.token_id]) - 1.5, LOWEST_LOGPROB) for one in ranked)
