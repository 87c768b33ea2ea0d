"""Admissions as the values that the INITIALIZE program reads: sampling rows, logit biases, prompt histograms.

It knows requests' sampling parameters and the staged rows of `packing/values.py`. Biases and histograms are supplied only when some
admission needs them, so that a plain request stages a few hundred bytes. A sequence that comes back after a preemption is admitted
with what is left of its limit and with its own output counted, so its next token is the one that it would have sampled then.
"""

from __future__ import annotations

from collections.abc import Sequence as List

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.errors import InvalidValueError
from helios.packing import values as staged
from helios.scheduler.request import SamplingParameters
from helios.scheduler.round import Admission
from helios.scheduler.sequence import Sequence


def admission_values(admissions: List[Admission], vocabulary: int) -> staged.Values:
    """Values of an INITIALIZE submission; row i of each array is admission i."""
    n_lanes = len(admissions)
    consumed = np.array([a.consumed for a in admissions], np.int32)
    rows = np.concatenate([_sampling_row(a) for a in admissions])
    is_eos = np.arange(staged.MAX_EOS) < rows["n_eos"][:, np.newaxis]
    values: staged.Values = {
        ValueSource.LIVE_ROW_COUNT: np.array([n_lanes], np.int32),
        ValueSource.SLOT: np.array([a.slot for a in admissions], np.int32),
        ValueSource.GENERATION: np.array([a.generation for a in admissions], np.int32),
        ValueSource.PROMPT_POSITION: consumed,
        ValueSource.CONSUMED_ENDPOINT: consumed,
        ValueSource.SAMPLING_ROW: rows.view(np.uint32).reshape(n_lanes, -1),
        ValueSource.SEED_BITS: rows["seed"],
        ValueSource.OUTPUT_LIMIT: rows["output_limit"],
        ValueSource.EOS_TOKENS: np.where(is_eos, rows["eos"], np.int32(-1)),
    }
    requests = [a.sequence.request for a in admissions]
    if any(r.sampling.logit_bias for r in requests):
        bias = np.zeros((n_lanes, staged.MAX_BIAS), staged.BIAS_ENTRY)
        for row, request in enumerate(requests):
            entries = request.sampling.logit_bias
            bias[row, : len(entries)] = list(entries)  # numpy reads a tuple as one entry, a list as many
        values[ValueSource.LOGIT_BIAS] = bias.view(np.int32).reshape(n_lanes, -1)
    if any(r.sampling.has_penalties for r in requests):
        values[ValueSource.PROMPT_HISTOGRAM] = np.stack([_histogram(a.sequence, vocabulary) for a in admissions])
    return values


def check_sampling(sampling: SamplingParameters, vocabulary: int, n_eos: int) -> None:
    """Raise InvalidValueError for what the staged rows cannot hold; the HTTP layer has already checked ranges."""
    if len(sampling.logit_bias) > staged.MAX_BIAS:
        raise InvalidValueError(
            f"logit_bias has {len(sampling.logit_bias)} entries, the limit is {staged.MAX_BIAS}", param="logit_bias"
        )
    for token, _ in sampling.logit_bias:
        if not 0 <= token < vocabulary:
            raise InvalidValueError(
                f"logit_bias names token {token}, the vocabulary has {vocabulary}", param="logit_bias"
            )
    if n_eos > staged.MAX_EOS:
        raise InvalidValueError(f"{n_eos} end tokens were given, the limit is {staged.MAX_EOS}")


def _sampling_row(admission: Admission) -> np.ndarray[tuple[int, ...], np.dtype[np.void]]:
    request = admission.sequence.request
    sampling = request.sampling
    flags = (
        (staged.SAMPLING_PENALTIES if sampling.has_penalties else 0)
        | (staged.SAMPLING_LOGPROBS if sampling.candidates is not None else 0)
        | (staged.SAMPLING_BIAS if sampling.logit_bias else 0)
        | (staged.SAMPLING_DISTRIBUTION if sampling.needs_distribution else 0)
        | (staged.SAMPLING_PROMPT_DISTRIBUTION if request.needs_prompt_distributions else 0)
    )
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "top_k": sampling.top_k,
        "n_bias": len(sampling.logit_bias),
        "n_candidates": sampling.candidates or 0,
    }
    return staged.sampling_row(
        parameters, sampling.seed, admission.sequence.n_most_remaining, request.eos_tokens, flags
    )


def _histogram(sequence: Sequence, vocabulary: int) -> NDArray[np.uint32]:
    """uint32[V], as the device would have it by now: its prompt's bits, and counts of what the sequence emitted before a
    preemption."""
    histogram = staged.prompt_histogram(sequence.request.prompt_tokens, vocabulary)
    np.add.at(histogram, np.asarray(sequence.tokens[sequence.n_prompt :], np.int64), np.uint32(1))
    return histogram
