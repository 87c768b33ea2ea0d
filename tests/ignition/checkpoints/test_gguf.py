"""The GGUF reader against the `gguf` package, and its behaviour as an owner of a file."""

from __future__ import annotations

import os
from pathlib import Path

import gguf as outside
import numpy as np
import pytest

from helios.errors import CheckpointError, MissingFileError
from helios.ignition.checkpoints.ggml_types import GgmlType, dequantize
from helios.ignition.checkpoints.gguf import Gguf, open_gguf
from tests.ignition.checkpoints import raw_gguf as raw

GENERATOR_SEED = 7


@pytest.fixture
def small_path(tmp_path: Path) -> Path:
    """A file by the outside writer with every kind of value and two tensors."""
    path = tmp_path / "small.gguf"
    generator = np.random.default_rng(GENERATOR_SEED)
    writer = outside.GGUFWriter(path, "llama")
    writer.add_uint32("an.uint32", 7)
    writer.add_int64("an.int64", -(2**40))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 1e-300)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "né 中 😀")
    writer.add_array("some.texts", ["a", "", "😀"])
    writer.add_array("some.integers", [1, -2, 3])
    writer.add_array("some.floats", [0.25, -1.5])
    writer.add_array("some.bools", [True, False])
    writer.add_tensor("matrix", generator.standard_normal((3, 8)).astype(np.float32))
    writer.add_tensor("vector", generator.standard_normal(5).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def small(small_path: Path) -> Gguf:
    return open_gguf(small_path)


def test_values_read_as_they_were_written(small: Gguf) -> None:
    assert small.integer("an.uint32") == 7
    assert small.integer("an.int64", minimum=-(2**63)) == -(2**40)
    assert small.number("a.float32") == 0.5
    assert small.number("a.float64") == 1e-300
    assert small.flag("a.bool") is True
    assert small.text("a.string") == "né 中 😀"
    assert small.texts("some.texts") == ["a", "", "😀"]
    assert small.integers("some.integers").tolist() == [1, -2, 3]
    assert small.numbers("some.floats").tolist() == [0.25, -1.5]
    assert small.metadata["some.bools"] == [True, False]


def test_tensors_have_numpy_shapes_and_their_bytes(small: Gguf, small_path: Path) -> None:
    by_name = {tensor.name: tensor for tensor in outside.GGUFReader(small_path).tensors}
    matrix, vector = small.tensor("matrix", (3, 8)), small.tensor("vector")
    assert (matrix.type, matrix.shape, matrix.n_rows, matrix.n_columns) == (GgmlType.F32, (3, 8), 3, 8)
    assert (vector.type, vector.shape, vector.n_rows, vector.n_columns) == (GgmlType.F16, (5,), 1, 5)
    assert matrix.raw.shape == (3, 32)
    assert not matrix.raw.flags.writeable
    np.testing.assert_array_equal(dequantize(matrix), by_name["matrix"].data)
    np.testing.assert_array_equal(dequantize(vector), by_name["vector"].data.astype(np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda file: file.integer("no.key"), "has no metadata 'no.key'"),
        (lambda file: file.integer("a.string"), "'a.string' is of type str, it must be an integer"),
        (lambda file: file.integer("a.bool"), "'a.bool' is of type bool, it must be an integer"),
        (lambda file: file.integer("an.int64"), "'an.int64' is -1,099,511,627,776, it must be 0 to 2,147,483,647"),
        (lambda file: file.number("a.bool"), "'a.bool' is of type bool, it must be a number"),
        (lambda file: file.number("a.float32", minimum=1.0), "'a.float32' is 0.5, it must be finite and 1 to inf"),
        (lambda file: file.flag("an.uint32"), "'an.uint32' is of type int, it must be a bool"),
        (lambda file: file.text("some.texts"), "'some.texts' is of type list, it must be a string"),
        (lambda file: file.texts("some.bools"), "'some.bools' is of type list, it must be an array of strings"),
        (
            lambda file: file.integers("some.floats"),
            "'some.floats' is of type ndarray, it must be an array of integers",
        ),
        (lambda file: file.numbers("some.texts"), "'some.texts' is of type list, it must be an array of numbers"),
        (lambda file: file.tensor("nothing"), "has no tensor 'nothing'"),
        (lambda file: file.tensor("matrix", (8, 3)), r"'matrix' has shape \[3, 8\], the model needs \[8, 3\]"),
    ],
)
def test_a_getter_names_the_key_and_what_is_wrong(small: Gguf, call: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        call(small)  # type: ignore[operator]


def test_a_getter_falls_back_to_its_default(small: Gguf) -> None:
    assert small.integer("no.key", 3) == 3
    assert small.number("no.key", 0.5) == 0.5
    assert small.flag("no.key", False) is False
    assert small.text("no.key", "") == ""


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nan.gguf"
    nan = np.float32("nan").tobytes()
    path.write_bytes(
        raw.gguf(
            [raw.metadata("one", raw.FLOAT32, nan), raw.metadata("many", raw.ARRAY, raw.array(raw.FLOAT32, 1, nan))]
        )
    )
    with open_gguf(path) as file:
        with pytest.raises(CheckpointError, match="'one' is nan"):
            file.number("one")
        with pytest.raises(CheckpointError, match="'many' has an element that is not finite"):
            file.numbers("many")


def test_a_type_that_is_not_read_still_has_its_layout_checked_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "q6.gguf"
    path.write_bytes(raw.gguf(tensors=[raw.tensor("w", [256, 2], raw.Q6_K)], data=bytes(420)))
    with open_gguf(path) as file:
        assert file.tensors["w"].raw.shape == (2, 210)
        with pytest.raises(CheckpointError, match="'w' has type Q6_K, which this build does not read"):
            file.tensor("w")
        with pytest.raises(CheckpointError, match="'w' has type Q6_K"):
            dequantize(file.tensors["w"])


def test_a_missing_file_a_directory_and_a_pipe_are_each_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in [
        ("nothing.gguf", "does not exist"),
        (".", "is a directory"),
        ("pipe", "is not a regular file"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(MissingFileError, match=message) as caught:
            open_gguf(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_a_missing_file(small_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # tests may run as root, whom no mode bits stop
    with pytest.raises(MissingFileError, match=r"cannot be read \(Permission denied\)"):
        open_gguf(small_path)


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(CheckpointError, match=r"empty.gguf is empty \(0 bytes\)"):
        open_gguf(tmp_path / "empty.gguf")


def test_a_file_cut_after_it_was_opened_is_an_error_and_not_a_signal(small: Gguf, small_path: Path) -> None:
    os.truncate(small_path, 64)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        _ = small.tensor("matrix").raw


def test_close_frees_the_descriptor_and_bytes_already_taken_stay(small_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with open_gguf(small_path) as file:
        tensor = file.tensor("matrix")
        taken = tensor.raw
        expected = taken.copy()
    file.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # noqa: PTH208  (the view keeps its mapping)
    np.testing.assert_array_equal(taken, expected)
    with pytest.raises(ValueError, match="was closed"):
        _ = tensor.raw


def test_a_refused_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"nonsense that is long enough to be mapped")
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with pytest.raises(CheckpointError):
            open_gguf(path)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_default_model_agrees_with_the_outside_reader(default_gguf: Path) -> None:
    """Metadata and tensors, names, types, shapes and bytes; values for one tensor of each type."""
    reader = outside.GGUFReader(default_gguf)
    with open_gguf(default_gguf) as file:
        theirs = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        assert list(file.metadata) == list(theirs)
        for key, field in theirs.items():
            ours = file.metadata[key]
            assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == field.contents()
        assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
        compared: set[GgmlType] = set()
        for tensor in reader.tensors:
            mine = file.tensors[tensor.name]
            assert (mine.type, mine.shape) == (tensor.tensor_type, tuple(map(int, reversed(tensor.shape))))
            assert mine.size_bytes == tensor.n_bytes
            if mine.type not in compared:
                compared.add(mine.type)
                np.testing.assert_array_equal(mine.raw.ravel(), tensor.data.view(np.uint8).ravel())
                expected = outside.quants.dequantize(tensor.data, tensor.tensor_type)
                np.testing.assert_array_equal(dequantize(mine), expected)
        assert compared == {GgmlType.F32, GgmlType.Q8_0, GgmlType.Q4_1}
