"""Cores of every format and contract version, as older releases wrote them: they load, and answer the same for ever."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from helios.corefile.reader import open_core
from helios.corefile.writer import write_core
from helios.device.cudart import ATTRIBUTE_CAPABILITY_MAJOR
from helios.device.device import Device
from helios.device.libraries import TARGETS_BY_LEVEL
from helios.engine import Engine
from helios.errors import TrustError
from helios.settings import Settings
from tests.golden import maker
from tests.golden.golden import SIGNING_KEY, Golden, ask, core_path, names, start


def usable_targets() -> tuple[str, ...]:
    """The kernel libraries that this processor runs."""
    with Device.open("cpu", 1) as device:
        level = device.cudart.integer("cudaDeviceGetAttribute", ATTRIBUTE_CAPABILITY_MAJOR, 0)
    return TARGETS_BY_LEVEL[level]


def check_answers(path: Path, golden: Golden, threads: int = 1) -> None:
    with start(path, threads) as engine:
        for case in golden.cases:
            assert tuple(engine.tokenizer.encode(case.prompt, allow_special=False)) == case.prompt_tokens
        answers = ask(engine, [case.to_request() for case in golden.cases])
        for case, tokens in zip(golden.cases, answers, strict=True):
            ids = tuple(token.token_id for token in tokens)
            assert ids == case.tokens, case.prompt
            assert engine.tokenizer.decode(ids) == case.text


@pytest.mark.parametrize("target", usable_targets())
@pytest.mark.parametrize("name", names())
def test_a_golden_core_answers_as_it_always_has(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CORE-7, CORE-1, CORE-2, CON-3: no re-export, the same tokens, on every kernel target of this processor."""
    monkeypatch.setenv("HELIOS_KERNELS", target)
    with Device.open("cpu", 1) as device:
        assert device.kernels.table.target == target
    check_answers(core_path(name), Golden.load(name))


@pytest.mark.parametrize("name", names())
def test_a_warm_cache_changes_no_answer(name: str) -> None:
    """CORE-7, CACHE-5: a core without state rows reuses whole pages, one with them goes on at the exact token."""
    golden = Golden.load(name)
    with start(core_path(name)) as engine:
        for case in golden.cases:
            for _ in range(2):
                (tokens,) = ask(engine, [case.to_request()])
                assert tuple(token.token_id for token in tokens) == case.tokens, case.prompt
        statistics = engine.statistics()
    lengths = [len(case.prompt_tokens) for case in golden.cases]
    exact, by_page = sum(n - 1 for n in lengths), sum((n - 1) // 16 * 16 for n in lengths)
    assert exact > by_page
    assert statistics["reused_prompt_tokens_total"] == (exact if name.endswith("snapshots") else by_page)


@pytest.mark.parametrize("name", names())
def test_a_golden_core_is_the_file_that_was_written_then(name: str) -> None:
    """CORE-7: who changes a golden core has not kept it loading, but replaced it."""
    assert hashlib.sha256(core_path(name).read_bytes()).hexdigest() == Golden.load(name).sha256


def test_every_format_and_contract_version_has_a_golden_core() -> None:
    """CORE-7: what can be written is kept."""
    assert names() == sorted(maker.GOLDENS)
    formats = {(recipe.container.format, recipe.contract_version) for recipe in maker.GOLDENS.values()}
    assert {number for number, _ in formats} == {2, 4, 6}
    assert {version for _, version in formats} == {1, 2, 3}
    for name, recipe in maker.GOLDENS.items():
        with open_core(core_path(name)) as core:
            assert (core.index.format, core.contract.model.version) == (
                recipe.container.format,
                recipe.contract_version,
            )


@pytest.mark.parametrize("name", names())
def test_prompts_are_chosen_with_room_for_rounding(name: str) -> None:
    """A tie that another order of additions could turn would make a golden core cry wolf."""
    margins = [case.margin for case in Golden.load(name).cases if case.margin is not None]
    assert len(margins) >= maker.N_GREEDY_CASES
    assert min(margins) >= maker.LEAST_MARGIN


def test_threads_change_nothing() -> None:
    """Design 7, on the smallest model there is."""
    check_answers(core_path("payload2-contract3"), Golden.load("payload2-contract3"), threads=2)


@pytest.mark.parametrize("label", ["", "helios.kernels.0", "helios.kernels.2", "some other ABI"])
def test_the_abi_label_never_gates_loading(label: str, tmp_path: Path) -> None:
    """CORE-7: declared layouts and operations are validated instead."""
    name, path = "payload2-contract3", tmp_path / "relabelled.core"
    with open_core(core_path(name)) as core:
        parts = maker.parts_of(core, 3)
        assert parts.manifest.abi_label != label
        parts.manifest.abi_label = label
        write_core(path, parts, SIGNING_KEY)
    check_answers(path, Golden.load(name))


def test_nobody_else_accepts_the_namespace_of_the_tests() -> None:
    """CORE-6: the keys of these cores are in this directory."""
    assert Settings().accept == "local"
    with pytest.raises(TrustError, match=r"published by 'golden\.test'"):
        Engine.start(core_path("payload2-contract3"), Settings(device="cpu", threads=1))


def test_the_maker_refuses_to_overwrite(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """CORE-7: a golden core is written once."""
    before = {path: path.read_bytes() for path in core_path("x").parent.iterdir()}
    monkeypatch.setattr(sys, "argv", ["golden", "index6-contract3", "payload2-contract3"])
    assert maker.main() == 1
    assert "index6-contract3, payload2-contract3: exists" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in core_path("x").parent.iterdir()} == before


def test_the_maker_still_makes_what_answers_the_same(tmp_path: Path) -> None:
    """A new golden core of today's code, from the same checkpoint, answers as the kept one does."""
    path = tmp_path / "new.core"
    maker.write_golden(path, maker.GOLDENS["payload2-contract3"], tmp_path)
    check_answers(path, Golden.load("payload2-contract3"))
