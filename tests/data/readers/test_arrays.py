from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mohs
from mohs._core.errors import DataError
from mohs.data.readers.arrays import as_inputs, from_arrays, from_mapping, npz


def test_features_become_float32_and_images_four_dimensions() -> None:
    assert as_inputs(np.arange(6).reshape(3, 2))[0].dtype == torch.float32
    assert as_inputs(np.ones((3, 2), ">f8"))[0].dtype == torch.float32
    assert as_inputs(torch.rand(3, 2, dtype=torch.float64))[0].dtype == torch.float32
    assert as_inputs(np.zeros((5, 6, 7), np.uint8))[0].shape == (5, 1, 6, 7)
    assert as_inputs(np.zeros((5, 6, 7, 3), np.uint8))[0].shape == (5, 3, 6, 7)
    assert as_inputs(np.zeros((5, 3, 6, 7), np.uint8))[0].shape == (5, 3, 6, 7)
    last = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    assert np.array_equal(as_inputs(last)[0].numpy(), last.transpose(0, 3, 1, 2))


def test_images_become_uint8_if_lossless() -> None:
    levels = np.array([0, 7, 255], np.uint8).reshape(3, 1, 1)
    for same in (levels.astype(np.int64), levels / np.float32(255), levels.astype(np.float64)):
        found, notes = as_inputs(same)
        assert found.dtype == torch.uint8
        assert found.flatten().tolist() == [0, 7, 255]
        assert notes == []
    between, notes = as_inputs(np.array([0.1, 0.5], np.float32).reshape(2, 1, 1))
    assert (between.dtype, notes) == (torch.float32, [])
    signed, notes = as_inputs(np.array([-1.5, 2.0], np.float32).reshape(2, 1, 1))
    assert (signed.flatten().tolist(), notes) == ([-1.5, 2.0], ["pixels from -1.5 to 2 were kept as they are"])
    wide, notes = as_inputs(np.array([0, 1000, 2000], np.uint16).reshape(3, 1, 1))
    assert (wide.flatten().tolist(), notes) == ([0, 128, 255], ["levels from 0 to 2000 were scaled to 256 levels"])
    assert as_inputs(np.array([True, False]).reshape(2, 1, 1))[0].flatten().tolist() == [255, 0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros(3), r"inputs must be features \(N, D\) or images"),
        (np.zeros((1, 2, 3, 4, 5)), r"got torch\.float64 \(1, 2, 3, 4, 5\)"),
        (np.array([["a"]]), "inputs must be numbers, all of one shape, got <U1"),
        (np.array([[1.0], [np.nan], [np.inf]]), r"the inputs of row 1 hold NaN or infinity; 2 row\(s\) do"),
    ],
)
def test_invalid_inputs(inputs: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_inputs(inputs)


def test_labels_of_any_kind() -> None:
    x = np.zeros((3, 2))
    assert from_arrays(x, ["b", "a", "b"]).labels.tolist() == [1, 0, 1]
    assert from_arrays(x, torch.tensor([5, 9, 5])).classes == [5, 9]
    assert from_arrays(x, np.array([[0], [1], [0]])).labels.tolist() == [0, 1, 0]
    assert from_arrays(x, [True, False, True]).classes == [False, True]
    assert from_arrays(x, [0, 1, 0], classes=["n", "y"]).classes == ["n", "y"]
    assert from_arrays(x, ["y", "n", "y"], classes=["n", "y"]).labels.tolist() == [1, 0, 1]
    assert from_arrays(x, np.array([b"u", b"v", b"u"])).classes == ["u", "v"]
    missing = from_arrays(x, [1.0, float("nan"), 0.0])
    assert (missing.keys, missing.labels.tolist(), len(missing.left_out)) == ([0, 2], [1, 0], 1)
    assert from_arrays(x, np.array(["a", None, "b"], object)).keys == [0, 2]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0, 1], None, "3 inputs but 2 labels: give one label per example"),
        (np.eye(3), None, r"labels must have shape \(N,\), one per example, got shape \(3, 3\)"),
        ([0.5, 1, 2], None, r"the label of row 0 is 0\.5: labels are strings or integers"),
        (np.array(["a", 1, "b"], object), None, "labels must be strings or integers, all of one type, got int, str"),
        (np.array([1j, 0, 0]), None, "labels must be strings or integers, got complex128"),
        ([0, 1, 2], ["n", "y"], r"the label of row 2 is 2, not one of the 2 classes \('n', 'y'\)"),
        ([0, 1, 0], ["n", "n"], "two classes have the same name"),
    ],
)
def test_invalid_labels(labels: object, classes: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(np.zeros((3, 2)), labels, classes=classes)


def test_npz_files_by_the_usual_names(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((4, 2)).astype(np.float32), np.array([0, 1, 0, 1])
    for names in [("x", "y"), ("X", "labels"), ("features", "target"), ("train_x", "train_y"), ("x_train", "y_train")]:
        np.savez(tmp_path / "a.npz", **dict(zip(names, (x, y), strict=True)))
        data = npz(tmp_path / "a.npz")
        assert np.array_equal(data.train.inputs, x)  # type: ignore[call-overload]
        assert (data.test, data.name) == (None, "a")
    images = np.full((4, 5, 5), 2000, np.uint16)
    images[0] = 1000
    np.savez(tmp_path / "b.npz", train_images=images, train_labels=y[:, None], val_images=images[:1], val_labels=y[:1],
             test_images=images[:2], test_labels=y[:2], classes=["n", "y"])  # fmt: skip
    data = npz(tmp_path / "b.npz")
    assert [len(part) for part in data.splits.values()] == [4, 1, 2]
    assert data.classes == ["n", "y"]
    assert data.val.inputs.unique().tolist() == [128]  # type: ignore[union-attr]  # by the training images' largest level
    np.savez(tmp_path / "c.npz", data=x, subject=y)
    assert len(npz(tmp_path / "c.npz", label="subject").train) == 4


def test_npz_files_that_are_not_a_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", faces=np.zeros((2, 2)), subject=[0, 1])
    with pytest.raises(
        DataError,
        match=r"a: inputs \(input, inputs, image.*are expected, by these names .*there are faces, subject",
    ):
        npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.array([{}, 1], object))
    with pytest.raises(DataError, match=r"cannot be read as \.npz .*pickled objects are not loaded"):
        npz(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"PK\3\4 broken")
    with pytest.raises(DataError, match=r"b\.npz: cannot be read as \.npz"):
        npz(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"one array without labels; save both in a \.npz file"):
        npz(tmp_path / "c.npy")
    with pytest.raises(DataError, match="the label of row 0 is 7, not one of the 2 classes"):
        from_mapping({"x": np.zeros((2, 2)), "y": [0, 1], "test_x": np.zeros((1, 2)), "test_y": [7]})


def test_ids_of_a_file_are_the_keys_of_its_examples(tmp_path):
    arrays = {"x": np.zeros((4, 2)), "y": [0, 1, 0, 1], "ids": list("abcd"), "x_test": np.zeros((2, 2)), "y_test": [0, 1]}
    np.savez(tmp_path / "a.npz", **arrays, ids_test=[7, 9])
    data = mohs.open_data(tmp_path / "a.npz")
    assert list(data.train.keys) == list("abcd")
    assert list(data.test.keys) == [7, 9]
    for other in (["a", "a", "b", "c"], [1, 2]):  # not ids: repeated, or of another length
        np.savez(tmp_path / "a.npz", **(arrays | {"ids": other}))
        assert mohs.open_data(tmp_path / "a.npz").train.keys is None


def test_labels_that_are_nearly_all_different_warn(tmp_path):
    names = [f"a sentence of its own number {i}" for i in range(30)]
    x = np.random.default_rng(0).random((30, 2))
    warning = r"30 labels .*are of 30 classes, such as 'a sentence of its own.*name their column"
    with pytest.warns(UserWarning, match=warning):
        mohs.open_data((x, names))
    (tmp_path / "rows.csv").write_text("\n".join(["text,score", *(f"{name},{i % 2}" for i, name in enumerate(names))]))
    with pytest.warns(UserWarning, match=warning):
        mohs.open_data(tmp_path / "rows.csv", label="text")
    mohs.open_data((x, names[:10] * 3))  # ten classes of three: no warning
    mohs.open_data((x, np.arange(30)))  # numbers
