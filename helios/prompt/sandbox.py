"""The Jinja in which chat templates run: what model publishers rely on, no host objects, and everything paid for.

It knows no conversation and no tokens. Loops, calls, filters and the operators that make things larger draw on the
RenderingBudget in their context, so that whatever a template does ends within it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.filters
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.visitor

from helios.prompt.budget import STEP_CHARACTERS, RenderingBudget
from helios.prompt.shield import Shield

# Names in a rendering's context that no template can spell.
BUDGET = " budget"
SHIELD = " shield"
_STEPS, _CONCATENATED, _SPELLED = " steps", " concatenated", " spelled"

# What chat templates do not use and what nobody could pay for in advance.
_NO_FILTERS = ("random", "urlize", "wordwrap", "xmlattr")
_NO_METHODS = ("expandtabs", "translate")
# Filters that spell out, compare or add up whole values.
_WHOLE_VALUE_FILTERS = ("join", "pprint", "string", "sum", "tojson")


class RefusalError(Exception):
    """The template called `raise_exception`: it does not take such a conversation."""


class TemplateEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """One for a model; safe to use from several threads. `clock` tells templates the date."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
            finalize=_finalize,
            loader=jinja2.DictLoader({}),
        )
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
        self.filters |= {"tojson": _to_json, "from_json": json.loads}
        self.filters = {
            name: _paid_filter(name, each) for name, each in self.filters.items() if name not in _NO_FILTERS
        }
        tolls: dict[str, Callable[..., Any]] = {_STEPS: _steps, _CONCATENATED: _concatenated, _SPELLED: _spelled}
        self.filters |= tolls

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        metered: jinja2.nodes.Template = _Metering().visit(tree)
        return metered

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _NO_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        budget = budget_of(context)
        budget.operation(operator, left, right)
        return budget.result(super().call_binop(context, operator, left, right))

    def call(self, context: jinja2.runtime.Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(context)
        budget.steps(1 + sum(len(value) for value in args if isinstance(value, list | tuple)))
        budget.arguments((*args, *kwargs.values()))
        _pay_method(budget, obj, args, kwargs)
        return budget.result(super().call(context, obj, *args, **kwargs))


def budget_of(context: jinja2.runtime.Context) -> RenderingBudget:
    budget: RenderingBudget = context.parent[BUDGET]
    return budget


def _pay_method(budget: RenderingBudget, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pay in advance for the methods of text that can make much more of it."""
    text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if name in ("format", "format_map"):  # the sandbox's own, whose text is the wrapped method's
        text = getattr(getattr(method, "__wrapped__", None), "__self__", None)
    if not isinstance(text, str):
        return
    if name in ("format", "format_map"):
        budget.format(text, "{", [*args, *kwargs.values()])
    elif name == "replace" and len(args) >= 2 and all(isinstance(value, str) for value in args[:2]):
        budget.replace(text, args[0], args[1])
    elif name == "join" and args:
        budget.join(text, list(args[0]) if isinstance(args[0], Sized) and isinstance(args[0], Iterable) else [args[0]])


class _Metering(jinja2.visitor.NodeTransformer):
    """Puts a toll before every loop, every `~` and every long stretch of the template's own text, which nothing else sees."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:  # noqa: N802  (so called by Jinja)
        self.generic_visit(node)
        node.iter = _filtered(_STEPS, node.iter)
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(_CONCATENATED, jinja2.nodes.List(node.nodes, lineno=node.lineno))

    def visit_TemplateData(self, node: jinja2.nodes.TemplateData) -> jinja2.nodes.Node:  # noqa: N802
        """A short text costs no more than the step that comes with it."""
        if len(node.data) <= STEP_CHARACTERS:
            return node
        return _filtered(_SPELLED, jinja2.nodes.Const(node.data, lineno=node.lineno))


def _filtered(name: str, node: Any) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@jinja2.pass_context
def _steps(context: jinja2.runtime.Context, values: Any) -> Any:
    """What a loop goes over, paid for at once where its length is known."""
    budget = budget_of(context)
    if isinstance(values, Sized):
        budget.steps(len(values))
        return values
    return _stepping(budget, values)


def _stepping(budget: RenderingBudget, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        budget.steps()
        yield value


@jinja2.pass_context
def _concatenated(context: jinja2.runtime.Context, values: list[Any]) -> str:
    budget_of(context).weigh(values)
    return jinja2.runtime.str_join(values)


@jinja2.pass_context
def _spelled(context: jinja2.runtime.Context, text: str) -> str:
    budget_of(context).characters(len(text))
    return text


@jinja2.pass_context
def _finalize(context: jinja2.runtime.Context, value: Any) -> Any:
    """Every `{{ value }}` passes here before it becomes text."""
    if not isinstance(value, str):
        budget_of(context).weigh(value)
    return value


def _paid_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, which pays for itself. Jinja gives it the context; what else the original wants is passed on."""
    wants = getattr(function, "jinja_pass_arg", None)

    @jinja2.pass_context
    def paid(context: jinja2.runtime.Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(context)
        budget.steps()
        budget.arguments((*args, *kwargs.values()))
        if name in _WHOLE_VALUE_FILTERS:
            value = list(value) if isinstance(value, Iterator) else value
            budget.weigh(value)
        _pay_filter(budget, name, value, args, kwargs)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        passed = () if wants is None else (first[wants.name],)
        return budget.result(function(*passed, value, *args, **kwargs))

    return paid


def _pay_filter(budget: RenderingBudget, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pay in advance for the filters that can make much more of a text."""
    texts = [each for each in (*args, *kwargs.values()) if isinstance(each, str)]
    if name == "join":
        budget.join(max(texts, key=len, default=""), list(value))
    elif name == "format":
        budget.format(str(value), "%", [*args, *kwargs.values()])
    elif isinstance(value, str):
        if name == "replace" and len(texts) == 2:
            budget.replace(value, *texts)
        elif name == "indent":
            widths = [len(each) if isinstance(each, str) else each for each in (*args, *kwargs.values())]
            budget.characters((value.count("\n") + 1) * max([4, *(each for each in widths if isinstance(each, int))]))


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's words for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012  (so declared by Jinja)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object = "") -> None:
    raise RefusalError(str(message))


@jinja2.pass_context
def _to_json(
    context: jinja2.runtime.Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on: neither HTML-escaped nor ASCII-only, unlike Jinja's own filter."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    shield: Shield = context.parent[SHIELD]
    return shield.to_ascii(text) if ensure_ascii else text
