"""Files of features are read again with the same ids, labels and splits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import torch
from PIL import Image

import mohs
from mohs.embed.write_embedded import write_embedded


def means(batch):
    return batch.float().mean((2, 3))


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for split, number in (("train", 6), ("test", 4)):
        for i in range(number):
            file = tmp_path / "photos" / split / ("cat", "dog")[i % 2] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file)
    return tmp_path / "photos"


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
@pytest.mark.parametrize("split", ["train", None])
def test_round_trip(tmp_path, folder, ending, split):
    data = mohs.embed(folder, means, cache=False, **({"split": split} if split else {})).data
    again = mohs.open_data(write_embedded(data, tmp_path / f"features{ending}"))
    assert list(again.splits) == list(data.splits)
    for name, examples in data.splits.items():
        other = again.splits[name]
        assert other.kind == "features"
        assert torch.equal(torch.as_tensor(other.inputs), torch.as_tensor(examples.inputs))
        assert torch.equal(other.labels, examples.labels)
        assert other.classes == examples.classes
        assert list(other.keys) == list(examples.keys)


def test_arrays_have_the_ids(tmp_path, folder):
    data = mohs.embed(folder, means, cache=False).data
    with np.load(write_embedded(data, tmp_path / "features.npz")) as arrays:
        assert arrays["ids"].tolist() == list(data.train.keys)
        assert arrays["test_ids"].tolist() == list(data.test.keys)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_classes_may_be_numbers(tmp_path, ending):
    x = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    data = mohs.embed((x, [3, 7] * 3), means, cache=False).data
    again = mohs.open_data(write_embedded(data, tmp_path / f"features{ending}"))
    assert again.classes == [3, 7]
    assert torch.equal(again.train.labels, data.train.labels)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_data_without_labels(tmp_path, folder, ending):
    photos = folder / "train" / "cat"
    (photos / "notes.txt").write_text("no image")
    found = mohs.embed(photos, means, cache=False).data
    assert (found.classes, list(found.train.keys)) == ([], ["0.png", "2.png", "4.png"])
    assert [one.key for one in found.left_out] == ["notes.txt"]
    out = write_embedded(found, tmp_path / f"features{ending}")
    if ending == ".npz":
        with np.load(out) as arrays:
            assert sorted(arrays) == ["features", "ids"]
            assert arrays["ids"].tolist() == ["0.png", "2.png", "4.png"]
    else:
        table = pyarrow.parquet.read_table(out)
        assert table.column_names == ["id", "features", "source"]
        assert table.column("id").to_pylist() == ["0.png", "2.png", "4.png"]


def test_inputs_alone_in_memory_and_in_files(tmp_path, folder):
    files = sorted((folder / "train" / "cat").glob("*.png"))
    whole = mohs.embed(folder / "train" / "cat", means, cache=False).features
    for data, number in ((files, 3), ([str(file) for file in files], 3), (files[0], 1), (str(files[0]), 1)):
        assert torch.equal(mohs.embed(data, means, cache=False).features, whole[:number])
    assert mohs.embed(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), means, cache=False).features.shape == (4, 3)
    (tmp_path / "texts.csv").write_text("id,review\np,a boat\nq,\nr,a goat on a hill\n")
    frame = pd.read_csv(tmp_path / "texts.csv")
    for data, ids in ((tmp_path / "texts.csv", ["p", "r"]), (frame, ["p", "r"]), (["a boat", "", "a goat"], [0, 2])):
        found = mohs.embed(data, lambda texts: [[len(text), 1] for text in texts], cache=False)
        assert list(found.train.keys) == ids
    with pytest.raises(mohs.DataError, match="no column 'kind'; its columns: id, review"):
        mohs.embed(tmp_path / "texts.csv", means, cache=False, label="kind")


def test_other_endings_are_refused(tmp_path):
    data = mohs.open_data((torch.rand(4, 2), [0, 1] * 2))
    with pytest.raises(ValueError, match=r"end in \.npz or \.parquet"):
        write_embedded(data, tmp_path / "features.csv")
