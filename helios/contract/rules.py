"""The table of every rule that a contract and its manifest keep, in the order in which they are checked.

It holds no rule itself: the modules whose names end in `_rules` do, each for one subject.
`check` returns only when all of them hold.
"""

from __future__ import annotations

from helios.contract import (
    frontend_rules,
    graph_rules,
    manifest_rules,
    model_rules,
    speculation_rules,
    state_rules,
    tuning_rules,
    vision_rules,
)
from helios.contract.rule import Rule, Subject
from helios.errors import ContractError

RULES: tuple[Rule, ...] = (
    *model_rules.RULES,
    *frontend_rules.RULES,
    *manifest_rules.RULES,
    *state_rules.RULES,
    *vision_rules.RULES,
    *graph_rules.RULES,
    *speculation_rules.RULES,
    *tuning_rules.RULES,
)


def check(subject: Subject) -> None:
    """Raise ContractError for the first violation; the error names the rule and says why it is one."""
    for rule in RULES:
        for violation in rule.check(subject):
            raise ContractError(violation, hint=f"rule {rule.id}: {rule.reason}")
