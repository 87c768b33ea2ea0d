"""The response messages: what was asked for and nothing else (GRPC-3), but for candidates that are the whole vocabulary.

It knows the schema and no flow. Lists about tokens have one entry for each of them, and the candidates at a position never hold the
token that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helios.scheduler.request import PromptScores, Token
from helios.server.grpc.response_fields import Shown
from helios.server.grpc.schema import inference_pb2
from helios.server.grpc.sequence import Delta, Ending, Finish

_FinishInfo = inference_pb2.FinishInfo
_Candidates = inference_pb2.CandidateTokenInfo


def prompt_info(prompt_tokens: Sequence[int], scores: PromptScores | None, shown: Shown) -> inference_pb2.PromptInfo:
    """What a response says of the prompt. Nothing stands before its first token, so that has no score."""
    info = inference_pb2.PromptInfo(num_prompt_tokens=len(prompt_tokens))
    if shown.prompt_token_ids:
        info.token_ids.extend(prompt_tokens)
    if scores is not None:
        info.logprobs.extend((0.0, *_logprobs(scores.tokens)))
        info.ranks.extend((0, *_ranks(scores.tokens)))
        if shown.n_prompt_candidates is not None:
            info.candidate_tokens.extend((_Candidates(), *_candidates(scores.tokens, shown.n_prompt_candidates)))
    return info


def sequence_output(index: int, delta: Delta, shown: Shown) -> inference_pb2.SequenceOutput:
    """What a sequence adds."""
    tokens = delta.tokens
    output = inference_pb2.SequenceOutput(index=index, num_tokens=len(tokens))
    if shown.text:
        output.text = delta.text
    if shown.token_ids:
        output.token_ids.extend([token.token_id for token in tokens])
    if shown.logprobs:
        output.logprobs.extend(_logprobs(tokens))
        output.ranks.extend(_ranks(tokens))
        if shown.named_candidates is not None:
            output.candidate_tokens.extend(_named_candidates(tokens))
        elif shown.n_candidates is not None:
            output.candidate_tokens.extend(_candidates(tokens, shown.n_candidates))
    if delta.finish is not None:
        output.finish_info.CopyFrom(_finish_info(delta.finish))
    return output


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


def _candidates(tokens: Iterable[Token], n_most: int) -> list[inference_pb2.CandidateTokenInfo]:
    """The likeliest of each position, with their ranks."""
    return [
        _Candidates(
            tokens=[
                _Candidates.TokenInfo(id=token_id, logprob=logprob, rank=rank)
                for rank, (token_id, logprob) in enumerate(token.candidates[:n_most], start=1)
                if token_id != token.token_id
            ]
        )
        for token in tokens
    ]


def _named_candidates(tokens: Iterable[Token]) -> list[inference_pb2.CandidateTokenInfo]:
    return [
        _Candidates(
            tokens=[
                _Candidates.TokenInfo(id=one.token_id, logprob=one.logprob, rank=one.rank)
                for one in token.named
                if one.token_id != token.token_id
            ]
        )
        for token in tokens
    ]
