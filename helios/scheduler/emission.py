"""What a newly emitted token means: the event that tells of it, and whether its request ends with it; and the scores of prompts.

It knows one verified lane and its request, nothing of rounds. A string stop and a constraint see each token once, in order; end
tokens are not theirs to see.
"""

from __future__ import annotations

from helios.errors import HeliosError
from helios.scheduler.completion import DEVICE_EOS, DEVICE_LIMIT
from helios.scheduler.distribution import Distribution
from helios.scheduler.request import FinishReason, Token
from helios.scheduler.round import Lane, LaneCompletion
from helios.scheduler.sequence import Sequence

DEVICE_REASONS = {DEVICE_EOS: FinishReason.EOS, DEVICE_LIMIT: FinishReason.LIMIT}


def ending_after(sequence: Sequence, completion: LaneCompletion) -> FinishReason | HeliosError | None:
    """Whether a request ends with the token that was just emitted: by the device, by its own string stop, or because its constraint
    failed. The constraint's next mask is made here, where its failure still has someone to be delivered to."""
    reason = DEVICE_REASONS.get(completion.finish)
    if reason is FinishReason.EOS or not sequence.is_host_decided:
        return reason
    request = sequence.request
    try:
        if request.host_stop is not None and request.host_stop(completion.token):
            return FinishReason.STOP
        if request.constraint is not None:
            request.constraint.advance(completion.token)
            if reason is None:
                sequence.mask = request.constraint.mask()
    except HeliosError as error:
        return error
    return reason


def take_scores(lane: Lane, completion: LaneCompletion) -> None:
    """Keep the scores of a prompt's tokens, with as many candidates as were asked for. Those of an earlier stay are known."""
    sequence = lane.sequence
    request = sequence.request
    n_candidates = request.prompt_candidates or 0
    named = None if request.has_prompt_distributions else request.named_prompt_candidates
    for score in completion.scores[len(sequence.scores) - lane.position :]:
        taken = score._replace(candidates=score.candidates[:n_candidates])
        sequence.scores.append(_told(taken, taken.distribution, named))


def token_event(sequence: Sequence, completion: LaneCompletion, completed_s: float) -> Token:
    """The token as its request wants it: with candidates, with its time (OBS-2), or bare."""
    request = sequence.request
    time_s = completed_s if request.is_timed else None
    n_candidates = request.sampling.candidates
    if n_candidates is None:
        return Token(completion.token, completed_s=time_s)
    candidates, distribution = completion.candidates[:n_candidates], completion.distribution
    token = Token(completion.token, completion.logprob, completion.rank, candidates, time_s)
    named = None if request.sampling.has_distributions else request.sampling.named_candidates
    return _told(token, distribution, named)


def _told(token: Token, distribution: Distribution | None, named: tuple[int, ...] | None) -> Token:
    """A token with what is told of its distribution: the tokens that were `named`, or the whole where `named` is None."""
    if distribution is None:
        return token
    if named is None:
        return token._replace(distribution=distribution)
    return token._replace(named=distribution.ranked(named), distribution=None)
