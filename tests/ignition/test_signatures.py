"""Which activations a model that is prepared for the CPU reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.errors import SettingError
from helios.ignition.preparation.layouts import RowForm
from helios.ignition.prepared_core import PrepareOptions, prepared_core
from helios.ignition.signatures import host_target
from tests.ignition.tiny_model import TinyModel, write_tiny


def test_the_activations_of_the_cpu_are_q8_unless_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOS_ACTIVATIONS", raising=False)
    assert host_target().row_form == RowForm.Q8
    monkeypatch.setenv("HELIOS_ACTIVATIONS", "q12")
    assert host_target().row_form == RowForm.Q12
    monkeypatch.setenv("HELIOS_ACTIVATIONS", "bf16")
    assert host_target().row_form == RowForm.BF16
    monkeypatch.setenv("HELIOS_ACTIVATIONS", "float")
    with pytest.raises(SettingError, match="HELIOS_ACTIVATIONS is 'float', it must be q8, q12 or bf16"):
        host_target()


def test_cores_for_other_activations_are_other_cores_and_equal_ones_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    checkpoint, options = write_tiny(tmp_path / "m.gguf", TinyModel()), PrepareOptions(concurrency=2)
    found = {}
    for form in (RowForm.Q8, RowForm.Q12, RowForm.BF16):
        monkeypatch.setenv("HELIOS_ACTIVATIONS", form)
        found[form] = prepared_core(checkpoint, options=options)
        assert prepared_core(checkpoint, options=options) == found[form]
    assert len(set(found.values())) == 3
