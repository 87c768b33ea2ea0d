"""Which values this runtime has for the programs that it launches; a program that needs another is refused when it is loaded.

It knows operations and sources, no values: `admission.py`, `round_values.py` and `state_values.py` make those. A destination that
no one fills would keep its bytes, so a loaded program has a value for each of its bindings (RT-7).
"""

from __future__ import annotations

from helios.contract.enums import Operation, ValueSource
from helios.contract.prepared import PreparedContract
from helios.errors import ContractError

ADMISSION_SOURCES = frozenset(
    {
        ValueSource.LIVE_ROW_COUNT,
        ValueSource.SLOT,
        ValueSource.GENERATION,
        ValueSource.PROMPT_POSITION,
        ValueSource.CONSUMED_ENDPOINT,
        ValueSource.SAMPLING_ROW,
        ValueSource.SEED_BITS,
        ValueSource.OUTPUT_LIMIT,
        ValueSource.EOS_TOKENS,
        ValueSource.LOGIT_BIAS,
        ValueSource.PROMPT_HISTOGRAM,
    }
)
ROUND_SOURCES = frozenset(
    {
        ValueSource.LIVE_ROW_COUNT,
        ValueSource.SLOT,
        ValueSource.GENERATION,
        ValueSource.MIXED_PREFILL_ROW,
        ValueSource.PROMPT_POSITION,
        ValueSource.QUERY_LENGTH,
        ValueSource.SAMPLING_DECISION,
        ValueSource.GRAMMAR_MASK,
        ValueSource.GRAMMAR_MASKED,
        ValueSource.PAGE_TABLE_UPDATES,
        ValueSource.PAGE_TABLE_UPDATE_COUNT,
        ValueSource.PROMPT_TOKENS,
        ValueSource.SUBMISSION,
    }
)
_STATE_SOURCES = frozenset(
    {
        ValueSource.LIVE_ROW_COUNT,
        ValueSource.SLOT,
        ValueSource.LIVE_STATE_ROW,
        ValueSource.CONSUMED_ENDPOINT,
    }
)
RESTORE_SOURCES = _STATE_SOURCES | {
    ValueSource.RESTORE_SOURCE,
    ValueSource.PAGE_TABLE_UPDATES,
    ValueSource.PAGE_TABLE_UPDATE_COUNT,
}
SNAPSHOT_SOURCES = _STATE_SOURCES | {ValueSource.SNAPSHOT_DESTINATION}
_OWN = frozenset({ValueSource.CONSTANT, ValueSource.INACTIVE_PADDING})  # the plan's own, without a value
_SUPPLY = {
    Operation.INITIALIZE: ADMISSION_SOURCES,
    Operation.PREFILL: ROUND_SOURCES,
    Operation.SCORED_PREFILL: ROUND_SOURCES | {ValueSource.SCORED_TARGETS},
    Operation.DECODE: ROUND_SOURCES,
    Operation.MIXED: ROUND_SOURCES,
    Operation.RESTORE: RESTORE_SOURCES,
    Operation.SNAPSHOT: SNAPSHOT_SOURCES,
}


def check_supply(contract: PreparedContract) -> None:
    """Raise ContractError for the first binding of a launched program that no value is made for."""
    for graph in contract.graphs:
        supplied = _SUPPLY.get(graph.operation)
        for binding in graph.bindings:
            if supplied is not None and binding.source not in supplied | _OWN:
                raise ContractError(
                    f"graph {graph.name!r}, binding {binding.destination!r}, field 'source' is {binding.source.name}, "
                    f"which this server does not have for {graph.operation.name}"
                )
