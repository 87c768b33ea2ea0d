"""Every error that Helios raises on purpose: one tree, four families.

It knows no HTTP and no gRPC: `server/status.py` alone maps these classes to statuses. A class takes the numbers and writes
the sentence itself; `code` is stable, `hint` says what to do about it.
"""

from __future__ import annotations


class HeliosError(Exception):
    """The root. `str(error)` is one sentence for a person; `code` is for a program; `param` names the request field."""

    code = "internal_error"

    def __init__(self, message: str, *, hint: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.param = param

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


# The client's fault -------------------------------------------------------------------------------------------------


class RequestError(HeliosError):
    """The request is wrong and will stay wrong."""

    code = "invalid_request"


class InvalidValueError(RequestError):
    """A field has the wrong type, is out of range, or contradicts another."""

    code = "invalid_value"


class ContextLengthError(RequestError):
    """The prompt does not fit the context."""

    code = "context_length_exceeded"

    def __init__(self, n_prompt_tokens: int, limit_tokens: int, *, is_least: bool = False) -> None:
        """`is_least`: it has so many or more."""
        super().__init__(
            f"prompt has {n_prompt_tokens:,} tokens{' or more' if is_least else ''}, the limit is {limit_tokens:,}",
            hint="shorten the messages or serve with a larger --context",
            param="messages",
        )


class ConstraintError(RequestError):
    """The grammar of a request's answer cannot go on: it asks for bytes that no token has, or takes too many steps."""

    code = "grammar_stuck"


class UnsupportedError(RequestError):
    """The request asks for something that this server cannot do for any request."""

    code = "unsupported"


class FeatureError(RequestError):
    """The request needs a feature that this server was started without: an adapter, a transfer of cached tokens."""

    code = "feature_missing"


class AccessError(RequestError):
    """The server wants an API key, and the request has none that it knows."""

    code = "invalid_api_key"

    def __init__(self, *, is_given: bool) -> None:
        super().__init__(
            "the API key is not one of this server's" if is_given else "this server wants an API key",
            hint="send it as Authorization: Bearer KEY",
        )


class UnknownModelError(RequestError):
    """The request names a model that this server does not serve."""

    code = "model_not_found"

    def __init__(self, name: str, served: str) -> None:
        super().__init__(f"model {name[:200]!r} is not served here", hint=f"use {served!r}", param="model")


class SettingError(HeliosError):
    """A start-up setting is malformed or out of range."""

    code = "invalid_setting"


class RemoteError(HeliosError):
    """The server that a client verb (`bench`, `chat`) talks to is not there or answers wrongly."""

    code = "remote_error"


class UnmeasurableError(RemoteError):
    """A figure that this server cannot be asked for, though it answers: its context is too short, or its slots are too few."""

    code = "unmeasurable"


# No capacity ----------------------------------------------------------------------------------------------------------


class CapacityError(HeliosError):
    """The request is fine; there is no room for it now."""

    code = "no_capacity"


class QueueFullError(CapacityError):
    """Admission by count is at its limit."""

    code = "queue_full"

    def __init__(self, n_admitted: int, limit: int) -> None:
        super().__init__(f"{n_admitted:,} requests are admitted, the limit is {limit:,}", hint="retry later")


class WaitingFullError(CapacityError):
    """So many calls wait for their messages to be read that no more may."""

    code = "queue_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit:,} calls wait to be read, the limit", hint="retry later")


class StreamsFullError(CapacityError):
    """So many streams are open that no more may be."""

    code = "streams_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit:,} streams are open, the limit", hint="retry later")


class AdmissionError(CapacityError):
    """The scheduler cannot serve this request with the prepared capacities."""

    code = "admission_rejected"


class ShuttingDownError(CapacityError):
    """The server is draining."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the server is shutting down", hint="retry against another instance")


class StalledReaderError(CapacityError):
    """An answer's reader takes nothing, and what is held for it is not held for ever."""

    code = "stalled_reader"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the answer was not read for {timeout_s:g} seconds", hint="read it as it comes")


class StalledSenderError(CapacityError):
    """A request's message does not come, and what is held for it is not held for ever."""

    code = "stalled_sender"

    def __init__(self) -> None:
        super().__init__("the message did not arrive in its time", hint="send it at once")


class OutOfMemoryError(CapacityError):
    """The machine or device lacks the memory for what was asked."""

    code = "out_of_memory"


# Damaged or foreign artifact ------------------------------------------------------------------------------------------


class ArtifactError(HeliosError):
    """A file on disk is damaged, foreign or untrusted."""

    code = "bad_artifact"


class CheckpointError(ArtifactError):
    """A checkpoint (GGUF, safetensors) is truncated, corrupt or of an unknown kind."""

    code = "bad_checkpoint"


class CoreError(ArtifactError):
    """A core file fails a structural or cryptographic check."""

    code = "bad_core"


class CoreSignatureError(CoreError):
    """The signature does not fit the signed bytes."""

    code = "core_signature"


class ChunkCountError(CoreError):
    """A resource does not have one hash for each chunk of its stored bytes."""

    code = "core_chunk_count"


class ChunkHashError(CoreError):
    """A chunk's bytes are not those that were signed."""

    code = "core_chunk_hash"


class FrameError(CoreError):
    """A resource's stored bytes are no zstd frame that may be decoded."""

    code = "core_frame"


class TruncatedFrameError(FrameError):
    """The frame ends behind the stored bytes."""

    code = "core_frame_truncated"


class ExtraFrameError(FrameError):
    """Another frame follows in the stored bytes."""

    code = "core_frame_extra"


class TrailingBytesError(FrameError):
    """Bytes that are no frame follow in the stored bytes."""

    code = "core_frame_trailing"


class FrameWindowError(FrameError):
    """The frame asks for a larger decoder window than is given."""

    code = "core_frame_window"


class DecodedLengthError(FrameError):
    """The frame does not decode to the signed length."""

    code = "core_decoded_length"


class ChunkSealError(CoreError):
    """An encrypted chunk is not the one that was encrypted in its place."""

    code = "core_chunk_seal"


class CoreKeyError(CoreError):
    """The key that an encrypted core needs is missing or another."""

    code = "core_key"


class LocationError(CoreError):
    """Stored bytes cannot be had from where the core says that they are."""

    code = "core_location"


class TrustError(CoreError):
    """The core's publisher is not accepted."""

    code = "untrusted_core"


class ContractError(CoreError):
    """The contract or manifest contradicts itself. Names the graph, the binding and the field."""

    code = "bad_contract"


class MissingFileError(ArtifactError):
    """A named file does not exist or cannot be read."""

    code = "missing_file"


# Our bug, or the device's ---------------------------------------------------------------------------------------------


class InternalError(HeliosError):
    """Helios broke a promise to itself."""

    code = "internal_error"


class DeviceError(InternalError):
    """The device reported an error, or a completion record failed its checks. Sticks until the process ends."""

    code = "device_error"


class DeviceStalledError(DeviceError):
    """The device was given work and never said that it was done."""

    code = "device_stalled"

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"the device has not finished a step in {limit_s:g} seconds", hint="restart the server")
