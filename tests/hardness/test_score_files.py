"""Tables of files larger than memory: resumed after a stop, grades by a sample, arrays in npy files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mohs._core.errors import DataError
from mohs.hardness import blocks, score_files, shards
from mohs.hardness.score_files import norm_ranges, norm_within
from mohs.hardness.shards import NpyFile, open_source
from mohs.hardness.snapshot import norm_in_class
from mohs.hardness.table import column, read_table

N, D, K = 3000, 6, 4
rng = np.random.default_rng(0)
ARRAYS = {
    "features": rng.normal(size=(N, D)).astype(np.float32),
    "labels": rng.integers(K, size=N),
    "weight": rng.normal(size=(K, D)).astype(np.float32),
    "ids": np.arange(N) + 5,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of npy files, read in ten blocks."""
    monkeypatch.setattr(shards, "ARRAY_UNIT", 300)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 300)
    (tmp_path / "arrays").mkdir()
    for name, values in ARRAYS.items():
        np.save(tmp_path / "arrays" / f"{name}.npy", values)
    return tmp_path / "arrays"


def test_a_stopped_call_goes_on_from_the_blocks_that_are_done(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(folder)
    score_files.score_files(source, tmp_path / "whole.parquet", neighbors=True)
    plain, measured = blocks.BlockWork.columns, []

    def stopping(self: blocks.BlockWork, unit: shards.Unit) -> object:
        measured.append(unit.first)
        if len(measured) == 5:
            raise KeyboardInterrupt
        return plain(self, unit)

    monkeypatch.setattr(blocks.BlockWork, "columns", stopping)
    with pytest.raises(KeyboardInterrupt):
        score_files.score_files(source, tmp_path / "again.parquet", neighbors=True)
    assert not (tmp_path / "again.parquet").exists()
    score_files.score_files(source, tmp_path / "again.parquet", neighbors=True)
    assert measured == [0, 300, 600, 900, 1200, *range(1200, N, 300)]
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.parquet", "arrays", "whole.parquet"]


def test_parts_of_another_call_are_not_taken(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = blocks.BlockWork.columns
    stop = iter([False, False, True])
    monkeypatch.setattr(blocks.BlockWork, "columns", lambda *given: 1 / 0 if next(stop, False) else plain(*given))
    with pytest.raises(ZeroDivisionError):
        score_files.score_files(open_source(folder), tmp_path / "h.parquet")
    np.save(folder / "weight.npy", 2 * ARRAYS["weight"])
    score_files.score_files(open_source(folder), tmp_path / "h.parquet")
    doubled = ARRAYS["features"] @ (2 * ARRAYS["weight"]).T
    predicted = column(read_table(tmp_path / "h.parquet"), "predicted")
    assert (predicted == doubled.argmax(1)).all()
    energy = column(read_table(tmp_path / "h.parquet"), "energy")
    np.testing.assert_allclose(energy, -np.log(np.exp(doubled.astype(np.float64)).sum(1)), atol=1e-4)


def test_grades_by_a_sample_are_reported_and_close(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = score_files.score_files(open_source(folder), tmp_path / "exact.parquet")
    assert exact.notes == ()
    monkeypatch.setattr(score_files, "RANKED", 1000)
    monkeypatch.setattr(score_files, "COMPARED", 1000)
    some = score_files.score_files(open_source(folder), tmp_path / "some.parquet")
    assert some.notes == ("grades are places among 1,000 rows drawn at random", "ids were compared within blocks of rows only")
    grades = [column(read_table(one.out), "mohs").astype(int) for one in (exact, some)]
    assert np.abs(grades[0] - grades[1]).max() <= 1
    assert some.hardest == exact.hardest


def test_norms_within_the_class_by_ranges_are_those_of_all_rows() -> None:
    import torch

    norms, labels = rng.random(500).astype(np.float32), rng.integers(5, size=500)
    norms[7], norms[8], labels[labels == 4] = np.nan, np.inf, 3
    ranges = norm_ranges(norms, labels, 5)
    expected = norm_in_class(torch.from_numpy(norms), torch.from_numpy(labels)).numpy()
    np.testing.assert_allclose(norm_within(norms, labels, ranges["low"], ranges["high"]), expected, atol=1e-6)


def test_an_npy_file_is_read_row_by_row(tmp_path: Path) -> None:
    for values in (ARRAYS["features"], ARRAYS["labels"], np.array(["ab", "c"])):
        np.save(tmp_path / "a.npy", values)
        found = NpyFile(tmp_path / "a.npy")
        assert (found.shape, found.dtype, len(found)) == (values.shape, values.dtype, len(values))
        np.testing.assert_array_equal(found[1:2], values[1:2])
        np.testing.assert_array_equal(found[:], values)
    np.save(tmp_path / "a.npy", np.asfortranarray(ARRAYS["features"]))
    with pytest.raises(DataError, match="an array in C order"):
        NpyFile(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="pickled objects are not loaded"):
        NpyFile(tmp_path / "a.npy")
