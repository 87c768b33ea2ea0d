"""Every rule refuses the contracts that break it, by name."""

from __future__ import annotations

import pytest

from helios.contract.prepared import PreparedContract
from helios.contract.rules import RULES
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import execution_pb2 as execution
from helios.errors import ContractError
from tests.contract import breaks, breaks_of_full
from tests.contract.editing import Edit, Manifest, Serving, add_views, binding, no_vision, program, put, unbind
from tests.contract.full_sample import SCORED, SPECULATIVE, full_contract, full_manifest
from tests.contract.sample import sample_contract, sample_manifest


def check_refused(serving: Serving, manifest: Manifest, rule_id: str, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        PreparedContract.from_core(serving, manifest)
    assert says in caught.value.message
    assert f"rule {rule_id}:" in str(caught.value)


@pytest.mark.parametrize(("rule_id", "says", "edit"), breaks.BREAKS)
def test_a_broken_contract_is_refused_by_its_rule(rule_id: str, says: str, edit: Edit) -> None:
    """CON-4, CON-5, CON-7, CON-8, CON-10, SPEC-3: the error names the rule, the graph, the binding and the field."""
    serving, manifest = sample_contract(), sample_manifest()
    edit(serving, manifest)
    check_refused(serving, manifest, rule_id, says)


@pytest.mark.parametrize(("rule_id", "says", "edit"), breaks_of_full.BREAKS)
def test_a_broken_full_contract_is_refused_by_its_rule(rule_id: str, says: str, edit: Edit) -> None:
    """CON-6, CON-8, CON-11, CON-12, SPEC-1, SPEC-3, SPEC-5, SPEC-9, CACHE-1, CACHE-4, FE-1, FE-2, FE-4, FE-5."""
    serving, manifest = full_contract(), full_manifest()
    edit(serving, manifest)
    check_refused(serving, manifest, rule_id, says)


def test_every_rule_has_a_contract_that_breaks_it() -> None:
    """A rule without a failing contract may never have run."""
    assert {rule.id for rule in RULES} == {rule_id for rule_id, _, _ in breaks.BREAKS + breaks_of_full.BREAKS}
    assert len({rule.id for rule in RULES}) == len(RULES)


def xtml(serving: Serving, manifest: Manifest) -> None:
    frontend = serving.model.frontend
    frontend.tool_syntax, frontend.reasoning_syntax = pb.TOOL_SYNTAX_XTML, pb.REASONING_SYNTAX_XTML_THINK


def tools_alone(serving: Serving, manifest: Manifest) -> None:
    serving.model.frontend.reasoning_syntax = pb.REASONING_SYNTAX_NONE
    serving.model.frontend.ClearField("reasoning_markers")


def text_only(serving: Serving, manifest: Manifest) -> None:
    no_vision(serving, manifest)
    for name in ("features", "contexts", "feature_slot", "axis_positions"):
        unbind(serving, SCORED, name)


def exact_lengths(serving: Serving, manifest: Manifest) -> None:
    put(binding(serving, SPECULATIVE, "limits"), source=pb.VALUE_SOURCE_QUERY_LENGTH)


def no_confidence(serving: Serving, manifest: Manifest) -> None:
    exact_lengths(serving, manifest)
    program(manifest, SPECULATIVE).confidence_width = 0
    manifest.ClearField("proposal_confidence")


def bare_markers(serving: Serving, manifest: Manifest) -> None:
    frontend = serving.model.frontend
    put(frontend.tool_markers, tag_separator="", call_separator="")
    put(frontend.assistant, message_end="")


def nested_views(serving: Serving, manifest: Manifest) -> None:
    """Each the end of a row of the one before."""
    buffer = len(manifest.buffers)
    manifest.buffers.add(id=buffer, name="nested", kind=execution.BUFFER_KIND_STATE, nbytes=64)
    for nbytes in (32, 16, 8):
        serving.model.state_views.add(
            name=f"last.{nbytes}", buffer=buffer, offset=32 - nbytes, row_stride=32, row_nbytes=nbytes, rows=2
        )


def at_the_bounds(serving: Serving, manifest: Manifest) -> None:
    """What is refused is more than this."""
    put(serving.model, input_vocabulary=1 << 24)
    put(serving.sampling, temperature=100, top_k=1 << 24, top_p=1, min_p=1, repetition_penalty=100)
    put(serving.sampling, frequency_penalty=2, presence_penalty=2)
    put(manifest, pages_per_slot=1 << 20)
    for table in serving.model.cache.page_tables:
        manifest.buffers[table.buffer].nbytes = 4 * manifest.request_slots << 20
    put(serving, context_tokens=1 << 24)
    put(binding(serving, SPECULATIVE, "one"), constant=-(1 << 31), padding=(1 << 31) - 1, offset=(1 << 31) - 1)


def lowest_defaults(serving: Serving, manifest: Manifest) -> None:
    put(serving.sampling, temperature=0, min_p=0, frequency_penalty=-2, presence_penalty=-2)


VARIANTS: list[Edit] = [
    lambda s, m: breaks_of_full.recipient_frames(s),
    xtml,
    tools_alone,
    text_only,
    exact_lengths,
    no_confidence,
    at_the_bounds,
    lowest_defaults,
    bare_markers,
    nested_views,
    lambda s, m: add_views(s, m, 256 - len(s.model.state_views)),
    lambda s, m: add_views(s, m, 1, (1 << 18) - sum(view.rows for view in s.model.state_views)),
    lambda s, m: breaks_of_full.tuned_view(s, pb.ACCESS_READ),
    lambda s, m: m.ClearField("ranks"),
]


@pytest.mark.parametrize("edit", VARIANTS)
def test_other_valid_contracts_are_accepted(edit: Edit) -> None:
    """FE-2, CON-8, CON-10, CON-12, SPEC-3, SPEC-5: the rules refuse no more than they say."""
    serving, manifest = full_contract(), full_manifest()
    edit(serving, manifest)
    PreparedContract.from_core(serving, manifest)
