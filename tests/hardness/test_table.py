"""The table: round trips, what its metadata says, other versions of the layout, and files that are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from mohs.hardness import table as tables
from mohs.hardness.table import (
    COLUMNS,
    SCHEMA_VERSION,
    add_columns,
    classes_of,
    column,
    make_table,
    read_table,
    table_writer,
    write_table,
)


def example() -> pa.Table:
    return make_table(
        {
            "margin": torch.tensor([1.5, float("nan")]),
            "id": ["a", "ü</script>"],
            "label": np.array(["cat", "dog"]),
            "predicted": pa.array(["cat", None]),
            "mohs": [1, 10],
        },
        classes=["cat", "dog"],
    )


def test_round_trip_keeps_values_order_and_metadata(tmp_path: Path) -> None:
    made = example()
    assert made.column_names == ["id", "label", "predicted", "margin", "mohs"]
    write_table(made, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.schema.equals(made.schema, check_metadata=True)
    assert read.column("id").to_pylist() == ["a", "ü</script>"]
    assert read.column("predicted").to_pylist() == ["cat", None]
    np.testing.assert_array_equal(column(read, "margin"), [1.5, np.nan])
    assert classes_of(read) == ["cat", "dog"]


def test_every_column_has_a_meaning_and_a_direction() -> None:
    for name, about in COLUMNS.items():
        said = make_table({name: [1.0]}).schema.field(name).metadata
        assert said[b"meaning"].decode() == about.meaning
        assert said.get(b"direction", b"").decode() == about.direction in ("", "harder", "easier")


def test_csv(tmp_path: Path) -> None:
    write_table(example(), tmp_path / "t.csv")
    read = pyarrow.csv.read_csv(tmp_path / "t.csv")
    assert read.column_names == example().column_names
    assert read.column("label").to_pylist() == ["cat", "dog"]


def test_writing_in_pieces_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.csv"):
        with table_writer(tmp_path / name) as write:
            write(example().slice(0, 1))
            write(example().slice(1))
        write_table(example(), tmp_path / f"whole-{name}")
    assert (tmp_path / "t.csv").read_text() == (tmp_path / "whole-t.csv").read_text()
    assert read_table(tmp_path / "t.parquet").drop(["margin"]) == example().drop(["margin"])  # NaN is not equal to itself


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    write_table(example(), tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def break_off() -> None:
        with table_writer(tmp_path / name) as write:
            write(example())
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        break_off()
    assert (tmp_path / name).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def versioned(path: Path, version: int) -> Path:
    made = example().drop(["mohs"])
    kept = json.dumps({"schema": version, "classes": None})
    pyarrow.parquet.write_table(made.replace_schema_metadata({"mohs": kept}), path)
    return path


def test_an_older_layout_is_read_without_newer_columns(tmp_path: Path) -> None:
    read = read_table(versioned(tmp_path / "old.parquet", SCHEMA_VERSION - 1))
    assert column(read, "label").tolist() == ["cat", "dog"]
    assert classes_of(read) is None
    with pytest.raises(ValueError, match="the table has no column 'mohs'; its columns: id, label, predicted, margin"):
        column(read, "mohs")


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    new = versioned(tmp_path / "new.parquet", SCHEMA_VERSION + 1)
    with pytest.raises(ValueError, match=rf"new.parquet has the layout of version {SCHEMA_VERSION + 1}, .*: upgrade mohs"):
        read_table(new)
    pyarrow.parquet.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match=r"other.parquet is not a hardness table"):
        read_table(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("id,label\n")
    with pytest.raises(ValueError, match=r"text.parquet is damaged .*cannot be read as Parquet"):
        read_table(tmp_path / "text.parquet")


def test_add_columns_replaces_and_keeps_the_classes() -> None:
    grown = add_columns(example(), {"mohs": [3, 4], "loss": [0.1, 0.2]})
    assert grown.column("mohs").to_pylist() == [3, 4]
    assert grown.column_names.index("loss") < grown.column_names.index("mohs")
    assert classes_of(grown) == ["cat", "dog"]


def test_values_of_every_kind() -> None:
    made = make_table({"loss": torch.ones(2, dtype=torch.bfloat16), "id": torch.arange(2)}, classes=np.array([3, 5]))
    assert made.column("loss").type == pa.float32()
    assert classes_of(made) == [3, 5]
    assert classes_of(pa.table({"a": [1]})) is None


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown column 'ember'; known: id, example"):
        make_table({"ember": [1]})
    with pytest.raises(ValueError, match=r"columns must have one length, got \{'id': 2, 'loss': 1\}"):
        make_table({"loss": [1], "id": [1, 2]})
    with pytest.raises(ValueError, match=r"t.json: tables are written as .parquet or .csv"):
        write_table(example(), tmp_path / "t.json")
    with pytest.raises(ValueError, match=r"the folder .*no does not exist; create it first"):
        write_table(example(), tmp_path / "no" / "t.csv")
    assert tables.SUFFIXES == (".parquet", ".csv")
