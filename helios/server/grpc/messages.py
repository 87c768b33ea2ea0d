"""The response messages: what was asked for and nothing else (GRPC-3), but for candidates that are the whole vocabulary.

It knows the schema and no flow. Lists about tokens have one entry for each of them, and the candidates at a position never hold the
token that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helios.scheduler.request import PromptScores, Token
from helios.server.grpc.response_fields import Candidates, Shown
from helios.server.grpc.schema import inference_pb2
from helios.server.grpc.sequence import Delta, Ending, Finish

_FinishInfo = inference_pb2.FinishInfo
_CandidateInfo = inference_pb2.CandidateTokenInfo


def fill_prompt(
    info: inference_pb2.PromptInfo, prompt_tokens: Sequence[int], scores: PromptScores | None, shown: Shown
) -> None:
    """What a response says of the prompt. Nothing stands before its first token, so that has no score."""
    info.num_prompt_tokens = len(prompt_tokens)
    if shown.prompt_token_ids:
        info.token_ids.extend(prompt_tokens)
    if scores is not None and shown.prompt_candidates is not None:
        info.logprobs.extend((0.0, *_logprobs(scores.tokens)))
        info.ranks.extend((0, *_ranks(scores.tokens)))
        candidates = _candidates(scores.tokens, shown.prompt_candidates)
        if candidates is not None:
            info.candidate_tokens.extend((_CandidateInfo(), *candidates))


def fill_output(output: inference_pb2.SequenceOutput, index: int, delta: Delta, shown: Shown) -> None:
    """What a sequence adds."""
    tokens = delta.tokens
    output.index = index
    output.num_tokens = len(tokens)
    if shown.text:
        output.text = delta.text
    if shown.token_ids:
        output.token_ids.extend([token.token_id for token in tokens])
    if shown.candidates is not None:
        output.logprobs.extend(_logprobs(tokens))
        output.ranks.extend(_ranks(tokens))
        output.candidate_tokens.extend(_candidates(tokens, shown.candidates) or ())
    if delta.finish is not None:
        output.finish_info.CopyFrom(_finish_info(delta.finish))


def _finish_info(finish: Finish) -> inference_pb2.FinishInfo:
    n_tokens = finish.n_tokens
    match finish.ending:
        case Ending.LENGTH:
            return _FinishInfo(num_output_tokens=n_tokens, finish_reason=_FinishInfo.LENGTH)
        case Ending.ABORTED:
            return _FinishInfo(num_output_tokens=n_tokens, finish_reason=_FinishInfo.ABORTED)
    info = _FinishInfo(num_output_tokens=n_tokens, finish_reason=_FinishInfo.STOP)
    if finish.ending is Ending.STOP_STRING:
        info.stop_string = finish.stop_string
    elif finish.ending is Ending.EOS:
        info.eos_token_id = finish.last_token or 0
    else:
        info.stop_token_id = finish.last_token or 0
    return info


def _logprobs(tokens: Iterable[Token]) -> list[float]:
    return [0.0 if token.logprob is None else token.logprob for token in tokens]


def _ranks(tokens: Iterable[Token]) -> list[int]:
    return [token.rank or 0 for token in tokens]


def _candidates(tokens: Iterable[Token], selected: Candidates) -> list[inference_pb2.CandidateTokenInfo] | None:
    """Those of each position, with their ranks; None for no lists, or none that are made here."""
    if selected.named:
        return [_info(token, [(one.rank, one.token_id, one.logprob) for one in token.named]) for token in tokens]
    if selected.n_best is None:
        return None
    return [
        _info(token, [(rank, *one) for rank, one in enumerate(token.candidates[: selected.n_best], start=1)])
        for token in tokens
    ]


def _info(token: Token, ranked: Iterable[tuple[int, int, float]]) -> inference_pb2.CandidateTokenInfo:
    """(rank, token id, log-probability) of all but the token itself."""
    make = _CandidateInfo.TokenInfo
    return _CandidateInfo(
        tokens=[make(id=i, logprob=logprob, rank=rank) for rank, i, logprob in ranked if i != token.token_id]
    )
