"""The schema is vLLM's on the wire: every name, number, type and label, in both services."""

from __future__ import annotations

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, MethodDescriptor

from helios.server.grpc.schema import control_pb2, inference_pb2

# message -> "number name type", "?" for explicit presence, "*" for repeated, "/oneof" for members of one
INFERENCE = {
    "GenerateRequest": "1 request_id string, 2 model string, 3 text string/prompt, 4 token_ids TokenIds/prompt, 5 "
    "temperature float?, 6 sampling RandomSampling, 7 decoding DecodingParameters, 8 stopping "
    "StoppingCriteria, 9 response ResponseOptions, 10 kv KVCacheParameters, 11 truncate_prompt_tokens "
    "uint32, 12 priority int32, 13 session_id string?, 14 media MediaItem*, 15 lora_name string, 16 "
    "watermarking bool?, 17 kv_hints KVHintsEnvelope",
    "KVHintsEnvelope": "1 protocol_version string, 2 message_id string, 3 actions KVHintAction*",
    "KVHintAction": "1 action_id string, 2 action_type string, 3 action_version string, 4 payload Struct",
    "RandomSampling": "1 num_sequences uint32, 2 top_k uint32, 3 top_p float, 4 min_p float, 5 seed int64?",
    "DecodingParameters": "1 presence_penalty float, 2 frequency_penalty float, 3 repetition_penalty float, 4 logit_bias "
    "LogitBiasEntry*, 5 allowed_token_ids uint32*, 6 json string/structured_output, 7 regex "
    "string/structured_output, 8 choice StringChoices/structured_output, 9 grammar "
    "string/structured_output, 10 json_object bool/structured_output, 11 structural_tag "
    "string/structured_output",
    "StoppingCriteria": "1 max_new_tokens uint32, 2 min_new_tokens uint32, 3 stop_token_ids uint32*, 4 stop_strings string*, "
    "5 include_stop_strings bool, 6 ignore_eos bool",
    "ResponseOptions": "1 prompt_token_ids bool, 2 prompt_logprobs bool, 3 prompt_candidates CandidateTokens?, 4 output_text "
    "bool?, 5 output_token_ids bool, 6 output_logprobs bool, 7 output_candidates CandidateTokens?, 8 "
    "skip_special_tokens bool?",
    "KVCacheParameters": "1 bypass_prefix_cache bool, 2 cache_salt string, 3 kv_transfer_params Struct, 4 ec_transfer_params "
    "Struct",
    "CandidateTokens": "1 top_n uint32/select, 2 token_ids TokenIds/select, 3 all bool/select",
    "GenerateResponse": "1 prompt_info PromptInfo?, 2 outputs SequenceOutput",
    "SequenceOutput": "1 index uint32, 2 text string, 3 num_tokens uint32, 4 token_ids uint32*, 5 logprobs float*, 6 ranks "
    "uint32*, 7 candidate_tokens CandidateTokenInfo*, 8 finish_info FinishInfo?, 10 sampling_mask "
    "TokenIds*",
    "PromptInfo": "1 num_prompt_tokens uint32, 2 token_ids uint32*, 3 logprobs float*, 4 ranks uint32*, 5 "
    "candidate_tokens CandidateTokenInfo*",
    "FinishInfo": "1 num_output_tokens uint32, 2 finish_reason FinishReason, 3 stop_token_id uint32/stop_reason, 4 "
    "eos_token_id uint32/stop_reason, 5 stop_string string/stop_reason, 6 kv_transfer_params Struct, 8 "
    "ec_transfer_params Struct",
    "CandidateTokenInfo": "1 tokens TokenInfo*",
    "TokenIds": "1 ids uint32*",
    "MediaItem": "1 modality Modality, 2 url string/source, 3 data_uri string/source, 4 raw_bytes bytes/source, 5 "
    "mime_type string, 6 uuid string, 7 features PreprocessedMediaFeatures/source",
    "PreprocessedMediaFeatures": "1 kwargs bytes?, 2 identifier string, 3 offset uint64, 4 length uint64, 5 mm_hash string?, 6 "
    "is_embed bool*",
}
NESTED = {
    "DecodingParameters.StringChoices": "1 choices string*",
    "CandidateTokenInfo.TokenInfo": "1 id uint32, 2 logprob float, 3 rank uint32",
}
CONTROL = {
    "GetServerInfoRequest": "",
    "ServerInfo": "1 engine_version string, 2 api_version string, 3 instance_id string, 4 parallelism ParallelismInfo, "
    "5 max_model_len uint32, 6 kv_block_size uint32, 7 total_kv_blocks uint64, 8 max_running_requests "
    "uint64, 9 max_batched_tokens uint64, 10 max_loras uint32",
    "ParallelismInfo": "1 tensor_parallel_size uint32, 2 pipeline_parallel_size uint32, 3 data_parallel_size uint32, 4 "
    "data_parallel_rank uint32, 5 decode_context_parallel_size uint32, 6 world_size uint64, 7 "
    "data_parallel_size_local uint32",
    "GetModelInfoRequest": "",
    "ModelInfo": "1 model_id string, 2 served_model_name string, 3 served_model_aliases string*, 20 "
    "supports_text_input bool, 21 supports_token_ids_input bool, 22 supports_lora bool, 23 "
    "supports_multimodal bool, 24 reasoning_parser string, 25 tool_call_parser string",
    "AbortRequest": "1 request_ids string*",
    "AbortResponse": "",
    "GetKvEventSourcesRequest": "",
    "GetKvEventSourcesResponse": "1 sources KvEventSource*",
    "KvEventSource": "1 transport string, 2 endpoint string, 3 topic string, 4 replay_endpoint string, 5 "
    "data_parallel_rank uint32?, 6 encoding string, 7 schema_version uint32, 8 buffer_steps uint32, 9 hwm "
    "uint32, 10 max_queue_size uint32",
}
_TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
}


def written(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    text = f"{field.number} {field.name} {kind.name if kind else _TYPES[field.type]}"
    if field.is_repeated:
        return text + "*"
    oneof = field.containing_oneof
    if oneof is not None:
        return text + ("?" if oneof.name == f"_{field.name}" else f"/{oneof.name}")
    return text


def test_every_message_has_the_fields_of_the_wire() -> None:
    """GRPC-1: seeds' field numbers and types."""
    for file, expected in ((inference_pb2.DESCRIPTOR, INFERENCE), (control_pb2.DESCRIPTOR, CONTROL)):
        messages = file.message_types_by_name
        found = {name: ", ".join(written(field) for field in messages[name].fields) for name in messages}
        ordered = {name: ", ".join(sorted(text.split(", "), key=_number)) for name, text in found.items()}
        assert ordered == expected
    for path, text in NESTED.items():
        outer, inner = path.split(".")
        nested = inference_pb2.DESCRIPTOR.message_types_by_name[outer].nested_types_by_name[inner]
        assert ", ".join(written(field) for field in nested.fields) == text


def _number(text: str) -> int:
    return int(text.partition(" ")[0] or 0)


def test_the_enums_have_the_numbers_of_the_wire() -> None:
    modality: EnumDescriptor = inference_pb2.DESCRIPTOR.enum_types_by_name["Modality"]
    assert {value.name.removeprefix("MODALITY_"): value.number for value in modality.values} == {
        "UNSPECIFIED": 0,
        "IMAGE": 1,
        "VIDEO": 2,
        "AUDIO": 3,
    }
    assert dict(inference_pb2.FinishInfo.FinishReason.items()) == {
        "NOT_FINISHED": 0,
        "LENGTH": 1,
        "STOP": 2,
        "ABORTED": 3,
    }


def test_the_services_have_the_methods_of_the_wire() -> None:
    """GRPC-1: names, messages, and which of them stream."""

    def shape(method: MethodDescriptor) -> tuple[str, str, bool, bool]:
        return method.input_type.name, method.output_type.name, method.client_streaming, method.server_streaming

    (inference,) = inference_pb2.DESCRIPTOR.services_by_name.values()
    assert inference.full_name == "vllm.Inference"
    assert {method.name: shape(method) for method in inference.methods} == {
        "Generate": ("GenerateRequest", "GenerateResponse", False, False),
        "GenerateStream": ("GenerateRequest", "GenerateResponse", False, True),
    }
    (control,) = control_pb2.DESCRIPTOR.services_by_name.values()
    assert control.full_name == "vllm.Control"
    assert [method.name for method in control.methods] == [
        "GetServerInfo",
        "GetModelInfo",
        "Abort",
        "GetKvEventSources",
    ]


def test_numbers_that_others_have_used_are_not_reused() -> None:
    """GRPC-1: sampling-mask and routing numbers of neighbouring versions are tolerated on input and never sent."""
    output = inference_pb2.SequenceOutput.FromString(bytes([9 << 3 | 2, 1, 65, 11 << 3 | 2, 1, 65, 1 << 3, 3]))
    assert output.index == 3
    for message, number in (("SequenceOutput", 9), ("SequenceOutput", 11), ("ResponseOptions", 9)):
        assert number not in inference_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_number
