"""The rules that every answer's messages must keep, whoever asked for them: those of the schema's comments, and what the strictest
clients check. Every test's messages run through here.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.server.grpc.schema import inference_pb2

FinishInfo = inference_pb2.FinishInfo


def check_stream(
    request: inference_pb2.GenerateRequest,
    responses: Sequence[inference_pb2.GenerateResponse],
    *,
    is_whole: bool = True,
) -> None:
    """A streamed answer; not `is_whole`: it was broken off."""
    if not responses:
        assert not is_whole, "an answer without a message"
        return
    first, *rest = responses
    assert first.HasField("prompt_info"), "the first message is the prompt's"
    assert not first.HasField("outputs"), "and nothing else"
    check_prompt(request, first.prompt_info)
    n_tokens: dict[int, int] = {}
    finished: set[int] = set()
    for response in rest:
        assert not response.HasField("prompt_info"), "prompt info comes once"
        assert response.HasField("outputs")
        output = response.outputs
        assert output.index not in finished, "nothing follows a finish"
        assert output.index < max(request.sampling.num_sequences, 1)
        check_output(request, output)
        n_tokens[output.index] = n_tokens.get(output.index, 0) + output.num_tokens
        if output.HasField("finish_info"):
            check_finish(request, output, n_tokens[output.index])
            finished.add(output.index)
        else:
            assert output.num_tokens or output.text, "a message that says nothing"
    if is_whole:
        assert finished == set(range(max(request.sampling.num_sequences, 1))), "every sequence finishes"


def check_whole(request: inference_pb2.GenerateRequest, response: inference_pb2.GenerateResponse) -> None:
    """An answer in one message."""
    assert response.HasField("prompt_info")
    assert response.outputs.index == 0
    check_prompt(request, response.prompt_info)
    check_output(request, response.outputs)
    check_finish(request, response.outputs, response.outputs.num_tokens)


def check_prompt(request: inference_pb2.GenerateRequest, info: inference_pb2.PromptInfo) -> None:
    asked, n_tokens = request.response, info.num_prompt_tokens
    if request.WhichOneof("prompt") == "token_ids":
        n_sent = len(request.token_ids.ids)
        assert n_tokens == (min(n_sent, request.truncate_prompt_tokens) or n_sent)
        kept = list(request.token_ids.ids)[-n_tokens:]
        assert list(info.token_ids) == (kept if asked.prompt_token_ids else [])
    assert len(info.token_ids) == (n_tokens if asked.prompt_token_ids else 0)
    n_scored = n_tokens if asked.prompt_logprobs else 0
    assert len(info.logprobs) == len(info.ranks) == n_scored
    own = list(info.token_ids) or [None] * n_scored
    check_candidates(asked.prompt_candidates, info.candidate_tokens[1:], own[1:])
    assert len(info.candidate_tokens) == (n_scored if is_selecting(asked.prompt_candidates) else 0)
    if n_scored:
        assert not any(infos.tokens for infos in info.candidate_tokens[:1])
        assert info.logprobs[0] == 0.0
        assert info.ranks[0] == 0
        assert all(rank >= 1 for rank in info.ranks[1:])
        assert all(logprob <= 1e-3 for logprob in info.logprobs)


def check_output(request: inference_pb2.GenerateRequest, output: inference_pb2.SequenceOutput) -> None:
    asked, n_tokens = request.response, output.num_tokens
    shows_text = asked.output_text if asked.HasField("output_text") else True
    assert shows_text or not output.text
    assert len(output.token_ids) == (n_tokens if asked.output_token_ids else 0)
    assert len(output.logprobs) == len(output.ranks) == (n_tokens if asked.output_logprobs else 0)
    is_selected = asked.output_logprobs and is_selecting(asked.output_candidates)
    assert len(output.candidate_tokens) == (n_tokens if is_selected else 0)
    check_candidates(asked.output_candidates, output.candidate_tokens, list(output.token_ids) or [None] * n_tokens)
    assert not output.sampling_mask


def is_selecting(selector: inference_pb2.CandidateTokens) -> bool:
    return bool(selector.WhichOneof("select") == "top_n" or selector.all or selector.token_ids.ids)


def check_candidates(
    selector: inference_pb2.CandidateTokens,
    positions: Sequence[inference_pb2.CandidateTokenInfo],
    own: Sequence[int | None],
) -> None:
    """`own`: the token at each position, where it is known."""
    selected = set(selector.token_ids.ids)
    for infos, token_id in zip(positions, own, strict=False):
        ranks = [info.rank for info in infos.tokens]
        assert ranks == sorted(set(ranks)), "the likeliest first"
        assert all(rank >= 1 for rank in ranks)
        ids = {info.id for info in infos.tokens}
        assert token_id not in ids
        if selected:
            missing = selected - ids
            assert ids <= selected
            assert len(missing) <= 1 if token_id is None else missing <= {token_id}, "every token that was named, once"
        elif not selector.all:
            assert all(rank <= selector.top_n for rank in ranks)


def check_finish(request: inference_pb2.GenerateRequest, output: inference_pb2.SequenceOutput, n_tokens: int) -> None:
    finish = output.finish_info
    assert finish.num_output_tokens == n_tokens
    assert finish.finish_reason != FinishInfo.NOT_FINISHED
    assert (finish.WhichOneof("stop_reason") is not None) == (finish.finish_reason == FinishInfo.STOP)
    if finish.HasField("stop_token_id"):
        assert finish.stop_token_id in request.stopping.stop_token_ids
    if finish.HasField("stop_string"):
        assert finish.stop_string in request.stopping.stop_strings
    if finish.HasField("eos_token_id"):
        assert not request.stopping.ignore_eos
        assert not output.token_ids or output.token_ids[-1] == finish.eos_token_id
    if request.stopping.max_new_tokens:
        assert n_tokens <= request.stopping.max_new_tokens
    assert not finish.HasField("kv_transfer_params")
    assert not finish.HasField("ec_transfer_params")
