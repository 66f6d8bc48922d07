"""One vocabulary: a name that is recognized in one place is recognized everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from mohs._core.vocabulary import IDS, LABELS, find_name
from mohs.data.open_data import open_data
from mohs.hardness.batches import batches
from mohs.hardness.shards import open_source


class Items(Dataset):
    def __init__(self, label: str) -> None:
        self.label = label

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> dict[str, object]:
        return {"x": torch.tensor([float(place), 1.0]), self.label: place % 2}


def test_names_by_precedence_ignoring_case_and_blanks() -> None:
    assert find_name(["a", " Label "], LABELS) == " Label "
    assert find_name(["Id", "CLASS", "y"], LABELS) == "CLASS"
    assert find_name(["Id", "CLASS", "y"], IDS) == "Id"
    assert find_name(["a"], LABELS) is None


@pytest.mark.parametrize("name", [*LABELS, "Class"])
def test_a_label_is_recognized_everywhere(tmp_path: Path, name: str) -> None:
    x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    (tmp_path / "a.csv").write_text(f"a,b,{name}\n" + "".join(f"{u},{v},{label}\n" for (u, v), label in zip(x, y, strict=True)))
    np.savez(tmp_path / "a.npz", **{"features": x, name: y})
    for data in (tmp_path / "a.csv", tmp_path / "a.npz", Items(name), {"features": x, name: y}):
        assert open_data(data).train.labels.tolist() == [0, 1, 0, 1]
    for given in (Items(name), DataLoader(Items(name), batch_size=2)):
        assert [label for batch in batches(given, batch_size=2) for label in batch.labels.tolist()] == [0, 1, 0, 1]
    np.savez(tmp_path / "logits.npz", **{"logits": x, name: y})
    pyarrow.parquet.write_table(pa.table({"logits": x.tolist(), name: y}), tmp_path / "logits.parquet")
    for file in ("logits.npz", "logits.parquet"):
        source = open_source(tmp_path / file)
        labels = [label for unit in source.units for part in source.read(unit, "labels") for label in part["labels"]]
        assert labels == [0, 1, 0, 1]
