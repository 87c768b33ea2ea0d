"""The table of every rule that a contract and its manifest keep, in the order in which they are checked.

It holds no rule itself and knows no file: `manifest_rules.py`, `model_rules.py`, `state_rules.py` and `graph_rules.py` do.
`check` returns only when all of them hold.
"""

from __future__ import annotations

from helios.contract import graph_rules, manifest_rules, model_rules, state_rules
from helios.contract.rule import Rule, Subject
from helios.errors import ContractError

RULES: tuple[Rule, ...] = (*model_rules.RULES, *manifest_rules.RULES, *state_rules.RULES, *graph_rules.RULES)


def check(subject: Subject) -> None:
    """Raise ContractError for the first violation; the error names the rule and says why it is one."""
    for rule in RULES:
        for violation in rule.check(subject):
            raise ContractError(violation, hint=f"rule {rule.id}: {rule.reason}")
