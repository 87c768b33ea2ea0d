"""A checkpoint turned into a signed core: read, captured, described, written.

It knows the order of these steps, no architecture and no device. Equal checkpoint, options, target and key give equal
bytes, whatever the path; nothing is written before everything about the checkpoint was checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.prepared import PreparedContract
from helios.contract.schema import contract_pb2 as pb
from helios.contract.schema import core_pb2
from helios.corefile.keys import LOCAL_NAMESPACE
from helios.corefile.writer import (
    WEIGHT_CATALOG_VERSION,
    Container,
    CoreParts,
    Progress,
    TensorSource,
    write_core,
)
from helios.errors import SettingError
from helios.ignition.capture import Capture
from helios.ignition.checkpoints.gguf import Gguf, open_gguf
from helios.ignition.preparation.contract import finish_manifest, model_contract
from helios.ignition.preparation.frontend import declare_frontend
from helios.ignition.preparation.geometry import MAX_CONCURRENCY, PAGE_TOKENS, ServingGeometry
from helios.ignition.preparation.identity import digest, file_digest, name_of_file, slug
from helios.ignition.preparation.kv_format import KvFormat, usual_kv_format
from helios.ignition.preparation.tokenizer import TokenizerFacts, prepare_tokenizer
from helios.ignition.prepared_core import DEFAULT_CONTEXT_TOKENS, PREPARATION_VERSION, PrepareOptions
from helios.ignition.recipes.hyperparameters import DenseHyperparameters, read_hyperparameters
from helios.ignition.recipes.llama import CapturedModel
from helios.ignition.recipes.table import recipe_for
from helios.ignition.recipes.weights import WeightResource
from helios.ignition.signatures import Target

ABI_LABEL = "helios.kernels.1"
PREFILL_TOKENS = 512


def prepare(
    checkpoint_path: Path,
    core_path: Path,
    target: Target,
    options: PrepareOptions,
    *,
    key: Ed25519PrivateKey,
    namespace: str = LOCAL_NAMESPACE,
    progress: Progress | None = None,
    container: Container | None = None,
) -> None:
    """Write the core of a GGUF checkpoint, signed by `key` under `namespace`, as a payload core when `container` is None.

    Raises CheckpointError or MissingFileError for the checkpoint, SettingError for options that it cannot be prepared with.
    """
    with open_gguf(checkpoint_path) as checkpoint:
        if core_path.exists() and core_path.samefile(checkpoint_path):
            raise SettingError(
                f"the core would replace its checkpoint {checkpoint_path}", hint="choose another --output"
            )
        parts = _describe(checkpoint, checkpoint_path, target, options, namespace)
        write_core(core_path, parts, key, progress, container)


def _describe(
    checkpoint: Gguf, checkpoint_path: Path, target: Target, options: PrepareOptions, namespace: str
) -> CoreParts:
    recipe = recipe_for(checkpoint.text("general.architecture"))
    hyper = read_hyperparameters(checkpoint)
    tokenizer, vocabulary = prepare_tokenizer(checkpoint)
    frontend, facts = declare_frontend(vocabulary)
    geometry = _geometry(hyper, facts, options)
    capture = Capture(target)
    kv_format = options.kv_format or usual_kv_format(target.name)
    captured = recipe.capture(checkpoint, hyper, geometry, kv_format, capture)
    manifest = finish_manifest(capture, captured.surface, ABI_LABEL)
    source_sha256 = file_digest(checkpoint_path)
    served_id, aliases = _names(checkpoint, checkpoint_path, options)
    contract = pb.ServingContract(
        served_id=served_id,
        aliases=aliases,
        cache_identity=_cache_identity(source_sha256, tokenizer, facts, kv_format, captured),
        context_tokens=geometry.context_tokens,
        prefill_tokens=geometry.prefill_tokens,
        page_count=geometry.concurrency * geometry.pages_per_slot,
        snapshot_count=geometry.n_snapshot_rows,
        concurrency=geometry.concurrency,
        model=model_contract(capture.programs, captured.surface, frontend),
    )
    PreparedContract.from_core(contract, manifest)
    return CoreParts(
        contract=contract,
        manifest=manifest,
        tokenizer=tokenizer,
        chat_template=facts.chat_template,
        tensors=[_tensor(weight) for weight in captured.weights],
        namespace=namespace,
        model_license=checkpoint.text("general.license", ""),
        rebuild_manifest={
            "source_format": "gguf",
            "source_sha256": source_sha256.hex(),
            "architecture": hyper.architecture,
            "preparation_version": str(PREPARATION_VERSION),
            "kv_format": kv_format,
        },
        weight_catalogs=[_catalog(captured.weights)],
    )


def _geometry(hyper: DenseHyperparameters, facts: TokenizerFacts, options: PrepareOptions) -> ServingGeometry:
    context_tokens = options.context_tokens
    if context_tokens is None:
        context_tokens = min(hyper.context_tokens, DEFAULT_CONTEXT_TOKENS)
    if not PAGE_TOKENS <= context_tokens <= hyper.context_tokens:
        raise SettingError(
            f"a context of {context_tokens:,} tokens was asked for, the model has {PAGE_TOKENS} to {hyper.context_tokens:,}"
        )
    if not 1 <= options.concurrency <= MAX_CONCURRENCY:
        raise SettingError(f"a concurrency of {options.concurrency:,} was asked for, it must be 1 to {MAX_CONCURRENCY}")
    return ServingGeometry(context_tokens, options.concurrency, PREFILL_TOKENS, facts.vocabulary_size)


def _names(checkpoint: Gguf, checkpoint_path: Path, options: PrepareOptions) -> tuple[str, list[str]]:
    """The served name: the caller's, else the checkpoint's own, else its file's. The checkpoint's own always answers."""
    own = checkpoint.text("general.name", "")
    served_id = options.served_id or (slug(own) if own else name_of_file(checkpoint_path))
    return served_id, [slug(own)] if own and slug(own) != served_id else []


def _cache_identity(
    source_sha256: bytes, tokenizer: bytes, facts: TokenizerFacts, kv_format: KvFormat, captured: CapturedModel
) -> bytes:
    """Two cores share cached prefixes only if weights, tokens, template and page layout are the same."""
    page = f"kv.{kv_format} {captured.surface.cache.nbytes} {PAGE_TOKENS}"
    layouts: Iterable[bytes] = (f"{weight.id} {weight.layout}".encode() for weight in captured.weights)
    template = (facts.chat_template or "").encode()
    return digest([b"helios.cache.1", source_sha256, tokenizer, template, page.encode(), *layouts])


def _tensor(weight: WeightResource) -> TensorSource:
    return TensorSource(
        id=weight.id,
        nbytes=weight.nbytes,
        layout=weight.layout,
        chunks=lambda: [weight.produce().data],
    )


def _catalog(weights: Iterable[WeightResource]) -> core_pb2.WeightCatalog:
    """Which of the checkpoint's tensors the only rank's are made of."""
    views = [
        core_pb2.StoredView(tensor=weight.id, nbytes=weight.nbytes, sources=weight.sources)
        for weight in weights
        if weight.sources
    ]
    return core_pb2.WeightCatalog(version=WEIGHT_CATALOG_VERSION, rank=0, views=views)
