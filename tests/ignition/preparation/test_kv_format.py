"""Names and sizes of KV formats, against what the kernels say."""

from __future__ import annotations

import pytest

from helios.ignition.preparation.kv_format import KvFormat, usual_kv_format
from helios.settings import Settings
from tests.kernels.harness import Library, on_every_target

WAYS = ("rope_kv.half", "rope_kv.interleaved", "attention", "attention_split")


@on_every_target
@pytest.mark.parametrize("kv_format", KvFormat)
@pytest.mark.parametrize("name", WAYS)
def test_a_kernel_over_one_page_touches_as_many_bytes_as_its_format_says(
    library: Library, kv_format: KvFormat, name: str
) -> None:
    kernel = library[kv_format.kernel(name)]
    known = {
        "n_heads": 6,
        "n_kv_heads": 3,
        "head_dim": 40,
        "n_rot": 40,
        "page_stride": 1 << 20,
        "n_positions": 16,
        "q_scale": 1.0,
    }
    scalars = {field: known.get(field, 1) for field, _, kind in kernel.fields if kind > 2}
    assert kernel.extents(**scalars)["kv"] == kv_format.page_nbytes(3, 40)


def test_8_bit_pages_take_about_half() -> None:
    assert KvFormat.Q8.page_nbytes(3, 64) / KvFormat.F16.page_nbytes(3, 64) == pytest.approx(0.53, abs=0.005)
    assert KvFormat.BF16.page_nbytes(3, 64) == KvFormat.F16.page_nbytes(3, 64)


def test_the_setting_has_every_format_and_each_target_its_usual_one() -> None:
    assert set(Settings.RULES["kv"].choices) == set(KvFormat)
    assert usual_kv_format("host") == KvFormat.F16
    assert usual_kv_format("cuda") == KvFormat.BF16
