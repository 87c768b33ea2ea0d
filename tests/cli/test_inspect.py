"""`helios inspect` on cores, checkpoints and other files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from helios.cli.main import main
from tests.corefile.sample_core import CONTAINERS, CORE_KEY, sample_core
from tests.ignition.checkpoints import raw_gguf as raw
from tests.ignition.tiny_model import TinyModel, write_tiny


def test_a_core_is_shown_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_core(tmp_path / "sample.core")
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    for part in ("publisher    example.org, key SHA256:", "licence      Apache-2.0", "128 tokens of context"):
        assert part in text
    assert "decode.b4" in text
    assert "kv: 2,048 bytes a page of 16 tokens" in text


def test_a_core_is_shown_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_core(tmp_path / "sample.core")
    assert main(["inspect", "--json", str(path)]) == 0
    description = json.loads(capsys.readouterr().out)
    assert description["contract"]["served_id"] == "sample"
    assert [entry["packed_token_capacity"] for entry in description["programs"]] == [0, 32, 4, 32]
    assert description["tensors"] == [{"id": "embedding", "layout": "f32.g8", "bytes": 5000, "place": "this file"}]
    assert description["contract"]["cache"]["page_tokens"] == 16
    assert description["contract"]["frontend"]["tool_syntax"] == "none"
    assert description["programs"][2]["bindings"]
    assert description["rebuild_manifest"] == {"recipe": "sample", "source": "sample.gguf"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_is_shown_as_a_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """CORE-1, CORE-2: contract, programs, buffers and sizes, whatever the container."""
    monkeypatch.setenv("HELIOS_CORE_KEY", CORE_KEY.hex())
    path = sample_core(tmp_path / "sample.core", container=CONTAINERS[name])
    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    kind = {"payload": "payload core", "split": "payload core"}.get(name, "logical-resource core")
    assert kind in lines[0]
    tops = [line.removeprefix("├─ ").split("  ")[0] for line in lines if line.startswith("├─ ")]
    assert tops[:5] == ["publisher", "licence", "made from", "target", "contract"]
    assert [top.split(" ", 1)[1][:9] for top in tops[5:]] == ["programs ", "buffers", "resources"]
    assert any(line.startswith("└─ 1 tensors") for line in lines)
    where = str(tmp_path) if name.startswith("split") else "this file"
    assert any(where in line and "tokenizer" in line for line in lines)


def test_a_checkpoint_is_shown_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel())
    assert main(["inspect", str(path)]) == 0
    assert "general.architecture = 'llama'" in capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    description = json.loads(capsys.readouterr().out)
    assert description["metadata"]["tokenizer.ggml.tokens"]["length"] > 256
    assert all(entry["bytes"] > 0 for entry in description["tensors"])


def test_what_a_file_says_is_not_obeyed_by_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hostile.gguf"
    key = "a\x1b]0;title\x07\nb"
    path.write_bytes(raw.gguf([raw.metadata(key, raw.STRING, raw.string("\x1b[31m\u202e"))]))
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert r"a\x1b]0;title\x07\nb = '\x1b[31m\u202e'" in shown
    assert all(line.isprintable() for line in shown.splitlines())


@pytest.mark.parametrize("content", [b"", b"hello", b"HELIOS"])
@pytest.mark.parametrize("verb", ["inspect", "serve", "chat"])
def test_other_files_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, verb: str
) -> None:
    path = tmp_path / "file.gguf"
    path.write_bytes(content)
    assert main([verb, str(path)]) == 1
    said = (
        f"helios: {path} ({len(content)} bytes) is neither a core nor a GGUF checkpoint; give a .core or .gguf file\n"
    )
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("verb", ["inspect", "serve", "chat", "verify", "prepare"])
def test_a_pipe_is_no_model_and_nobody_waits_for_its_writer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOS_HOME", str(tmp_path / "home"))
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    assert main([verb, str(path)]) == 1
    assert re.fullmatch(f"helios: .*{path}.* is not a regular file.*\n", capsys.readouterr().err)


def test_a_missing_file_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "none")]) == 1
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
