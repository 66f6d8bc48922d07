"""Files of features are read again with the same ids, labels and splits."""

from __future__ import annotations

import numpy as np
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


def test_other_endings_are_refused(tmp_path):
    data = mohs.open_data((torch.rand(4, 2), [0, 1] * 2))
    with pytest.raises(ValueError, match=r"end in \.npz or \.parquet"):
        write_embedded(data, tmp_path / "features.csv")
