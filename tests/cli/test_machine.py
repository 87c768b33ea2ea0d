"""The processor's name: two models that call themselves the same are told apart."""

from __future__ import annotations

import re

from helios.cli.machine import processor

ZEN5 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx_vnni avx512f avx512_vnni avx512_bf16

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 99
"""
SAPPHIRE_RAPIDS = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel Xeon Processor
flags\t\t: avx2 avx512f avx512_vnni avx512_bf16 amx_int8
"""
NEOVERSE = """processor\t: 0
Features\t: fp asimd asimddp i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd40
"""


def test_the_code_has_maker_family_and_model() -> None:
    assert processor(ZEN5).code == "amd-26-2"
    assert processor(SAPPHIRE_RAPIDS).code == "intel-6-143"
    assert processor(NEOVERSE).code == "0x41-8-0xd40"


def test_the_text_says_what_the_vector_units_can_do() -> None:
    assert str(processor(ZEN5)) == "AMD EPYC (amd-26-2; AVX2, AVX-512, VNNI, BF16)"
    assert str(processor(SAPPHIRE_RAPIDS)).endswith("BF16, AMX)")
    assert str(processor(NEOVERSE)) == "an unnamed processor (0x41-8-0xd40; NEON, dot products, 8-bit matrices)"


def test_this_machine_has_a_code_that_can_be_part_of_a_name() -> None:
    assert re.fullmatch(r"[a-z0-9_-]+", processor().code)
    assert processor("").code
