from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.open_data import open_data


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"hf: data need the datasets package: pip install 'mohs\[hf\]'"):
        open_data("hf:mnist")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed (the hf extra)")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


def pictures(datasets: Any, labels: list[int]) -> Any:
    kinds = datasets.Features(
        {"photo": datasets.Image(), "kind": datasets.ClassLabel(names=["n", "y"]), "age": datasets.Value("int64")}
    )
    rows = {"photo": [Image.new("L", (4, 5), i) for i in range(len(labels))], "kind": labels, "age": list(range(len(labels)))}
    return datasets.Dataset.from_dict(rows, features=kinds)


def test_images_and_labels_are_found_by_type(package: Any, tmp_path: Path) -> None:
    saved = package.DatasetDict(
        {"train": pictures(package, [0, 1, 1, -1]), "validation": pictures(package, [1]), "extra": pictures(package, [0])}
    )
    saved.save_to_disk(str(tmp_path / "d"))
    for name in (f"hf:{tmp_path / 'd'}", str(tmp_path / "d")):
        data = open_data(name)
        assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 1, 2]  # type: ignore[index, union-attr, call-overload]
        assert (data.train.shape, data.classes, data.train.labels.tolist()) == ((1, 5, 4), ["n", "y"], [0, 1, 1])
        assert len(data.val) == 1  # type: ignore[arg-type]
        assert data.notes == ["splits not read: extra"]
        assert data.left_out[0].path.endswith("train[3]")
    lazy = open_data(str(tmp_path / "d"), memory_limit=0).train
    assert lazy.inputs[torch.tensor([2])].unique().tolist() == [2]
    assert lazy.fingerprint() == open_data(str(tmp_path / "d"), memory_limit=0).train.fingerprint()


def test_features_without_images(package: Any, tmp_path: Path) -> None:
    one = package.Dataset.from_dict({"embedding": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": ["a", "b", None]})
    one.save_to_disk(str(tmp_path / "e"))
    data = open_data(str(tmp_path / "e"))
    assert data.train.inputs.tolist() == [[1, 2], [3, 4]]  # type: ignore[union-attr]
    assert (data.classes, data.train.keys, len(data.left_out)) == (["a", "b"], [0, 1], 1)
    with pytest.raises(DataError, match="no column 'kind'; its columns: embedding, label"):
        open_data(f"hf:{tmp_path / 'e'}", label="kind")
    one.to_parquet(str(tmp_path / "e.parquet"))
    assert len(open_data(f"hf:{tmp_path / 'e.parquet'}").train) == 2


def test_data_sets_that_cannot_be_had(package: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"hf:nobody/nothing-at-all: cannot be loaded"):
        open_data("hf:nobody/nothing-at-all")
    package.Dataset.from_dict({"place": ["a", "a"], "label": [0, 1]}).save_to_disk(str(tmp_path / "t"))
    with pytest.raises(DataError, match=r"no column to learn from beside the label; its columns: place, label \(constant"):
        open_data(str(tmp_path / "t"))
    package.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(str(tmp_path / "u"))
    with pytest.raises(DataError, match=r"no label column: name yours with label .*; its columns: text"):
        open_data(str(tmp_path / "u"))
    splits = package.DatasetDict({"one": pictures(package, [0, 1]), "two": pictures(package, [0, 1])})
    splits.save_to_disk(str(tmp_path / "v"))
    with pytest.raises(DataError, match="no train split; it has one, two"):
        open_data(str(tmp_path / "v"))
