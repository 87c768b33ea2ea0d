"""How each tool syntax spells a call: openers, the states inside, and what may follow a call.

It knows tags and no tools. An opener is whole only with the call's name, so that prose about a tag stays prose and a name is
never given out in parts; a parameter's closer counts only before something that may follow it, so that a value may spell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helios.contract.enums import ToolSyntax
from helios.contract.frontend import ToolMarkers
from helios.output.markup import Markup
from helios.output.pattern import GAP, KEY, NAME, Delimiter, Element
from helios.output.states import Exit, Phase, Sink, State, Step, ValueKind

AFTER_CALL, PARAMETERS, VALUE, JSON, REST = "after_call", "parameters", "value", "json", "rest"
_NEXT_VALUE = (Step.END_VALUE, Step.BEGIN_VALUE)
_CALL_ENDS = (Step.END_VALUE, Step.END_CALL)


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """`openers` lead from content into a call; `followers` are live behind a call as well, where no opener is needed.

    `openers` are written without the newlines in front, which depend on where they stand. `eos_closers` are the closers that the
    end of generation stands for.
    """

    openers: tuple[Exit, ...]
    followers: tuple[Exit, ...]
    states: Mapping[str, State]
    eos_closers: str = ""


def function_tags(markup: Markup, markers: ToolMarkers) -> CallSyntax:
    """<function=NAME>, <parameter=KEY> newline VALUE newline </parameter>, </function> inside a call."""
    opener, closer = markup.marker(markers.call.opener), markup.marker(markers.call.closer)
    tag, wrap = markup.tag, markers.tag_separator.count("\n")
    function = (tag("<function="), NAME, tag(">"))
    parameter = (tag("<parameter="), KEY, tag(">"))
    value_end, call_end = tag("</parameter>"), tag("</function>")

    def ends_value(*elements: Element, newlines_before: int = wrap) -> Exit:
        return Exit(Delimiter((*elements, *parameter), newlines_before), VALUE, _NEXT_VALUE, wrap)

    parameters = (
        Exit(Delimiter(parameter), VALUE, (Step.BEGIN_VALUE,), wrap),
        Exit(Delimiter((call_end,)), AFTER_CALL, (Step.END_CALL,)),
        Exit(Delimiter((closer,)), AFTER_CALL, (Step.END_CALL,)),
    )
    value = (
        ends_value(value_end, GAP),
        Exit(Delimiter((value_end, GAP, call_end), wrap), AFTER_CALL, _CALL_ENDS),
        Exit(Delimiter((value_end, GAP, closer), wrap), AFTER_CALL, _CALL_ENDS),
        # Models leave closers out: a parameter's before the next one, which then begins a line, and before the call's.
        *([ends_value("\n", newlines_before=0)] if wrap else []),
        Exit(Delimiter((call_end, GAP, closer), wrap), AFTER_CALL, _CALL_ENDS),
    )
    begin = (Step.BEGIN_CALL,)
    return CallSyntax(
        openers=(
            Exit(Delimiter((opener, GAP, *function)), PARAMETERS, begin),
            # They leave the call's opener out too. That much is believed of a registered name only.
            Exit(Delimiter(function), PARAMETERS, begin, needs_registered=True),
        ),
        followers=(_closing(closer, markers),),
        states={
            PARAMETERS: State(Sink.NOTHING, Phase.CALL, parameters),
            VALUE: State(Sink.VALUE, Phase.CALL, value, is_framing=True),
        },
    )


def argument_tags(markup: Markup, markers: ToolMarkers) -> CallSyntax:
    """NAME, then <arg_key>KEY</arg_key> and <arg_value>VALUE</arg_value>, inside a call; newlines between tags or none."""
    opener, closer = markup.marker(markers.call.opener), markup.marker(markers.call.closer)
    key_begin, key_end, value_begin, value_end = map(
        markup.marker, ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    )
    argument = (key_begin, GAP, KEY, key_end, GAP, value_begin)
    value = (
        Exit(Delimiter((value_end, GAP, *argument)), VALUE, _NEXT_VALUE),
        Exit(Delimiter((value_end, GAP, closer)), AFTER_CALL, _CALL_ENDS, markers.call.newlines_after_closer),
    )
    named = (opener, GAP, NAME, GAP)
    return CallSyntax(
        openers=(
            Exit(Delimiter((*named, *argument)), VALUE, (Step.BEGIN_CALL, Step.BEGIN_VALUE)),
            Exit(
                Delimiter((*named, closer)),
                AFTER_CALL,
                (Step.BEGIN_CALL, Step.END_CALL),
                markers.call.newlines_after_closer,
            ),
        ),
        followers=(_closing(closer, markers),),
        states={VALUE: State(Sink.VALUE, Phase.CALL, value, is_framing=True)},
        eos_closers=closer,
    )


def dsml(markup: Markup, markers: ToolMarkers) -> CallSyntax:
    """A section of `invoke` elements with `parameter` elements, which say whether their value is a string."""
    opener, closer = markup.marker(markers.call.opener), markup.marker(markers.call.closer)
    call = invocations(markup, section_prefix(markers.call.opener), _DSML_KINDS, (AFTER_CALL, ()))
    return CallSyntax(
        openers=(
            Exit(Delimiter((opener, GAP, *call.opener)), PARAMETERS, (Step.BEGIN_CALL,)),
            Exit(Delimiter((opener, GAP, closer)), AFTER_CALL),
        ),
        followers=(
            Exit(Delimiter((GAP, *call.opener)), PARAMETERS, (Step.BEGIN_CALL,)),
            _closing(closer, markers),
        ),
        states=call.states,
    )


def json_tags(markup: Markup, markers: ToolMarkers) -> CallSyntax:
    """One JSON object with name and arguments inside a call, or a list of them."""
    opener, closer = markup.marker(markers.call.opener), markup.marker(markers.call.closer)
    return CallSyntax(
        openers=tuple(Exit(Delimiter((opener, GAP, start)), JSON, (Step.BEGIN_JSON,)) for start in "{["),
        followers=(_closing(closer, markers),),
        states={
            JSON: State(Sink.JSON_CALL, Phase.CALL, after_text=AFTER_CALL, after_failure=REST),
            REST: State(Sink.NOTHING, Phase.CALL, (Exit(Delimiter((closer,)), AFTER_CALL),)),
        },
    )


BY_SYNTAX: Mapping[ToolSyntax, Callable[[Markup, ToolMarkers], CallSyntax]] = {
    ToolSyntax.FUNCTION_TAGS: function_tags,
    ToolSyntax.ARGUMENT_TAGS: argument_tags,
    ToolSyntax.DSML: dsml,
    ToolSyntax.JSON_TAGS: json_tags,
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """The tags of one invocation: its opener, and the states inside."""

    opener: tuple[Element, ...]
    states: Mapping[str, State]


# What may follow a parameter's key, and what it says about the value.
_DSML_KINDS = {
    '" string="true">': ValueKind.TEXT,
    '" string="false">': ValueKind.JSON,
    '">': ValueKind.BY_SCHEMA,
}
ATEM_KINDS = {'">': ValueKind.BY_SCHEMA}


def section_prefix(opener: str) -> str:
    """What the tags of a section have in common: "atem:" of "<atem:function_calls>"."""
    return opener.removeprefix("<").removesuffix(">").rstrip("abcdefghijklmnopqrstuvwxyz_")


def invocations(
    markup: Markup,
    prefix: str,
    kinds: Mapping[str, ValueKind],
    end: tuple[str, tuple[Exit, ...]],
) -> Invocation:
    """<PREFIXinvoke name="NAME"> with <PREFIXparameter name="KEY">VALUE</PREFIXparameter> elements.

    `end` is the state that follows an invocation, and exits that are live at any place inside of it.
    """
    tag = markup.tag
    after, breaks = end
    value_end, call_end = tag(f"</{prefix}parameter>"), tag(f"</{prefix}invoke>")
    begins = {(tag(f'<{prefix}parameter name="'), KEY, tag(rest)): kind for rest, kind in kinds.items()}
    parameters = (
        *(Exit(Delimiter(each), VALUE, (Step.BEGIN_VALUE,), value_kind=kind) for each, kind in begins.items()),
        Exit(Delimiter((call_end,)), after, (Step.END_CALL,)),
    )
    value = (
        *(
            Exit(Delimiter((value_end, GAP, *each)), VALUE, _NEXT_VALUE, value_kind=kind)
            for each, kind in begins.items()
        ),
        Exit(Delimiter((value_end, GAP, call_end)), after, _CALL_ENDS),
        # Models leave the last parameter's closer out.
        Exit(Delimiter((call_end, GAP, tag(f"</{prefix}"))), after, _CALL_ENDS),
    )
    return Invocation(
        opener=(tag(f'<{prefix}invoke name="'), NAME, tag('">')),
        states={
            PARAMETERS: State(Sink.NOTHING, Phase.CALL, (*parameters, *breaks)),
            VALUE: State(Sink.VALUE, Phase.CALL, (*value, *breaks), is_framing=True),
        },
    )


def _closing(closer: str, markers: ToolMarkers) -> Exit:
    return Exit(Delimiter((GAP, closer)), AFTER_CALL, newlines_after=markers.call.newlines_after_closer)
