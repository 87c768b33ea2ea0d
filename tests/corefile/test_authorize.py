"""Whose cores are accepted, and this machine's own key."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from helios.corefile.authorize import Acceptance, authorize
from helios.corefile.keys import (
    create_key,
    fingerprint,
    load_key,
    load_or_create_local_key,
    local_key_path,
    public_bytes,
)
from helios.corefile.reader import open_core
from helios.corefile.writer import Container
from helios.errors import ArtifactError, MissingFileError, TrustError
from tests.corefile.sample_core import CONTAINERS, KEY, OTHER_KEY, sample_core


def accept(path: Path, acceptance: str | None, directory: Path) -> Acceptance:
    with open_core(path) as core:
        return authorize(core, acceptance, directory)


def test_the_exact_namespace_is_accepted_and_recorded(tmp_path: Path) -> None:
    """CORE-6: the acceptance records trust and licence terms."""
    granted = accept(sample_core(tmp_path / "a.core"), "example.org", tmp_path)
    assert granted == Acceptance("example.org", fingerprint(public_bytes(KEY)), "Apache-2.0")
    (record,) = (tmp_path / "accepted").iterdir()
    assert json.loads(record.read_text()) == {
        "namespace": "example.org",
        "key_fingerprint": fingerprint(public_bytes(KEY)),
        "model_license": "Apache-2.0",
    }


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_is_accepted_by_its_exact_namespace_alone(tmp_path: Path, container: Container) -> None:
    """CORE-6: another key, another namespace, a prefix: each is refused, whatever the container."""
    path = sample_core(tmp_path / "a.core", container=container)
    for wrong in (None, "example", "example.org.uk", "other.org"):
        with pytest.raises(TrustError, match="is published by"):
            accept(path, wrong, tmp_path)
    accept(path, "example.org", tmp_path)
    impostor = sample_core(tmp_path / "b.core", OTHER_KEY, container=container)
    with pytest.raises(TrustError, match="was accepted with the key"):
        accept(impostor, "example.org", tmp_path)


@pytest.mark.parametrize("acceptance", [None, "", "example", "example.or", "example.org ", "Example.org", "*", "local"])
def test_any_other_string_is_refused(tmp_path: Path, acceptance: str | None) -> None:
    """CORE-6: exactly equal; no prefix, no other spelling."""
    with pytest.raises(TrustError, match=r"give --accept example\.org"):
        accept(sample_core(tmp_path / "a.core"), acceptance, tmp_path)
    assert not (tmp_path / "accepted").exists()


def test_a_namespace_keeps_its_key(tmp_path: Path) -> None:
    """CORE-6: a known namespace that is signed by another key is refused."""
    accept(sample_core(tmp_path / "a.core"), "example.org", tmp_path)
    with pytest.raises(TrustError, match="was accepted with the key"):
        accept(sample_core(tmp_path / "b.core", OTHER_KEY), "example.org", tmp_path)
    accept(sample_core(tmp_path / "a.core"), "example.org", tmp_path)


def test_new_licence_terms_are_recorded(tmp_path: Path) -> None:
    """CORE-6: the record holds the terms of the last acceptance."""
    accept(sample_core(tmp_path / "a.core"), "example.org", tmp_path)
    accept(sample_core(tmp_path / "b.core", model_license="MIT"), "example.org", tmp_path)
    (record,) = (tmp_path / "accepted").iterdir()
    assert json.loads(record.read_text())["model_license"] == "MIT"


def test_a_damaged_record_is_not_believed(tmp_path: Path) -> None:
    accept(sample_core(tmp_path / "a.core"), "example.org", tmp_path)
    (record,) = (tmp_path / "accepted").iterdir()
    record.write_text("{")
    with pytest.raises(TrustError, match="is damaged"):
        accept(tmp_path / "a.core", "example.org", tmp_path)


def test_a_core_of_this_machine_is_accepted_without_being_told(tmp_path: Path) -> None:
    """CORE-6: the namespace `local` belongs to the key made on first use."""
    key = load_or_create_local_key(tmp_path)
    path = sample_core(tmp_path / "a.core", key, namespace="local")
    assert accept(path, None, tmp_path).namespace == "local"
    assert accept(path, "something.else", tmp_path).namespace == "local"


@pytest.mark.parametrize("acceptance", [None, "local"])
@pytest.mark.parametrize("has_key", [True, False])
def test_a_local_core_of_another_machine_is_refused(tmp_path: Path, acceptance: str | None, has_key: bool) -> None:
    """CORE-6: `local` is nobody's to accept."""
    if has_key:
        load_or_create_local_key(tmp_path)
    with pytest.raises(TrustError, match="prepared on another machine"):
        accept(sample_core(tmp_path / "a.core", KEY, namespace="local"), acceptance, tmp_path)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_the_core_inside_the_program_is_accepted_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 2, item 2: a program built `--with-model` serves where it was not built."""
    path = sample_core(tmp_path / "default.core", KEY, namespace="local")
    monkeypatch.setattr("helios.corefile.authorize.PACKAGED_CORE", path.resolve())
    assert accept(path, "local", tmp_path).key_fingerprint == fingerprint(public_bytes(KEY))
    with pytest.raises(TrustError, match="another machine"):
        accept(sample_core(tmp_path / "other.core", KEY, namespace="local"), "local", tmp_path)


def test_the_local_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = load_or_create_local_key(tmp_path / "new")
    path = local_key_path(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public_bytes(load_or_create_local_key(tmp_path / "new")) == public_bytes(key)
    assert list(path.parent.iterdir()) == [path]


def test_threads_that_race_end_up_with_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: public_bytes(load_or_create_local_key(tmp_path)), range(16)))
    assert len(set(keys)) == 1


def test_a_key_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "publisher.pem"
    key = create_key(path)
    with pytest.raises(FileExistsError):
        create_key(path)
    assert public_bytes(load_key(path)) == public_bytes(key)
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_may_be_hexadecimal_digits(tmp_path: Path) -> None:
    path = tmp_path / "key.hex"
    path.write_text(bytes(range(32)).hex() + "\n")
    assert public_bytes(load_key(path)) == public_bytes(KEY)


def test_other_files_are_no_keys(tmp_path: Path) -> None:
    foreign = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for content in (b"", b"hello", b"ab" * 31, b"\xff" * 64, foreign):
        path = tmp_path / "key"
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match="holds no Ed25519 private key"):
            load_key(path)
    with pytest.raises(MissingFileError):
        load_key(tmp_path / "none")


def test_an_unwritable_directory_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="this machine's key cannot be written"):
        load_or_create_local_key(tmp_path / "file")
