"""`kv`, `session_id` and `kv_hints`: what a request says of the prefix cache.

It knows the fields and the one kind of hint that is followed, "kv.retain" of major version 1, under protocol versions 0.x. A hint
of another kind is no error: its caller is told that it had no effect. Transfers of cached tokens between servers are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from helios.errors import FeatureError, InvalidValueError
from helios.scheduler.request import Retention
from helios.server.grpc.fields import checked_count
from helios.server.grpc.schema import inference_pb2
from helios.server.options import MAX_SALT_CHARACTERS

RETAIN = "kv.retain"
MAX_ACTIONS = 16
MAX_DIRECTIVES = 128
MAX_PRIORITY = 100
MAX_DURATION_S = 30 * 24 * 3600.0
MAX_NAME_CHARACTERS = 1024
_PROTOCOL_MAJOR, _RETAIN_MAJOR = "0", "1"
_DIRECTIVE_FIELDS = {"start", "end", "priority", "duration", "covers_output"}


@dataclass(frozen=True, slots=True)
class Directive:
    """Tokens of the sequence that are to be kept, or (`is_kept` False) no longer. `start` None: where the output begins; `end`
    None: the end of the sequence."""

    start: int | None
    end: int | None
    is_kept: bool
    duration_s: float | None


_EVERYTHING = Directive(0, None, is_kept=True, duration_s=None)


@dataclass(frozen=True, slots=True)
class CacheRules:
    """`retention_key` None: nothing is said about keeping. `unknown_actions`: (action id, action type) of hints without effect."""

    salt: str
    uses_cache: bool
    retention_key: str | None
    directives: tuple[Directive, ...]
    unknown_actions: tuple[tuple[str, str], ...]

    def retention(self, n_prompt: int) -> Retention | None:
        """All directives together. A page is of use only behind those before it, so what is kept is a beginning: up to the last
        kept token, and in no case beyond the first released one. It lasts as long as the longest directive."""
        if self.retention_key is None:
            return None
        kept = [directive for directive in self.directives if directive.is_kept]
        ends = [math.inf if directive.end is None else directive.end for directive in kept]
        starts = [n_prompt if each.start is None else each.start for each in self.directives if not each.is_kept]
        n_most = min(max(ends, default=0), min(starts, default=math.inf))
        durations = [math.inf if directive.duration_s is None else directive.duration_s for directive in kept]
        duration_s = max(durations, default=math.inf)
        return Retention(
            self.retention_key,
            None if math.isinf(n_most) else int(n_most),
            None if math.isinf(duration_s) else duration_s,
        )


def read_cache_rules(request: inference_pb2.GenerateRequest, salt_of: Callable[[str], str]) -> CacheRules:
    """A hint's retention comes before the session's; that keeps everything. `salt_of` adds to the salt what parts callers."""
    salt = salt_of(_name(request.kv.cache_salt, "kv.cache_salt", MAX_SALT_CHARACTERS))
    session = _name(request.session_id, "session_id", MAX_NAME_CHARACTERS)
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if getattr(request.kv, name).fields:
            raise FeatureError(f"kv.{name} needs a transfer of cached tokens, which this server does not do")
    key, directives, unknown = _key("session", salt, session) if session else None, [_EVERYTHING], []
    if request.HasField("kv_hints"):
        hints = request.kv_hints
        _check_version(hints.protocol_version, _PROTOCOL_MAJOR, "kv_hints.protocol_version")
        message = _name(hints.message_id, "kv_hints.message_id", MAX_NAME_CHARACTERS)
        actions = [action for action in hints.actions if action.action_type == RETAIN]
        if actions:
            checked_count(actions, "kv_hints.actions", MAX_ACTIONS, f"{RETAIN} actions")
            scope = _read_scope(actions)
            directives = [directive for action in actions for directive in _read_directives(action)]
            checked_count(directives, "kv_hints.actions", MAX_DIRECTIVES, "directives")
            key = _key("scope", salt, scope) if scope else key or _message_key(salt, message, request.request_id)
        unknown = [(each.action_id, each.action_type) for each in hints.actions if each.action_type != RETAIN]
    return CacheRules(salt, not request.kv.bypass_prefix_cache, key, tuple(directives), tuple(unknown))


def _name(value: str, param: str, n_most: int) -> str:
    if len(value) > n_most:
        raise InvalidValueError(f"{param} has {len(value):,} characters, the limit is {n_most:,}", param=param)
    return value


def _key(kind: str, salt: str, name: str) -> str:
    """Callers of different salts do not see one another, here as little as in prefixes."""
    return f"{kind}:{len(salt)}:{salt}:{name}"


def _message_key(salt: str, message: str, request: str) -> str:
    """A hint that has no name at all is that of its request, and takes no other's place."""
    if message:
        return _key("message", salt, message)
    return _key("request", salt, _name(request, "request_id", MAX_NAME_CHARACTERS))


def _check_version(version: str, major: str, param: str) -> None:
    if version.partition(".")[0] != major:
        raise InvalidValueError(f"{param} is {version[:40]!r}, {major}.x is spoken here", param=param)


def _payload(action: inference_pb2.KVHintAction) -> dict[str, Any]:
    _check_version(action.action_version, _RETAIN_MAJOR, "kv_hints.actions.action_version")
    try:
        payload: dict[str, Any] = json_format.MessageToDict(action.payload)
    except (json_format.Error, ValueError) as error:  # a number that JSON does not have
        raise _refusal(action, f"has a payload that is no JSON: {error}") from error
    return payload


def _read_scope(actions: Sequence[inference_pb2.KVHintAction]) -> str:
    """The one scope that all of them have; empty for none."""
    scopes = [_payload(action).get("scope") or "" for action in actions]
    scope = scopes[0]
    if any(other != scope for other in scopes) or not isinstance(scope, str) or len(scope) > MAX_NAME_CHARACTERS:
        raise _refusal(actions[0], f"has a scope that is no text of at most {MAX_NAME_CHARACTERS:,} characters for all")
    return scope


def _read_directives(action: inference_pb2.KVHintAction) -> list[Directive]:
    directives = _payload(action).get("directives")
    if not isinstance(directives, list) or not all(isinstance(each, dict) for each in directives):
        raise _refusal(action, "has directives that are no list of objects")
    return [_read_directive(action, each) for each in directives]


def _read_directive(action: inference_pb2.KVHintAction, table: Mapping[str, Any]) -> Directive:
    unknown = sorted(table.keys() - _DIRECTIVE_FIELDS)
    if unknown:
        raise _refusal(action, f"has a directive with {unknown[0][:40]!r}, which is none of its fields")
    priority = _whole(action, table, "priority", 0, MAX_PRIORITY)
    if priority is None:
        raise _refusal(action, "has a directive without a priority")
    duration_s = table.get("duration")
    is_number = isinstance(duration_s, (int, float)) and not isinstance(duration_s, bool)
    if duration_s is not None and not (is_number and 0 <= duration_s <= MAX_DURATION_S):
        raise _refusal(action, f"has a duration that is no number from 0 to {MAX_DURATION_S:,.0f}")
    start = _whole(action, table, "start", 0, 1 << 53) or 0
    end = _whole(action, table, "end", start + 1, 1 << 53)
    covers_output = table.get("covers_output", False)
    if not isinstance(covers_output, bool) or (covers_output and table.keys() & {"start", "end"}):
        raise _refusal(action, "has a covers_output that is not true or false, or stands beside start or end")
    return Directive(None if covers_output else start, end, priority > 0, duration_s)


def _whole(action: inference_pb2.KVHintAction, table: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """A whole number; JSON in Protobuf has no others than doubles."""
    value = table.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    if not is_whole or not low <= value <= high:
        raise _refusal(action, f"has a {name} that is no whole number from {low:,} to {high:,}")
    return int(value)


def _refusal(action: inference_pb2.KVHintAction, problem: str) -> InvalidValueError:
    return InvalidValueError(f"the {RETAIN} action {action.action_id[:40]!r} {problem}", param="kv_hints.actions")
