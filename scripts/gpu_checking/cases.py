"""A launch of every kernel of the vocabulary at the size of serving, and what it has to move and to compute at least.

It knows what arguments mean (cuda_src/kernels.h), no device. What a pointer's argument moves is its extent, unless the case says
that less of it is touched; contents only have to lead the kernel the way that serving does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helios.device.kernel_table import EXTENT_REFUSED, FieldKind, KernelTable
from helios.packing.values import SAMPLING_ROW

PAGE_TOKENS, SEGMENT = 16, 256  # HELIOS_PAGE_TOKENS, HELIOS_SEGMENT
LOGPROBS, DISTRIBUTION = 2, 8  # HELIOS_SAMPLING_*
PAGE_BYTES_PER_DIMENSION = {"": 64, "bf16": 64, "q8": 32}  # keys and values of a head's page
Given = dict[str, Any]


class Anything:
    """Memory whose contents do not matter: finite numbers, whether read as float, bf16 or bytes."""


ANYTHING = Anything()


@dataclass(frozen=True)
class Shapes:
    """What is launched. `linear`: outputs and inputs; attention: `heads` (query heads, KV heads, head dimension), of each lane
    `context` tokens."""

    linear: tuple[int, int]
    rows: tuple[int, ...]
    heads: tuple[int, int, int]
    lanes: int
    context: int
    vocabulary: int


GPU = Shapes((8192, 4096), (1, 32, 512), (32, 8, 128), 32, 1024, 128 * 1024)
TINY = Shapes((64, 64), (3,), (4, 2, 16), 2, 32, 64)


@dataclass(frozen=True)
class Case:
    """A launch of kernel `name`: for a pointer an array, ANYTHING, or 0 for zeros. `touched`: the bytes that are moved of
    arguments that are touched in part only."""

    name: str
    what: str
    given: Mapping[str, Any]
    touched: Mapping[str, int] = field(default_factory=dict)
    operations: float = 0.0

    def __str__(self) -> str:
        return f"{self.name.removesuffix('.1')} {self.what}"

    def arguments(self, table: KernelTable) -> tuple[bytearray, dict[str, int]]:
        """The argument struct with pointers of zero, and the bytes behind each pointer."""
        signature = table.signatures[self.name]
        args = bytearray(signature.args_size_bytes)
        for each in signature.fields:
            if not each.kind.is_pointer:
                struct.pack_into(each.kind.struct_format, args, each.offset, self.given[each.name])
        extents = {
            each.name: extent
            for each, extent in zip(signature.fields, table.extents(self.name, bytes(args)), strict=True)
            if each.kind.is_pointer
        }
        assert EXTENT_REFUSED not in extents.values(), f"{self.name} refuses {self.what}"
        return args, extents

    def moved_nbytes(self, table: KernelTable) -> int:
        """Bytes that are read and written at least."""
        _, extents = self.arguments(table)
        kinds = {each.name: each.kind for each in table.signatures[self.name].fields}
        return sum(
            self.touched.get(name, extent * (2 if kinds[name] == FieldKind.READ_WRITE else 1))
            for name, extent in extents.items()
        )


def cases(names: Iterable[str], shapes: Shapes) -> Iterator[Case]:
    """Every kernel of the table, in its order."""
    for name in names:
        yield from _FAMILIES[name.split(".", maxsplit=1)[0]](name, shapes)


def _int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _counts(n_rows: int, n_lanes: int = 0, n_samples: int = 0) -> np.ndarray:
    return _int32(n_rows, n_lanes, n_samples, 0)


def _linear(name: str, shapes: Shapes) -> Iterator[Case]:
    n_weight_rows, n_in = shapes.linear
    n_out = n_weight_rows // 2 if name.startswith("linear_silu_gate") else n_weight_rows
    for n_rows in shapes.rows:
        given = {"n_rows": _int32(n_rows), "x": ANYTHING, "weight": ANYTHING, "y": ANYTHING, "rows_capacity": n_rows}
        sizes = {"n_in": n_in, "n_out": n_out, "y_stride": n_out}
        what = f"{n_rows} x {n_weight_rows} x {n_in}"
        yield Case(name, what, given | sizes, operations=2.0 * n_rows * n_weight_rows * n_in)


def _embed(name: str, shapes: Shapes) -> Iterator[Case]:
    (vocabulary, hidden), n_rows = shapes.linear, shapes.rows[-1]
    bits = {"q4_1": 5, "q4_0": 4.5, "q8_0": 8.5, "f32": 32}.get(name.split(".")[1], 16)
    given = {
        "counts": _counts(n_rows),
        "row_token": np.random.default_rng(1).integers(0, vocabulary, n_rows).astype(np.int32),
        "weight": ANYTHING,
        "x": 0,
        "rows_capacity": n_rows,
        "hidden": hidden,
        "vocabulary": vocabulary,
    }
    yield Case(name, f"{n_rows} x {hidden}", given, {"weight": int(n_rows * hidden * bits / 8)})


def _rows(name: str, shapes: Shapes) -> Iterator[Case]:
    """Those that go through rows of floats, one after the other."""
    n_rows, width = shapes.rows[-1], shapes.linear[1]
    given: Given = {"n_rows": _int32(n_rows), "rows_capacity": n_rows}
    given |= dict.fromkeys(("x", "y", "weight", "gate", "up", "bias"), ANYTHING)
    given |= {"rows": np.arange(n_rows, dtype=np.int32), "x_rows": n_rows, "epsilon": 1e-5}
    given |= {"width": width, "n_out": width, "y_stride": width}
    yield Case(name, f"{n_rows} x {width}", given)


def _pages(name: str, shapes: Shapes, n_slots: int) -> tuple[Given, int]:
    """The cache of `n_slots` whole contexts, and the bytes of a page. `name` is of a kernel over pages."""
    n_heads, n_kv_heads, head_dim = shapes.heads
    form = next((form for form in ("bf16", "q8") if form in name.split(".")), "")
    page_nbytes = n_kv_heads * (PAGE_BYTES_PER_DIMENSION[form] * head_dim + (128 if form == "q8" else 0))
    pages_per_slot = -(-shapes.context // PAGE_TOKENS)
    n_pages = n_slots * pages_per_slot
    given = {
        "page_table": np.random.default_rng(1).permutation(n_pages).astype(np.int32),
        "kv": ANYTHING,
        "n_slots": n_slots,
        "pages_per_slot": pages_per_slot,
        "n_pages": n_pages,
        "page_stride": page_nbytes,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "head_dim": head_dim,
        "n_rot": head_dim,
        "n_positions": shapes.context,
        "q_scale": 1.0,
        "max_segments": -(-shapes.context // SEGMENT),
    }
    return given, page_nbytes


def _lanes(shapes: Shapes) -> Given:
    """A row of each lane, at the end of its context."""
    n_rows = shapes.lanes
    return {
        "counts": _counts(n_rows, n_rows),
        "row_position": np.full(n_rows, shapes.context - 1, np.int32),
        "row_slot": np.arange(n_rows, dtype=np.int32),
        "qkv": ANYTHING,
        "rows_capacity": n_rows,
    }


def _prompt(shapes: Shapes) -> Given:
    """All rows of one context."""
    n_rows = shapes.context
    rows = {"row_position": np.arange(n_rows, dtype=np.int32), "row_slot": np.zeros(n_rows, np.int32)}
    return {"counts": _counts(n_rows, 1), **rows, "qkv": ANYTHING, "rows_capacity": n_rows}


def _rope(name: str, shapes: Shapes) -> Iterator[Case]:
    pages, page_nbytes = _pages(name, shapes, 1)
    touched = {"kv": shapes.context * page_nbytes // PAGE_TOKENS}
    yield Case(name, f"{shapes.context} rows", _prompt(shapes) | pages | {"rope": ANYTHING}, touched)


def _attention(name: str, shapes: Shapes) -> Iterator[Case]:
    """Split: of each lane one row. Else each row of a prompt over those before it."""
    is_split = name.startswith("attention_split")
    n_rows = shapes.lanes if is_split else shapes.context
    pages, _ = _pages(name, shapes, shapes.lanes if is_split else 1)
    n_heads, _, head_dim = shapes.heads
    n_pairs = n_rows * shapes.context if is_split else n_rows * (n_rows + 1) // 2
    given = (_lanes(shapes) if is_split else _prompt(shapes)) | pages | {"partials": 0, "out": 0}
    touched = {"qkv": 4 * n_rows * n_heads * head_dim}
    yield Case(name, f"{n_rows} rows over {shapes.context}", given, touched, 4.0 * n_pairs * n_heads * head_dim)


def _merge(name: str, shapes: Shapes) -> Iterator[Case]:
    pages, _ = _pages(name, shapes, shapes.lanes)
    yield Case(name, f"{shapes.lanes} rows", _lanes(shapes) | pages | {"partials": 0, "out": 0})


def _sampling(n: int, **fields: float) -> np.ndarray:
    rows = np.zeros(n, SAMPLING_ROW)
    rows["top_p"], rows["repetition_penalty"], rows["output_limit"] = 1, 1, 2**30
    for key, value in fields.items():
        rows[key] = value
    return rows.view(np.uint8)


def _slots(shapes: Shapes, **sampling: float) -> Given:
    """The state of as many requests as lanes, each with a pending token; no bias, no penalties, no mask."""
    n, arange = shapes.lanes, np.arange(shapes.lanes, dtype=np.int32)
    names = (
        *("lane_generation", "lane_source", "lane_query_length", "lane_position", "prompt_tokens", "requests"),
        *("lane_masked", "mask", "bias", "histogram", "staged_bias", "staged_histogram", "samples", "submission"),
        *("row_token", "row_identity", "lane_first_row", "completion", "scores", "distributions"),
    )
    return dict.fromkeys(names, 0) | {
        "n_lanes": _int32(n),
        "n_rows": _int32(n),  # of the samples
        "counts": _counts(n, n, n),
        **dict.fromkeys(("lane_slot", "row_slot", "sample_row", "sample_lane", "rows", "lane_row"), arange),
        "lane_sample": np.ones(n, np.int32),
        "row_position": np.arange(n, dtype=np.int32),
        "sampling": _sampling(n, **sampling),
        "staged_sampling": _sampling(n, **sampling),
        "logits": np.tile(np.random.default_rng(1).normal(0, 4, shapes.vocabulary).astype(np.float32), n),
        "lanes_capacity": n,
        "rows_capacity": n,
        "logits_capacity": n,
        "distributions_capacity": n,
        "n_slots": n,
        "n_positions": shapes.context,
        "vocabulary": shapes.vocabulary,
    }


NOT_TOUCHED = dict.fromkeys(("mask", "bias", "histogram", "staged_bias", "staged_histogram"), 0)


def _state(name: str, shapes: Shapes) -> Iterator[Case]:
    yield Case(name, f"{shapes.lanes} lanes", _slots(shapes), NOT_TOUCHED)


def _page_table_update(name: str, shapes: Shapes) -> Iterator[Case]:
    pages_per_slot = -(-shapes.context // PAGE_TOKENS)
    n = shapes.lanes * pages_per_slot
    updates = np.stack([np.arange(n), np.arange(n)], axis=1).astype(np.int32)
    given = {"updates": updates, "n_updates": _int32(n), "page_table": 0, "updates_capacity": n}
    yield Case(name, f"{n} entries", given | {"n_slots": shapes.lanes, "pages_per_slot": pages_per_slot})


def _sample(name: str, shapes: Shapes) -> Iterator[Case]:
    touched = NOT_TOUCHED | {"logits": 4 * shapes.lanes * shapes.vocabulary}  # read; written only where there is a bias
    ways = {
        "greedy": {"temperature": 0.0},
        "drawn": {"temperature": 1.0},
        "top-p 0.9": {"temperature": 1.0, "top_p": 0.9},
    }
    for way, fields in ways.items():
        yield Case(name, f"{shapes.lanes} x {shapes.vocabulary} {way}", _slots(shapes, **fields), touched)


def _score(name: str, shapes: Shapes) -> Iterator[Case]:
    what = f"{shapes.lanes} x {shapes.vocabulary}"
    targets = np.arange(shapes.lanes, dtype=np.int32)
    yield Case(name, what, _slots(shapes) | {"targets": targets, "n_candidates": 5})


def _distribution(name: str, shapes: Shapes) -> Iterator[Case]:
    what = f"{shapes.lanes} x {shapes.vocabulary}"
    yield Case(name, what, _slots(shapes, flags=LOGPROBS | DISTRIBUTION) | {"flag": DISTRIBUTION})


def _page_copy(name: str, shapes: Shapes) -> Iterator[Case]:
    pages, page_nbytes = _pages(name, shapes, shapes.lanes)
    given = _slots(shapes) | pages | {"lane_endpoint": np.full(shapes.lanes, 8, np.int32), "page_nbytes": page_nbytes}
    # `rows` is state here, not an index.
    given |= {"rows": 0, "n_rows": shapes.lanes, "row_stride": page_nbytes}
    yield Case(name, f"{shapes.lanes} x {page_nbytes}", given, {"kv": shapes.lanes * page_nbytes})


_FAMILIES: dict[str, Callable[[str, Shapes], Iterator[Case]]] = {
    **dict.fromkeys(("linear", "linear_add", "linear_silu_gate"), _linear),
    "embed": _embed,
    **dict.fromkeys(("rms_norm", "rms_norm_q8", "rms_norm_q12", "rms_norm_bf16"), _rows),
    **dict.fromkeys(("quantize_q8", "quantize_q12", "round_bf16"), _rows),
    **dict.fromkeys(("add_bias", "silu_gate"), _rows),
    "rope_kv": _rope,
    "attention": _attention,
    "attention_split": _attention,
    "attention_merge": _merge,
    "page_table_update": _page_table_update,
    **dict.fromkeys(("row_table", "slot_init", "commit"), _state),
    "sample": _sample,
    "score": _score,
    "distribution": _distribution,
    **dict.fromkeys(("page_save", "page_restore"), _page_copy),
}
