"""The command `scripts/golden`: makes golden cores that do not exist yet.

It never overwrites: a golden core is worth something only because a later release has not touched it. When a container
format, a contract version or a kernel gets a successor, add a line to GOLDENS and make that one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from gguf import GGMLQuantizationType as Q

from helios.contract.schema import core_pb2, execution_pb2
from helios.corefile.layout import CoreFormat
from helios.corefile.reader import Core, open_core
from helios.corefile.writer import Container, CoreParts, TensorSource, write_core
from helios.errors import HeliosError
from helios.ignition.prepare import prepare
from helios.ignition.prepared_core import PrepareOptions
from helios.ignition.signatures import host_target
from helios.scheduler.request import Token
from helios.settings import VERSION
from tests.golden.golden import CORE_KEY, DATA, NAMESPACE, SIGNING_KEY, Case, Golden, ask, core_path, names, start
from tests.ignition.tiny_model import TinyModel, write_tiny

LEAST_MARGIN = 0.02  # of log-probability; kernel targets differ by less than a thousandth of it
N_GREEDY_CASES = 4

MODEL = TinyModel(
    n_layers=1,
    hidden=16,
    n_ff=32,
    n_heads=2,
    n_kv_heads=1,
    head_dim=8,
    n_rot=8,
    n_bytes=128,
    n_extra_tokens=0,
    tied=False,
)
# The other rotation, biases, and weights of half precision.
HALVES = replace(
    MODEL,
    architecture="qwen2",
    type=Q.F16,
    embedding_type=Q.BF16,
    types={"ffn_down.weight": Q.BF16, "ffn_up.weight": Q.BF16},
    biases=("attn_q", "attn_k", "attn_v"),
)
OPTIONS = PrepareOptions(concurrency=2, context_tokens=304, served_id="golden")

SENTENCES = (
    "Golden cores are never written again.",
    "the thin thread",
    "0123456789",
    "What was served once is served for ever, byte for byte.",
    "A page holds 16 tokens, and this sentence needs several of them before its answer begins.",
    "Was einmal galt, gilt immer.",
    '{"is_golden": true}',
    "x",
    "segments " * 29,  # more than the 256 positions that one attention segment has
)
SAMPLED = Case("Draw from me.", 24, {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 2**40 + 7})
PENALISED = Case("again again again", 24, {"temperature": 0.0, "repetition_penalty": 1.2, "frequency_penalty": 0.3})


@dataclass(frozen=True)
class Recipe:
    """One golden core to make."""

    container: Container
    contract_version: int
    model: TinyModel = MODEL


SEALED = Container(CoreFormat.SEALED_INDEX, core_key=CORE_KEY, salt=hashlib.sha256(CORE_KEY).digest())
GOLDENS = {
    "payload2-contract1": Recipe(Container(), 1),
    "payload2-contract2": Recipe(Container(), 2),
    "payload2-contract3": Recipe(Container(), 3),
    "payload2-contract3-halves": Recipe(Container(), 3, HALVES),
    "payload2-contract3-snapshots": Recipe(Container(), 3),  # with rows, RESTORE, SNAPSHOT and SCORED_PREFILL
    "index6-contract3": Recipe(Container(CoreFormat.INDEX), 3),
    "index4-contract3": Recipe(SEALED, 3),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/golden", description="Make golden cores that do not exist yet.")
    parser.add_argument("names", nargs="+", choices=sorted(GOLDENS), metavar="NAME", help=", ".join(sorted(GOLDENS)))
    arguments = parser.parse_args()
    existing = sorted(set(arguments.names) & set(names()))
    if existing:
        print(f"{', '.join(existing)}: exists, and a golden core is never written again", file=sys.stderr)
        return 1
    os.environ["HELIOS_CORE_KEY"] = CORE_KEY.hex()
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as home:
            os.environ["HELIOS_HOME"] = home
            print(make(name, GOLDENS[name], Path(home)))
    return 0


def make(name: str, recipe: Recipe, scratch: Path) -> str:
    """Write core and answers; a line about them."""
    path = scratch / f"{name}.core"
    write_golden(path, recipe, scratch)
    cases = answer(path)
    DATA.mkdir(exist_ok=True)
    content = path.read_bytes()
    with core_path(name).open("xb") as file:
        file.write(content)
    Golden(hashlib.sha256(content).hexdigest(), VERSION, tuple(cases)).save(name)
    margin = min(case.margin for case in cases if case.margin is not None)
    return f"{name}: {len(content):,} bytes, {len(cases)} cases, least margin {margin:.3f}"


def write_golden(path: Path, recipe: Recipe, scratch: Path) -> None:
    """The tiny checkpoint prepared, then written in the recipe's container and contract version."""
    plain = scratch / "plain.core"
    checkpoint = write_tiny(scratch / "golden.gguf", recipe.model)
    prepare(checkpoint, plain, host_target(), OPTIONS, key=SIGNING_KEY, namespace=NAMESPACE)
    with open_core(plain) as core:
        write_core(path, parts_of(core, recipe.contract_version), SIGNING_KEY, container=recipe.container)


def parts_of(core: Core, contract_version: int) -> CoreParts:
    """A prepared core's parts, with the contract of an older version: without the fields that it lacks."""
    contract = type(core.contract)()
    contract.CopyFrom(core.contract)
    contract.model.version = contract_version
    if contract_version < 3:
        for selector in ("tool_syntax", "reasoning_syntax", "image_preparation", "image_layout"):
            contract.model.frontend.ClearField(selector)  # type: ignore[arg-type]
    if contract_version < 2:
        contract.model.ClearField("input_vocabulary")
    manifest = execution_pb2.ExecutionManifest.FromString(_resource(core, core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST))
    return CoreParts(
        contract=contract,
        manifest=manifest,
        tokenizer=_resource(core, core_pb2.RESOURCE_KIND_TOKENIZER),
        chat_template=_resource(core, core_pb2.RESOURCE_KIND_CHAT_TEMPLATE).decode(),
        tensors=[_tensor(core, tensor) for tensor in core.index.tensors],
        namespace=NAMESPACE,
        model_license="Apache-2.0",
        rebuild_manifest=core_pb2.RebuildManifest.FromString(core.index.rebuild_manifest).inputs,
        weight_catalogs=[core_pb2.WeightCatalog.FromString(catalog) for catalog in core.index.weight_catalogs],
    )


def answer(path: Path) -> list[Case]:
    """Greedy cases with comfortable margins, a penalised one that has one too, and a seeded draw."""
    with start(path) as engine:
        greedy = [Case(sentence, 20 + 4 * index) for index, sentence in enumerate(SENTENCES)]
        asked = [
            replace(case, prompt_tokens=tuple(engine.tokenizer.encode(case.prompt, allow_special=False)))
            for case in (*greedy, PENALISED, SAMPLED)
        ]
        answered = [
            _answered(case, tokens, engine.tokenizer.decode([token.token_id for token in tokens]))
            for case, tokens in zip(asked, ask(engine, [case.to_request(2) for case in asked]), strict=True)
        ]
    *greedy, penalised, sampled = answered
    good = [case for case in greedy if (case.margin or 0) >= LEAST_MARGIN]
    if len(good) < N_GREEDY_CASES:
        raise HeliosError(f"only {len(good)} of {len(greedy)} prompts have a margin of {LEAST_MARGIN}")
    return [*good, replace(penalised, margin=None), replace(sampled, margin=None)]


def _answered(case: Case, tokens: list[Token], text: str) -> Case:
    margin = min(token.candidates[0][1] - token.candidates[1][1] for token in tokens)
    return replace(case, tokens=tuple(token.token_id for token in tokens), text=text, margin=round(margin, 4))


def _resource(core: Core, kind: core_pb2.ResourceKind) -> bytes:
    content = core.resource(kind)
    assert content is not None
    return content


def _tensor(core: Core, tensor: core_pb2.TensorResource) -> TensorSource:
    content = bytes(core.tensor(tensor.id))
    return TensorSource(tensor.id, tensor.nbytes, tensor.layout, lambda: [content])
