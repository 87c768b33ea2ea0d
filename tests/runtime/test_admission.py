"""Admissions as staged values."""

from __future__ import annotations

import pytest

from helios.contract.enums import ValueSource
from helios.errors import InvalidValueError
from helios.packing.values import BIAS_ENTRY, MAX_BIAS, MAX_EOS, SAMPLING_ROW
from helios.runtime.admission import admission_values, check_sampling
from helios.scheduler.request import GenerationRequest, SamplingParameters
from helios.scheduler.round import Admission
from helios.scheduler.sequence import Sequence
from tests.ignition.kernel_header import constant


def admission(slot: int, **sampling: object) -> Admission:
    request = GenerationRequest((1, 2, 3), 4, sampling=SamplingParameters(**sampling))  # type: ignore[arg-type]
    return Admission(Sequence(slot, slot, request, 4), slot, 1)


def test_biases_are_staged_in_the_row_of_their_own_request() -> None:
    """CON-6: one, several and no entries beside each other, the rest of each row zero."""
    biases = ((), ((7, -100.0),), ((5, 1.5), (6, 2.5), (9, -3.0)))
    values = admission_values([admission(slot, logit_bias=bias) for slot, bias in enumerate(biases)], vocabulary=10)
    rows = values[ValueSource.LOGIT_BIAS].view(BIAS_ENTRY)
    assert rows.shape == (3, MAX_BIAS)
    for row, bias in zip(rows, biases, strict=True):
        assert tuple((int(token), float(value)) for token, value in row[: len(bias)]) == bias
        assert not row["token"][len(bias) :].any()
        assert not row["value"][len(bias) :].any()


def test_plain_admissions_stage_neither_biases_nor_histograms() -> None:
    values = admission_values([admission(0), admission(1)], vocabulary=10)
    assert ValueSource.LOGIT_BIAS not in values
    assert ValueSource.PROMPT_HISTOGRAM not in values


def test_seed_limit_and_ends_are_staged_beside_the_sampling_row() -> None:
    """CON-6: a program may bind them alone; ids behind the last end are -1."""
    request = GenerationRequest((1,), 9, eos_tokens=(2, 0), sampling=SamplingParameters(seed=(5 << 32) + 7))
    values = admission_values([Admission(Sequence(0, 0, request, 9), 0, 1), admission(1)], vocabulary=10)
    assert values[ValueSource.SEED_BITS][0].tolist() == [7, 5]
    assert values[ValueSource.OUTPUT_LIMIT].tolist() == [9, 4]
    assert values[ValueSource.EOS_TOKENS].tolist() == [[2, 0] + [-1] * 14, [-1] * 16]
    assert {values[source].shape for source in (ValueSource.SEED_BITS, ValueSource.EOS_TOKENS)} == {(2, 2), (2, 16)}


FLAGS: list[tuple[str, dict[str, object]]] = [
    ("PENALTIES", {"repetition_penalty": 1.1}),
    ("PENALTIES", {"frequency_penalty": -0.1}),
    ("PENALTIES", {"presence_penalty": 0.1}),
    ("LOGPROBS", {"candidates": 0}),
    ("BIAS", {"logit_bias": ((0, 0.0),)}),
    ("DISTRIBUTION", {"has_distributions": True}),
    ("DISTRIBUTION", {"named_candidates": (1,)}),
    ("PROMPT_DISTRIBUTION", {"has_prompt_distributions": True}),
    ("PROMPT_DISTRIBUTION", {"named_prompt_candidates": (1,)}),
]


@pytest.mark.parametrize("chosen", [[], *([entry] for entry in FLAGS), FLAGS], ids=str)
def test_a_sampling_row_flags_what_its_request_asks_for(chosen: list[tuple[str, dict[str, object]]]) -> None:
    """CON-6: by the header's own bits, each of its own and all together."""
    wishes = {name: value for _, wish in chosen for name, value in wish.items()}
    of_prompt = {name: value for name, value in wishes.items() if "prompt" in name}
    sampling = SamplingParameters(**{name: value for name, value in wishes.items() if name not in of_prompt})  # type: ignore[arg-type]
    request = GenerationRequest((1, 2, 3), 4, sampling=sampling, **of_prompt)  # type: ignore[arg-type]
    values = admission_values([Admission(Sequence(0, 0, request, 4), 0, 1)], vocabulary=10)
    (flags,) = values[ValueSource.SAMPLING_ROW].view(SAMPLING_ROW)["flags"][0]
    assert flags == sum({constant(f"HELIOS_SAMPLING_{flag}") for flag, _ in chosen})


def test_what_just_fits_staged_rows_is_accepted() -> None:
    check_sampling(SamplingParameters(logit_bias=((0, 1.0), (9, 1.0)) * (MAX_BIAS // 2)), vocabulary=10, n_eos=MAX_EOS)


@pytest.mark.parametrize(
    ("bias", "n_eos", "says"),
    [
        (((0, 1.0),) * (MAX_BIAS + 1), 0, "1025 entries, the limit is 1024"),
        (((0, 1.0), (10, 1.0)), 0, "token 10, the vocabulary has 10"),
        (((0, 1.0), (-1, 1.0)), 0, "token -1, the vocabulary has 10"),
        ((), MAX_EOS + 1, "17 end tokens were given, the limit is 16"),
    ],
)
def test_what_staged_rows_cannot_hold_is_refused(bias: tuple[tuple[int, float], ...], n_eos: int, says: str) -> None:
    """CON-9: staging is bounded."""
    with pytest.raises(InvalidValueError, match=says):
        check_sampling(SamplingParameters(logit_bias=bias), vocabulary=10, n_eos=n_eos)


def test_a_reused_prefix_is_consumed_from_the_start() -> None:
    """CON-6: the slot goes on behind what its prefix holds."""
    plain = admission(0)
    reusing = Admission(admission(1).sequence, 1, 1, consumed=2)
    values = admission_values([plain, reusing], vocabulary=10)
    assert values[ValueSource.CONSUMED_ENDPOINT].tolist() == [0, 2]
    assert values[ValueSource.PROMPT_POSITION].tolist() == [0, 2]


def test_a_sequence_that_comes_back_goes_on_with_its_limit_and_its_counts() -> None:
    """CACHE-3, design 7: after a preemption its output is counted as the device had counted it, and only the rest may follow."""
    returning = admission(0, frequency_penalty=1.0)
    returning.sequence.tokens += [3, 7, 7]
    values = admission_values([returning], vocabulary=10)
    in_prompt = 1 << 31
    assert values[ValueSource.PROMPT_HISTOGRAM].tolist() == [
        [0, in_prompt, in_prompt, in_prompt + 1, 0, 0, 0, 2, 0, 0],
    ]
    assert values[ValueSource.OUTPUT_LIMIT].tolist() == [1]
    assert values[ValueSource.SAMPLING_ROW].view(SAMPLING_ROW)["output_limit"].tolist() == [[1]]
