"""The named operations that recipes are written in, each lowered to one kernel launch of the vocabulary.

It knows argument lists and the sizes of what kernels write (`cuda_src/kernels.h` is the reference), nothing of models.
Results are temporaries unless the caller says where to put them.
"""

from __future__ import annotations

from helios.errors import InternalError
from helios.ignition.capture import PAGE_COUNT, Argument, ProgramCapture, Tensor
from helios.ignition.operands import (
    Activation,
    AttentionShape,
    Inputs,
    Rows,
    RowTable,
    State,
    Weight,
    floats,
    rows_in,
)
from helios.ignition.preparation.geometry import (
    MAX_CANDIDATES,
    SAMPLE_NBYTES,
    SAMPLING_DISTRIBUTION,
    SAMPLING_PROMPT_DISTRIBUTION,
    ServingGeometry,
)
from helios.ignition.preparation.layouts import RowForm

_WORD = 4  # bytes of an int32 or float

# The suffix of the norm that writes rows in a form, and the kernel that turns float rows into it.
_NORM_SUFFIX = {RowForm.FLOAT: "", RowForm.Q8: "_q8", RowForm.Q12: "_q12", RowForm.BF16: "_bf16"}
_CONVERSION = {RowForm.Q8: "quantize_q8.1", RowForm.Q12: "quantize_q12.1", RowForm.BF16: "round_bf16.1"}


def page_table_update(
    program: ProgramCapture, updates: Tensor, n_updates: Tensor, page_table: Tensor, geometry: ServingGeometry
) -> None:
    program.launch(
        "page_table_update.1",
        updates=updates,
        n_updates=n_updates,
        page_table=page_table,
        updates_capacity=updates.nbytes // (2 * _WORD),
        n_slots=geometry.concurrency,
        pages_per_slot=geometry.pages_per_slot,
    )


def row_table(program: ProgramCapture, inputs: Inputs, requests: Tensor, geometry: ServingGeometry) -> RowTable:
    n_lanes, n_rows = program.batch_capacity, program.packed_token_capacity
    counts = program.scratch(4 * _WORD)
    token, position, slot, identity = (program.scratch(n_rows * _WORD) for _ in range(4))
    lane_first, sample_row, sample_lane = (program.scratch(n_lanes * _WORD) for _ in range(3))
    program.launch(
        "row_table.1",
        **_lanes(inputs, "slot", "generation", "source", "query_length", "position", "sample"),
        n_lanes=inputs["n_lanes"],
        prompt_tokens=inputs["prompt_tokens"],
        requests=requests,
        counts=counts,
        row_token=token,
        row_position=position,
        row_slot=slot,
        row_identity=identity,
        lane_first_row=lane_first,
        sample_row=sample_row,
        sample_lane=sample_lane,
        lanes_capacity=n_lanes,
        rows_capacity=n_rows,
        n_slots=geometry.concurrency,
        n_positions=geometry.context_tokens,
        vocabulary=geometry.vocabulary,
    )
    rows, samples = Rows(counts.at(0, _WORD), n_rows), Rows(counts.at(2 * _WORD, _WORD), n_lanes)
    return RowTable(counts, token, position, slot, identity, lane_first, sample_row, sample_lane, rows, samples)


def _lanes(inputs: Inputs, *names: str) -> dict[str, Tensor]:
    return {f"lane_{name}": inputs[f"lane_{name}"] for name in names}


def embed(program: ProgramCapture, table: RowTable, weight: Weight) -> Activation:
    x = floats(program, table.rows, weight.n_in)
    program.launch(
        f"embed.{weight.layout.name}.1",
        counts=table.counts,
        row_token=table.token,
        weight=weight.tensor,
        x=x.tensor,
        rows_capacity=x.capacity,
        hidden=weight.n_in,
        vocabulary=weight.n_out,
    )
    return x


def rms_norm(
    program: ProgramCapture, rows: Rows, gather: Tensor, x: Activation, weight: Tensor, epsilon: float, form: RowForm
) -> Activation:
    """Row i of the result is the norm of row gather[i] of x."""
    y = rows_in(form, program, rows, x.width)
    program.launch(
        f"rms_norm{_NORM_SUFFIX[form]}.1",
        n_rows=rows.count,
        rows=gather,
        x=x.tensor,
        weight=weight,
        y=y.tensor,
        rows_capacity=rows.capacity,
        x_rows=x.capacity,
        width=x.width,
        epsilon=epsilon,
    )
    return y


def convert(program: ProgramCapture, rows: Rows, x: Activation, form: RowForm) -> Activation:
    """Float rows in the form that a weight reads."""
    if form == RowForm.FLOAT:
        return x
    y = rows_in(form, program, rows, x.width)
    program.launch(
        _CONVERSION[form], n_rows=rows.count, x=x.tensor, y=y.tensor, rows_capacity=rows.capacity, width=x.width
    )
    return y


def linear(
    program: ProgramCapture, rows: Rows, x: Activation, weight: Weight, y: Activation, *, column: int = 0
) -> None:
    """Columns [column, column + n_out) of y = W x."""
    _linear(program, "linear", rows, x, weight, y, weight.n_out, column)


def linear_add(program: ProgramCapture, rows: Rows, x: Activation, weight: Weight, y: Activation) -> None:
    """y += W x."""
    _linear(program, "linear_add", rows, x, weight, y, weight.n_out, 0)


def linear_silu_gate(program: ProgramCapture, rows: Rows, x: Activation, weight: Weight, y: Activation) -> None:
    """y = silu(gate x) * (up x); the weight holds both, interleaved by groups of rows."""
    _linear(program, "linear_silu_gate", rows, x, weight, y, weight.n_out // 2, 0)


def _linear(
    program: ProgramCapture,
    kind: str,
    rows: Rows,
    x: Activation,
    weight: Weight,
    y: Activation,
    n_out: int,
    column: int,
) -> None:
    layout = weight.layout
    if x.form != layout.reads or x.width != weight.n_in or column + n_out > y.width:
        raise InternalError(f"{kind}: {x} does not fit {layout.name} [{weight.n_out}, {weight.n_in}] into {y}")
    program.launch(
        f"{kind}.{layout.name}.1",
        n_rows=rows.count,
        x=x.tensor,
        weight=weight.tensor,
        y=y.tensor.at(column * _WORD),
        rows_capacity=rows.capacity,
        n_in=weight.n_in,
        n_out=n_out,
        y_stride=y.width,
    )


def add_bias(program: ProgramCapture, rows: Rows, bias: Tensor, y: Activation) -> None:
    """y += bias, which is as wide as y."""
    program.launch(
        "add_bias.1",
        n_rows=rows.count,
        bias=bias,
        y=y.tensor,
        rows_capacity=rows.capacity,
        n_out=y.width,
        y_stride=y.width,
    )


def silu_gate(program: ProgramCapture, rows: Rows, gate: Activation, up: Activation) -> None:
    """gate = silu(gate) * up."""
    program.launch(
        "silu_gate.1",
        n_rows=rows.count,
        gate=gate.tensor,
        up=up.tensor,
        y=gate.tensor,
        rows_capacity=rows.capacity,
        width=gate.width,
    )


def rope_kv(
    program: ProgramCapture,
    table: RowTable,
    qkv: Activation,
    kv: Tensor,
    page_table: Tensor,
    rope: Tensor,
    shape: AttentionShape,
    geometry: ServingGeometry,
    *,
    pairs: str,
    n_rot: int,
) -> None:
    """Rotates queries and keys and writes keys and values to the row's page. `pairs`: "interleaved" or "half"."""
    program.launch(
        shape.kv_format.kernel(f"rope_kv.{pairs}"),
        **_paged(table, kv, page_table, shape, geometry),
        rope=rope,
        qkv=qkv.tensor,
        rows_capacity=qkv.capacity,
        n_rot=n_rot,
        n_positions=geometry.context_tokens,
        q_scale=shape.head_dim**-0.5,
    )


def attention(
    program: ProgramCapture,
    table: RowTable,
    qkv: Activation,
    kv: Tensor,
    page_table: Tensor,
    shape: AttentionShape,
    geometry: ServingGeometry,
    *,
    split: bool,
) -> Activation:
    """Causal attention over the row's slot. `split`: segments are tasks of their own, which few rows need."""
    out = floats(program, table.rows, shape.n_heads * shape.head_dim)
    paged = _paged(table, kv, page_table, shape, geometry)
    if not split:
        whole = shape.kv_format.kernel("attention")
        program.launch(whole, **paged, qkv=qkv.tensor, out=out.tensor, rows_capacity=out.capacity)
        return out
    segments = geometry.max_segments
    partials = program.scratch(out.capacity * shape.n_heads * segments * (shape.head_dim + 2) * _WORD)
    program.launch(
        shape.kv_format.kernel("attention_split"),
        **paged,
        qkv=qkv.tensor,
        partials=partials,
        rows_capacity=out.capacity,
        max_segments=segments,
    )
    program.launch(
        "attention_merge.1",
        counts=table.counts,
        row_position=table.position,
        partials=partials,
        out=out.tensor,
        rows_capacity=out.capacity,
        n_heads=shape.n_heads,
        head_dim=shape.head_dim,
        max_segments=segments,
    )
    return out


def _paged(
    table: RowTable, kv: Tensor, page_table: Tensor, shape: AttentionShape, geometry: ServingGeometry
) -> dict[str, Argument]:
    """The arguments that all kernels over the paged cache share; `n_pages` is known at load only."""
    return {
        "counts": table.counts,
        "row_position": table.position,
        "row_slot": table.slot,
        "page_table": page_table,
        "kv": kv,
        "n_slots": geometry.concurrency,
        "pages_per_slot": geometry.pages_per_slot,
        "n_pages": PAGE_COUNT,
        "page_stride": shape.page_nbytes,
        "n_heads": shape.n_heads,
        "n_kv_heads": shape.n_kv_heads,
        "head_dim": shape.head_dim,
    }


def sample(
    program: ProgramCapture,
    inputs: Inputs,
    table: RowTable,
    logits: Activation,
    state: State,
    geometry: ServingGeometry,
) -> Tensor:
    samples = program.scratch(program.batch_capacity * SAMPLE_NBYTES)
    program.launch(
        "sample.1",
        counts=table.counts,
        sample_row=table.sample_row,
        sample_lane=table.sample_lane,
        row_position=table.position,
        row_slot=table.slot,
        lane_masked=inputs["lane_masked"],
        mask=inputs["mask"],
        sampling=state.sampling,
        bias=state.bias,
        histogram=state.histogram,
        logits=logits.tensor,
        samples=samples,
        lanes_capacity=program.batch_capacity,
        rows_capacity=program.packed_token_capacity,
        n_slots=geometry.concurrency,
        vocabulary=geometry.vocabulary,
    )
    return samples


def distribution(
    program: ProgramCapture,
    table: RowTable,
    logits: Activation,
    state: State,
    distributions: Tensor,
    geometry: ServingGeometry,
) -> None:
    """The whole rows that were sampled from, for the slots that ask for them; behind `sample`, which leaves them raw."""
    _distribution(
        program,
        table,
        table.samples,
        table.sample_row,
        logits,
        state,
        distributions,
        geometry,
        flag=SAMPLING_DISTRIBUTION,
        capacity=geometry.max_distributions,
    )


def prompt_distribution(
    program: ProgramCapture,
    table: RowTable,
    logits: Activation,
    state: State,
    distributions: Tensor,
    geometry: ServingGeometry,
) -> None:
    """The whole rows behind all tokens of the slots that ask for those of their prompts."""
    _distribution(
        program,
        table,
        table.rows,
        table.identity,
        logits,
        state,
        distributions,
        geometry,
        flag=SAMPLING_PROMPT_DISTRIBUTION,
        capacity=geometry.max_prompt_distributions,
    )


def _distribution(
    program: ProgramCapture,
    table: RowTable,
    rows: Rows,
    gather: Tensor,
    logits: Activation,
    state: State,
    distributions: Tensor,
    geometry: ServingGeometry,
    *,
    flag: int,
    capacity: int,
) -> None:
    program.launch(
        "distribution.1",
        n_rows=rows.count,
        rows=gather,
        row_slot=table.slot,
        sampling=state.sampling,
        logits=logits.tensor,
        distributions=distributions,
        flag=flag,
        logits_capacity=logits.capacity,
        rows_capacity=table.rows.capacity,
        n_slots=geometry.concurrency,
        vocabulary=logits.width,
        distributions_capacity=capacity,
    )


def score(program: ProgramCapture, inputs: Inputs, table: RowTable, logits: Activation, scores: Tensor) -> None:
    """What each row's logits say of the prompt token that follows it."""
    program.launch(
        "score.1",
        counts=table.counts,
        targets=inputs["scored_targets"],
        logits=logits.tensor,
        scores=scores,
        rows_capacity=logits.capacity,
        vocabulary=logits.width,
        n_candidates=MAX_CANDIDATES,
    )


def commit(
    program: ProgramCapture,
    inputs: Inputs,
    table: RowTable,
    samples: Tensor,
    state: State,
    completion: Tensor,
    geometry: ServingGeometry,
) -> None:
    program.launch(
        "commit.1",
        **_lanes(inputs, "slot", "generation", "source", "query_length", "position", "sample"),
        n_lanes=inputs["n_lanes"],
        lane_first_row=table.lane_first,
        counts=table.counts,
        sample_lane=table.sample_lane,
        samples=samples,
        submission=inputs["submission"],
        sampling=state.sampling,
        requests=state.requests,
        histogram=state.histogram,
        completion=completion,
        lanes_capacity=program.batch_capacity,
        n_slots=geometry.concurrency,
        vocabulary=geometry.vocabulary,
    )
