"""The table that an answer is read by: states, what their text is, and which delimiters lead where.

It is data: what the steps do is `parser.py`'s, which delimiters there are is that of the modules that fill tables. A table is
made once for a syntax and serves any number of answers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helios.output.pattern import Delimiter, Scanner


class Phase(enum.Enum):
    """Where an answer stands, as far as anyone outside needs to know."""

    UNDECIDED = "undecided"  # reasoning, content or a call may come
    REASONING = "reasoning"
    CONTENT = "content"  # reasoning is over
    CALL = "call"


class Sink(enum.Enum):
    """What the plain text of a state is."""

    NOTHING = enum.auto()
    REASONING = enum.auto()
    CONTENT = enum.auto()
    VALUE = enum.auto()  # of the parameter that is being given
    ARGUMENTS = enum.auto()  # the JSON of all arguments, as it stands
    JSON_CALL = enum.auto()  # JSON that names calls and their arguments, and ends by itself


class Step(enum.Enum):
    """What a delimiter does; its captures are the parameters."""

    BEGIN_CALL = enum.auto()  # the call `name`
    BEGIN_VALUE = enum.auto()  # the parameter `key`
    END_VALUE = enum.auto()
    END_CALL = enum.auto()
    ABANDON_CALL = enum.auto()  # a call that cannot go on stays without its end
    BEGIN_JSON = enum.auto()  # its last character begins the JSON
    ROUTE = enum.auto()  # `recipient` says which state follows
    ECHO = enum.auto()  # the delimiter is content, as it is spelled


class ValueKind(enum.Enum):
    """How a parameter's text becomes JSON."""

    BY_SCHEMA = enum.auto()
    TEXT = enum.auto()
    JSON = enum.auto()  # by schema where there is one, else as JSON


@dataclass(frozen=True, slots=True)
class Exit:
    """A delimiter that is live in a state. `target` follows; up to `newlines_after` newlines behind it belong to it.

    With `needs_registered` it counts only when the call that it names is one of the request's tools; else it is text.
    """

    delimiter: Delimiter
    target: str
    steps: tuple[Step, ...] = ()
    newlines_after: int = 0
    value_kind: ValueKind = ValueKind.BY_SCHEMA
    needs_registered: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """`after_text`, where there is one, follows once text that is not blank has come, or once JSON has ended; `after_failure` when
    that is no JSON any more.

    `is_framing`: an unfinished delimiter at the end of the answer is never text.
    """

    sink: Sink
    phase: Phase
    exits: tuple[Exit, ...] = ()
    after_text: str = ""
    after_failure: str = ""
    is_framing: bool = False


class StateTable:
    """States by name with their scanners.

    `eos_closers` are the closers that EOS stands for. `routes` are the states of fixed recipients, `tool_route` is that of
    registered ones and of `generic_recipient`.
    """

    def __init__(
        self,
        states: Mapping[str, State],
        initial: str,
        *,
        eos_closers: str = "",
        routes: Mapping[str, str] | None = None,
        tool_route: str = "",
        generic_recipient: str = "",
    ) -> None:
        self.states = dict(states)
        self.initial = initial
        self.eos_closers = eos_closers
        self.routes = dict(routes or {})  # "" for all others
        self.tool_route = tool_route
        self.generic_recipient = generic_recipient
        self.scanners = {name: Scanner([each.delimiter for each in state.exits]) for name, state in self.states.items()}
        for target in self._targets():
            if target not in self.states:
                raise ValueError(f"the table leads to state {target!r}, which it does not have")

    def _targets(self) -> Iterator[str]:
        yield self.initial
        yield from self.routes.values()
        if self.tool_route:
            yield self.tool_route
        for state in self.states.values():
            yield from (each.target for each in state.exits)
            yield from (each for each in (state.after_text, state.after_failure) if each)
