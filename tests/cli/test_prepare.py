"""`helios prepare`: a checkpoint in, a signed core out, under this machine's key or a publisher's."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helios.cli.prepare import add_arguments, run
from helios.corefile.contents import read_contents
from helios.corefile.keys import create_key, public_bytes
from helios.corefile.layout import CoreFormat
from helios.corefile.origin import describe_rebuild_manifest, describe_weight_catalogs
from helios.corefile.reader import open_core
from helios.errors import ArtifactError, SettingError
from helios.ignition.preparation.kv_format import kv_format_of
from tests.device.compiling import need_cuda_library
from tests.ignition.tiny_model import TinyModel, write_tiny


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return write_tiny(tmp_path / "Tiny-1M.Q4_0.gguf", TinyModel())


def prepare(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


def test_the_core_stands_in_this_directory_under_the_name_of_the_file(
    gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(str(gguf)) == 0
    assert capsys.readouterr().out == "Tiny-1M.Q4_0.core\n"
    with open_core(Path("Tiny-1M.Q4_0.core")) as core:
        assert core.namespace == "local"
        assert core.contract.served_id == "tiny-1m"


def test_a_split_index_is_a_small_core_and_a_directory(gguf: Path) -> None:
    """CORE-2: a logical-resource core of version 6, its resources in files beside it."""
    assert prepare(str(gguf), "-o", "tiny.core", "--index", "--split") == 0
    (directory,) = (path for path in Path().glob("tiny.*") if path.is_dir())
    assert Path("tiny.core").stat().st_size < sum(path.stat().st_size for path in directory.iterdir())
    with open_core(Path("tiny.core")) as core:
        assert core.index.format is CoreFormat.INDEX
        read_contents(core)
        core.verify_tensors()


def test_split_with_a_url_points_there(gguf: Path) -> None:
    assert prepare(str(gguf), "-o", "tiny.core", "--split", "http://localhost:1/tiny/") == 0
    with open_core(Path("tiny.core")) as core:
        assert core.namespace == "local"


def test_what_a_core_was_made_from_is_written_down(gguf: Path) -> None:
    """CORE-8: a rebuild manifest, and a catalog of the one rank's weights."""
    assert prepare(str(gguf)) == 0
    with open_core(Path("Tiny-1M.Q4_0.core")) as core:
        assert describe_rebuild_manifest(core.index)["source_format"] == "gguf"
        (catalog,) = describe_weight_catalogs(core.index)
        sources = {source for view in catalog["views"] for source in view["sources"]}
        assert (catalog["rank"], "token_embd.weight" in sources) == (0, True)
        assert {view["tensor"] for view in catalog["views"]} <= {tensor.id for tensor in core.index.tensors}


def test_the_local_namespace_is_this_machines_alone(gguf: Path, tmp_path: Path) -> None:
    """CORE-6."""
    create_key(tmp_path / "key.pem")
    with pytest.raises(SettingError, match="this machine's key alone"):
        prepare(str(gguf), "--sign", "key.pem", "--namespace", "local")


def test_options_and_a_publisher_key_reach_the_core(gguf: Path, tmp_path: Path) -> None:
    key = create_key(tmp_path / "key.pem")
    words = ["--context", "64", "--concurrency", "2", "--name", "tiny", "--sign", "key.pem", "--namespace", "acme"]
    assert prepare(str(gguf), "-o", "out.core", *words) == 0
    with open_core(Path("out.core")) as core:
        contract = core.contract
        assert (core.namespace, core.public_key) == ("acme", public_bytes(key))
        assert (contract.served_id, contract.context_tokens, contract.concurrency) == ("tiny", 64, 2)


def test_a_core_says_how_it_keeps_keys_and_values(gguf: Path) -> None:
    page_nbytes = []
    for kv, words in (("f16", []), ("q8", ["--kv", "q8"])):
        assert prepare(str(gguf), "-o", f"{kv}.core", *words) == 0
        with open_core(Path(f"{kv}.core")) as core:
            contents = read_contents(core)
            assert kv_format_of(contents.manifest) == describe_rebuild_manifest(core.index)["kv_format"] == kv
            contract = contents.contract
            page_nbytes.append(max(buffer.page_nbytes for buffer in contract.buffers))
    assert page_nbytes[1] < page_nbytes[0]


@pytest.mark.parametrize("words", [["--namespace", "acme"], ["--sign", "key.pem"]])
def test_a_key_and_a_namespace_go_together(gguf: Path, words: list[str]) -> None:
    with pytest.raises(SettingError, match="--sign and --namespace go together"):
        prepare(str(gguf), *words)


def test_a_checkpoint_is_not_replaced_by_its_core(gguf: Path, tmp_path: Path) -> None:
    content = gguf.read_bytes()
    (tmp_path / "link.core").symlink_to(gguf)
    for output in (str(gguf), "link.core"):
        with pytest.raises(SettingError, match="would replace its checkpoint"):
            prepare(str(gguf), "-o", output)
    assert gguf.read_bytes() == content


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_only_a_file_is_replaced_by_a_core(gguf: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A device would be a file behind it."""
    output = tmp_path / "out.core"
    make(output)
    kind = output.stat().st_mode
    with pytest.raises(ArtifactError, match=r"out\.core cannot be written: it is there and is no regular file"):
        prepare(str(gguf), "-o", "out.core")
    assert output.stat().st_mode == kind


def test_a_core_for_a_gpu_is_prepared_where_none_is(gguf: Path) -> None:
    """Issue 7: its programs say how each kernel is launched."""
    need_cuda_library()
    assert prepare(str(gguf), "-o", "gpu.core", "--device", "cuda") == 0
    with open_core(Path("gpu.core")) as core:
        manifest = read_contents(core).manifest
    kernels = [node.kernel for program in manifest.programs for node in program.nodes]
    assert manifest.target == "cuda"
    assert {kernel.block_x % 32 for kernel in kernels} == {0}
    assert max(kernel.grid_x for kernel in kernels) > 1
