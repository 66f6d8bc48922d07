"""Corrected labels: read for the data they were made for, in training too, and not mistaken for data."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from mohs._core.errors import DataError
from mohs.data.open_data import open_data
from mohs.train.loop import train

TEXTS = [f"{'good fine great' if i % 2 else 'bad poor awful'} film number {i}" for i in range(40)]
GIVEN = ["pos" if i % 2 else "neg" for i in range(40)]


def written(path: Path, rows: Sequence[Sequence[str]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Texts, of which the first has a wrong label, and what `mohs apply` wrote: it is corrected, and the second is excluded."""
    data = written(tmp_path / "texts.csv", [["text", "label"], [TEXTS[0], "pos"], *zip(TEXTS[1:], GIVEN[1:], strict=True)])
    rows = [["0", "neg", "pos", "accept"], ["1", "", "pos", "exclude"], *([str(i), GIVEN[i], GIVEN[i], ""] for i in range(2, 40))]
    return data, written(tmp_path / "labels.csv", [["id", "label", "previous", "decision"], *rows])


def test_data_are_read_with_corrected_labels(files: tuple[str, str]) -> None:
    found = open_data(files[0], corrected=files[1]).train
    assert [found.classes[k] for k in found.labels.tolist()] == [GIVEN[0], *GIVEN[2:]]
    assert found.inputs[[0, 1]] == [TEXTS[0], TEXTS[2]]


def test_a_run_trains_on_them(files: tuple[str, str], tmp_path: Path) -> None:
    options = {"embed": "tfidf", "epochs": 1, "validation": 0.0, "device": "cpu"}
    before = train(files[0], out=tmp_path / "a", **options)  # type: ignore[arg-type]
    after = train(files[0], out=tmp_path / "b", open={"corrected": files[1]}, **options)  # type: ignore[arg-type]
    assert (len(before.table), len(after.table)) == (40, 39)  # type: ignore[arg-type]
    assert before.table.column("label")[0].as_py() == "pos"  # type: ignore[union-attr]
    assert after.table.column("label")[0].as_py() == "neg"  # type: ignore[union-attr]


def test_the_file_alone_is_no_data(files: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labels that mohs apply wrote, without the inputs: give the data .* \(--corrected\)"):
        open_data(files[1])
    other = written(tmp_path / "other.csv", [["text", "label"], *zip(TEXTS, GIVEN, strict=True)])
    with pytest.raises(DataError, match="was not made for other: give the file that mohs apply wrote for its audit"):
        open_data(other, corrected=files[1])
    with pytest.raises(DataError, match=r"absent\.csv cannot be read as corrected labels"):
        open_data(other, corrected=tmp_path / "absent.csv")
