from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import TensorDataset

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.data.open_single import DATA
from mohs.data.split import split

Save = Callable[..., Path]


def test_default_data_are_digits() -> None:
    assert open_data().name == open_data("digits").name == "digits"


def test_what_is_in_memory(tmp_path: Path) -> None:
    x, y = torch.rand(6, 3), torch.arange(6) % 2
    examples = Examples(x, y, [0, 1])
    for given in [(x, y), [x.numpy(), y.numpy()], {"features": x, "labels": y}, TensorDataset(x, y), examples, Data(examples)]:
        data = open_data(given)
        assert torch.equal(data.train.inputs, x)  # type: ignore[arg-type]
        assert torch.equal(data.train.labels, y)
    assert open_data((np.zeros((2, 2)), ["a", "b"])).classes == ["a", "b"]


def test_columns_that_are_named_for_images_in_folders_are_not_used(tmp_path: Path, save: Save) -> None:
    for name in ("a", "b"):
        save(tmp_path / "photos" / name / "1.png")
    assert open_data(tmp_path / "photos").notes == []
    data = open_data(tmp_path / "photos", label="kind", text="title")
    note = "label (--label) and text (--text) are for tables, and not used: the names of the folders are the classes"
    assert (data.classes, data.notes) == (["a", "b"], [note])


def test_an_address_is_no_path() -> None:
    for address in ("https://example.com/rows.csv", "s3://bucket/rows.parquet"):
        with pytest.raises(DataError, match=f"^{address} is an address: download it and give the file or folder; only --stream"):
            open_data(address)


def test_paths_by_their_kind(tmp_path: Path, save: Save) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), y=[0, 1], test_x=np.zeros((4, 3)), test_y=[0, 1, 0, 1])
    assert len(open_data(tmp_path / "a.npz").train) == 2
    assert len(open_data(tmp_path / "a.npz", split="test").train) == 4
    (tmp_path / "b.csv").write_text("u,kind\n1,a\n2,b\n")
    assert open_data(str(tmp_path / "b.csv"), label="kind").classes == ["a", "b"]
    (tmp_path / "shards").mkdir()
    pyarrow.parquet.write_table(pa.table({"u": [1.0, 2.0], "label": [0, 1]}), tmp_path / "shards" / "0.parquet")
    assert len(open_data(tmp_path / "shards").train) == 2
    for name in ("cat", "dog"):
        save(tmp_path / "pets" / name / "1.png")
    assert open_data(tmp_path / "pets", image_size=4).train.shape == (3, 4, 4)


def test_known_names_are_found_in_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((2, 16, 16), np.uint16)
    np.savez(tmp_path / "usps.npz", train_x=x, train_y=[0, 1], test_x=x, test_y=[1, 0])
    monkeypatch.delenv("MOHS_DATA", raising=False)
    with pytest.raises(DataError, match=r"usps: pass root, or set MOHS_DATA to the folder that holds it"):
        open_data("usps")
    with pytest.raises(DataError, match=r"nowhere \(root, or MOHS_DATA\) is not a folder"):
        open_data("usps", root=tmp_path / "nowhere")
    assert open_data("usps", root=tmp_path).name == "usps"
    monkeypatch.setenv("MOHS_DATA", str(tmp_path))
    assert len(open_data("usps").train) == 2
    np.savez(tmp_path / "olivetti.npz", faces=np.zeros((4, 64, 64), np.uint8), subject=[0, 0, 1, 1])
    assert open_data("olivetti").train.labels.tolist() == [0, 0, 1, 1]
    np.savez(tmp_path / "olivetti.npz", faces=np.zeros((4, 64, 64), np.uint8))
    with pytest.raises(DataError, match=r"olivetti.npz: faces .* and subject .* are expected, found faces"):
        open_data("olivetti")
    for name, message in [
        ("mnist", "train-images is missing"),
        ("cifar10", "cifar10 not found"),
        ("pacs:photo", "PACS not"),
    ]:
        with pytest.raises(DataError, match=message):
            open_data(name)
    with pytest.raises(ValueError, match="usps:one: usps has no parts; its splits are train, test: write usps alone"):
        open_data("usps:one")


def test_frames_as_people_have_them() -> None:
    x = np.random.default_rng(0).normal(size=40)
    frame = pd.DataFrame({0: x, 1: ["a", "b"] * 20, 2: [1, "two", None, 3.5] * 10})
    for label in (1, "1"):
        train = open_data(frame, label=label).train
        assert (train.kind, train.classes) == ("table", ["a", "b"])
    assert train.inputs.table.column("2").null_count == 10  # type: ignore[union-attr]
    with pytest.raises(DataError, match="data: two columns are called 'a': rename one"):
        open_data(pd.DataFrame(np.ones((4, 2)), columns=["a", "a"]), label="a")
    with pytest.raises(ValueError, match=r"label must be text or None, got \['1'\]"):
        open_data(frame, label=["1"])  # type: ignore[arg-type]


def test_labels_of_which_most_occur_once(tmp_path: Path) -> None:
    number, column = (
        "the 40 labels in column 'price' are of 40 classes, such as '0.5'",
        r"name their column with label \(--label\)",
    )
    (tmp_path / "rows.csv").write_text("x,price\n" + "".join(f"{i % 7},{i}.5\n" for i in range(40)))
    with pytest.warns(UserWarning, match=f"rows: {number}, each occurs once; if these are not the labels, {column}"):
        data = open_data(tmp_path / "rows.csv", label="price")
    with pytest.raises(DataError, match=f"{number}, each of which has one example, .* {column}; .* with target"):
        split(data.train, 0.1, 0)
    with pytest.warns(UserWarning, match="data: the 40 labels in column 'label' are of 39 classes, such as '0', most occur once"):
        open_data(pa.table({"x": [1.5, 2.5] * 20, "label": [*range(39), 0]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_data(tmp_path / "rows.csv", target="price").train.numeric
        open_data((np.ones((40, 2)), [*range(20)] * 2))


def test_data_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"minst: no such file or folder, and not a known name; give a folder.*one of digits, mnist, fash"
    ):
        open_data("minst")
    (tmp_path / "a.docx").write_text("")
    with pytest.raises(
        DataError, match=r"files ending in '\.docx' are not supported; give a folder or \.zip of class folders, a \.csv"
    ):
        open_data(tmp_path / "a.docx")
    with pytest.raises(ValueError, match=r"cannot read a ndarray without labels: pass \(inputs, labels\)"):
        open_data(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="data: cannot read a int; give a folder"):
        open_data(3)
    with pytest.warns(UserWarning, match="1 class.* several spellings, such as 'Dog' and 'dog ': they are judged as different"):
        doubtful = open_data((np.ones((4, 2)), ["Dog", "cat", "dog ", "cat"]))
    open_data(doubtful)  # warns once
    with pytest.warns(UserWarning, match=r"class\(es\) 'N/A', 'nan' may stand for missing labels: if so"):
        open_data((np.ones((4, 2)), ["N/A", "cat", "nan", "cat"]))
    with pytest.raises(DataError, match="data: a single class, 0: a classifier needs at least 2"):
        open_data((np.zeros((3, 2)), [0, 0, 0]))
    with pytest.raises(DataError, match="digits has no test split; it has train"):
        open_data(split="test")


def test_a_path_that_does_not_exist_is_compared_with_what_is_there(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "photos" / part).mkdir(parents=True)
    with pytest.raises(DataError, match=r"photos/tst: no such file or folder, and not a known name; .*photos has test, train$"):
        open_data(tmp_path / "photos" / "tst")
    with pytest.raises(DataError, match=r"photos exists: give it alone, without the part after the colon"):
        open_data(f"{tmp_path / 'photos'}:test")


def test_every_known_name_has_a_description() -> None:
    assert list(DATA) == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "usps", "olivetti", "sphere", "pacs"]
    assert all("classes" in known.about for known in DATA.values())


def test_a_subset_without_examples_of_a_class_loses_the_class() -> None:
    whole = open_data("digits").train
    some = whole.take((whole.labels > 1).nonzero().flatten())
    found = open_data(Data(some, None, whole)).train
    assert found.classes == whole.classes[2:]
    assert torch.equal(found.labels, some.labels - 2)
    assert found.notes[-1] == "2 classes were left out, without an example: 0, 1"
