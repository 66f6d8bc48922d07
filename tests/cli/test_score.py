"""`mohs score` on files: npz, Parquet, shards, several processes, and data that is not as it should be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from mohs._core.errors import DataError
from mohs.cli.score import score
from mohs.hardness import shards
from mohs.hardness.measure import unscored
from mohs.hardness.score import score_features, score_logits
from mohs.hardness.table import classes_of, column, read_table

N, CLASSES, DIM = 230, 4, 6
rng = np.random.default_rng(0)
ARRAYS = {
    "features": rng.normal(size=(N, DIM)).astype(np.float32),
    "weight": rng.normal(size=(CLASSES, DIM)).astype(np.float32),
    "bias": rng.normal(size=CLASSES).astype(np.float32),
    "labels": rng.integers(CLASSES, size=N),
}
LOGITS = ARRAYS["features"] @ ARRAYS["weight"].T + ARRAYS["bias"]
IDS = np.array([f"e{i:03}" for i in range(N)])


def save(path: Path, **change: np.ndarray | None) -> Path:
    np.savez(path, **{key: value for key, value in {**ARRAYS, **change}.items() if value is not None})
    return path


def shard(folder: Path, *, kind: str = "features", sizes: tuple[int, ...] = (100, 0, 90, 40), **change: list) -> Path:
    """A folder of Parquet shards with row groups of 32."""
    folder.mkdir()
    values = {"features": ARRAYS["features"], "logits": LOGITS}[kind]
    columns = {kind: list(values), "label": ARRAYS["labels"].tolist(), "id": IDS.tolist(), **change}
    start = 0
    for number, size in enumerate(sizes):
        part = {name: pa.array(given[start : start + size], type=pa.array(given).type) for name, given in columns.items()}
        pq.write_table(pa.table(part), folder / f"{number}.parquet", row_group_size=32)
        start += size
    return folder


@pytest.fixture
def head(tmp_path: Path) -> Path:
    np.savez(tmp_path / "head.npz", weight=ARRAYS["weight"], bias=ARRAYS["bias"])
    return tmp_path / "head.npz"


def same(a: pa.Table, b: pa.Table) -> None:
    assert a.column_names == b.column_names
    assert a.schema.metadata == b.schema.metadata
    for name in a.column_names:
        left, right = column(a, name), column(b, name)
        if left.dtype.kind == "f":
            np.testing.assert_allclose(left, right, atol=1e-5)
        else:
            np.testing.assert_array_equal(left, right)


def test_without_arguments_scores_digits(mohs_command: Callable[..., Any], tmp_path: Path) -> None:
    shown = mohs_command("score", "--out", tmp_path / "h.parquet")
    assert shown.returncode == 0, shown.stderr
    assert "1,797 rows scored" in shown.stdout
    assert f"table: {tmp_path / 'h.parquet'}" in shown.stdout
    table = read_table(tmp_path / "h.parquet")
    assert table.num_rows == 1797
    assert np.mean(column(table, "label") == column(table, "predicted")) > 0.95
    assert set(column(table, "mohs")) == set(range(1, 11))


@pytest.mark.parametrize("unit", [50, 65_536])
def test_npz_of_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unit: int) -> None:
    monkeypatch.setattr(shards, "ARRAY_UNIT", unit)
    monkeypatch.setattr(shards, "BATCH_ENTRIES", 120)
    score(save(tmp_path / "a.npz", ids=IDS), out=tmp_path / "h.parquet", neighbors=True)
    expected = score_features(*(ARRAYS[key] for key in ("features", "weight", "labels", "bias")), ids=IDS, neighbors=True)
    same(read_table(tmp_path / "h.parquet"), expected)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{N} rows scored ({tmp_path / 'a.npz'})"
    hardest = [line.split()[0] for line in lines[3:8]]
    assert hardest == IDS[np.argsort(column(expected, "margin"))[:5]].tolist()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "h.parquet"]


def test_npz_of_logits_json_csv_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["ant", "bee", "cat", "dog"]
    data = save(tmp_path / "a.npz", features=None, weight=None, bias=None, logits=LOGITS)
    score(data, out=tmp_path / "h.csv", classes=",".join(names), as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == N
    assert said["problem"] is None
    assert set(said["hardest"][0]) == {"id", "label", "predicted", "margin"}
    written = pyarrow.csv.read_csv(tmp_path / "h.csv")
    expected = score_logits(LOGITS, ARRAYS["labels"], classes=names)
    assert written.column_names == expected.column_names
    assert written.column("label").to_pylist() == column(expected, "label").tolist()
    (tmp_path / "names.txt").write_text("ant\nbee\ncat\ndog\n")
    score(data, out=tmp_path / "h.parquet", classes=str(tmp_path / "names.txt"), quiet=True)
    assert capsys.readouterr().out == ""
    assert classes_of(read_table(tmp_path / "h.parquet")) == names
    score(save(tmp_path / "b.npz", labels=ARRAYS["labels"] + 3, classes=np.array([3, 4, 5, 6])), out=tmp_path / "b.parquet")
    assert classes_of(read_table(tmp_path / "b.parquet")) == [3, 4, 5, 6]


@pytest.mark.parametrize("kind", ["features", "logits"])
def test_shards_give_the_same_table(tmp_path: Path, head: Path, kind: str) -> None:
    words = [["ox", "ape", "cow", "yak"][i] for i in ARRAYS["labels"]]
    folder = shard(tmp_path / "s", kind=kind, label=words, path=[f"{i}.png" for i in range(N)])
    score(folder, out=tmp_path / "h.parquet", weight=head if kind == "features" else None, neighbors=kind == "features")
    given = {"classes": ["ape", "cow", "ox", "yak"], "ids": IDS, "paths": [f"{i}.png" for i in range(N)]}
    if kind == "features":
        expected = score_features(
            *(ARRAYS[key] for key in ("features", "weight")), words, ARRAYS["bias"], neighbors=True, **given
        )
    else:
        expected = score_logits(LOGITS, words, **given)
    same(read_table(tmp_path / "h.parquet"), expected)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float16(), CLASSES)])
def test_every_kind_of_list(tmp_path: Path, kind: pa.DataType) -> None:
    logits = LOGITS.astype(np.float16).astype(kind.value_type.to_pandas_dtype())
    pq.write_table(pa.table({"logits": pa.array(list(logits), type=kind), "target": ARRAYS["labels"]}), tmp_path / "a.parquet")
    score(tmp_path / "a.parquet", out=tmp_path / "h.parquet")
    same(
        read_table(tmp_path / "h.parquet"),
        score_logits(logits.astype(np.float64 if kind.value_type == pa.float64() else np.float32), ARRAYS["labels"]),
    )


def test_neighbors_of_a_sample_of_references(tmp_path: Path, head: Path) -> None:
    import torch

    from mohs.hardness.neighbors import neighbor_agreement
    from mohs.hardness.score_files import score_files

    source = shards.open_source(shard(tmp_path / "s"), weight=head)
    score_files(source, tmp_path / "h.parquet", neighbors=True, references=60, seed=2)
    expected = neighbor_agreement(*(torch.from_numpy(ARRAYS[key]) for key in ("features", "labels")), references=60, seed=2)
    np.testing.assert_allclose(column(read_table(tmp_path / "h.parquet"), "neighbors"), expected.numpy())


def test_no_more_than_a_batch_is_read_at_a_time(tmp_path: Path, head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BATCH_ENTRIES", 10 * DIM)
    sizes: list[int] = []
    plain = shards.matrix
    monkeypatch.setattr(shards, "matrix", lambda column, *rest: sizes.append(len(column)) or plain(column, *rest))
    score(shard(tmp_path / "s"), out=tmp_path / "h.parquet", weight=head)
    assert max(sizes) == 10
    assert sum(sizes) == N
    assert read_table(tmp_path / "h.parquet").num_rows == N


def test_two_processes_write_the_same_table_as_one(tmp_path: Path, head: Path) -> None:
    folder = shard(tmp_path / "s")
    score(folder, out=tmp_path / "one.parquet", weight=head, neighbors=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "mohs"]
    words = ["score", folder, "--weight", head, "--out", tmp_path / "two.parquet", "--neighbors"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run([*torchrun, *words], capture_output=True, text=True, check=False, env=environment)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("rows scored") == 1
    assert read_table(tmp_path / "two.parquet") == read_table(tmp_path / "one.parquet")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["head.npz", "one.parquet", "s", "two.parquet"]


# --- data that is not as it should be ------------------------------------------------------------------------------------


def test_a_nan_row_is_kept_and_named_and_sets_the_exit_code(mohs_command: Callable[..., Any], tmp_path: Path, head: Path) -> None:
    features = ARRAYS["features"].tolist()
    features[150][2] = float("nan")
    folder = shard(tmp_path / "s", features=features)
    shown = mohs_command("score", folder, "--weight", head, "--out", tmp_path / "h.parquet")
    assert shown.returncode == 3
    assert shown.stderr.splitlines()[-1].startswith(f"mohs: {folder}/2.parquet: features of row 50 make no finite logits (NaN")
    assert "Traceback" not in shown.stderr
    assert f"{N} rows scored" in shown.stdout
    assert unscored(read_table(tmp_path / "h.parquet")).tolist() == [150]


def test_a_truncated_shard_keeps_the_rows_before(tmp_path: Path, head: Path) -> None:
    folder = shard(tmp_path / "s", features=[*ARRAYS["features"].tolist()[:150], [1.0], *ARRAYS["features"].tolist()[151:]])
    with pytest.raises(DataError, match=r"2.parquet: features of row 50 holds 1 numbers, where others hold 6.*; 132 row\(s\)"):
        score(folder, out=tmp_path / "h.parquet", weight=head)
    kept = read_table(tmp_path / "h.partial.parquet")
    assert column(kept, "id").tolist() == IDS[:132].tolist()
    assert not (tmp_path / "h.parquet").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["h.partial.parquet", "head.npz", "s"]


def test_repeated_ids_are_named_after_the_table_is_written(tmp_path: Path) -> None:
    ids = IDS.copy()
    ids[100] = "e007"
    with pytest.raises(DataError, match=r"a.npz: id 'e007' occurs in rows 7 and 100"):
        score(save(tmp_path / "a.npz", ids=ids), out=tmp_path / "h.parquet")
    assert read_table(tmp_path / "h.parquet").num_rows == N


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None}, "a.npz: labels are missing (keys label or labels or target"),
        ({"features": None}, "a.npz: logits or features are missing; it has labels, weight, bias"),
        ({"weight": None}, "a.npz: features need the head's weight: pass it with --weight FILE"),
        ({"weight": np.zeros((4, 5))}, "got features (0, 6) and weight (4, 5)"),
        ({"bias": np.zeros(3)}, "bias must have shape (4,), one per row of weight, got (3,)"),
        ({"labels": np.zeros(3, int)}, "a.npz: features has shape (230, 6), labels (3,): they must have one entry per row"),
        (
            {"labels": np.array([0] * 229 + [4])},
            "a.npz: labels hold 2 different classes (0, 4) but the head has 4; labels[229] is 4",
        ),
        ({"labels": np.zeros(N)}, "a.npz: labels must be integers or names, got float64"),
        ({"features": np.zeros((N, 2, 3))}, "a.npz: features must hold numbers of shape (N, ...)"),
        ({"labels": np.array([None] * N)}, "a.npz: cannot be read as .npz or .npy"),
        ({"logits": np.zeros((N, 7))}, "logits and weight must agree on at least 2 classes, got logits (N, 7) and weight (4, 6)"),
    ],
)
def test_errors_in_npz_files(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        score(save(tmp_path / "a.npz", **change), out=tmp_path / "h.parquet")
    assert not (tmp_path / "h.parquet").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [*[0] * 120, None, *[0] * 109]}, "2.parquet: label of row 20 is empty"),
        (
            {"label": [*[0] * 120, 9, *[0] * 109]},
            "2.parquet: labels hold 2 different classes (0, 9) but the head has 4; labels[20] is 9",
        ),
        ({"features": ["text"] * N}, "0.parquet: column 'features' must hold a list of numbers per row, got string"),
        ({"features": [*ARRAYS["features"].tolist()[:-1], None]}, "3.parquet: features of row 39 is empty, where others hold 6"),
    ],
)
def test_errors_in_shards(tmp_path: Path, head: Path, change: dict, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        score(shard(tmp_path / "s", **change), out=tmp_path / "h.parquet", weight=head)


def test_shards_that_differ_or_are_missing(tmp_path: Path, head: Path) -> None:
    folder = shard(tmp_path / "s")
    table = pq.read_table(folder / "3.parquet")
    pq.write_table(table.drop(["id"]), folder / "3.parquet")
    with pytest.raises(DataError, match=r"3.parquet: column 'id' is missing, which the first shard has"):
        score(folder, out=tmp_path / "h.parquet", weight=head)
    pq.write_table(table.set_column(1, "label", pa.array(["x"] * 40)), folder / "3.parquet")
    with pytest.raises(DataError, match=r"3.parquet: column 'label' is string, in the first shard int64"):
        score(folder, out=tmp_path / "h.parquet", weight=head)
    (folder / "3.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=r"3.parquet: cannot be read as Parquet"):
        score(folder, out=tmp_path / "h.parquet", weight=head)
    (tmp_path / "empty").mkdir()
    for path, what in (("empty", "holds no .parquet files"), ("head.txt", "is neither"), ("none.npz", "no such file")):
        (tmp_path / "head.txt").touch()
        with pytest.raises(DataError, match=what):
            score(tmp_path / path, out=tmp_path / "h.parquet")
    pq.write_table(
        pa.table({"logits": pa.array([], pa.list_(pa.float32())), "label": pa.array([], pa.int64())}), tmp_path / "z.parquet"
    )
    with pytest.raises(DataError, match=r"z.parquet: holds no rows"):
        score(tmp_path / "z.parquet", out=tmp_path / "h.parquet")


def test_neighbors_need_features_and_usage_is_checked_first(mohs_command: Callable[..., Any], tmp_path: Path) -> None:
    data = save(tmp_path / "a.npz", features=None, weight=None, bias=None, logits=LOGITS)
    with pytest.raises(DataError, match=r"a.npz: neighbors need features"):
        score(data, out=tmp_path / "h.parquet", neighbors=True)
    with pytest.raises(ValueError, match=r"tables are written as .parquet or .csv") as caught:
        score(tmp_path / "none.npz", out=tmp_path / "h.json")
    assert not isinstance(caught.value, DataError)
    shown = mohs_command("score", tmp_path / "none.npz")
    assert shown.returncode == 3
    assert shown.stderr == f"mohs: {tmp_path / 'none.npz'}: no such file or folder\n"
    assert shown.stdout == ""
