"""Decisions become labels, and labels go back; decisions on anything else are refused by row."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.errors import DataError
from mohs._core.plain_text import from_cell, to_cell
from mohs.audit.decisions import apply_decisions, read_decisions, undo_labels, write_labels
from mohs.hardness.table import make_table

HASH = "0123456789abcdef"
CLASSES = ["cat", "dog", "=SUM(A1)", "'so-called'", 'a, "b"\nc']


def table(**change: Any) -> pa.Table:
    columns = {
        "id": [10, 11, 12, 13, 14],
        "path": [f"p/{i}.png" for i in range(5)],
        "label": ["cat", "cat", "dog", "=SUM(A1)", 'a, "b"\nc'],
        "suggested_label": ["dog", "cat", "'so-called'", "=SUM(A1)", "cat"],
    }
    return make_table(columns | change, classes=CLASSES)


def decision(id_: object, label: str, kind: str, new: str = "", data_hash: str = HASH) -> dict[str, str]:
    return {"id": str(id_), "data_hash": data_hash, "label": label, "decision": kind, "new_label": new}


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """As the report's page writes them."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
        writer.writerow(["id", "data_hash", "label", "decision", "new_label"])
        writer.writerows([to_cell(value) for value in row.values()] for row in rows)
    return path


ALL = [
    decision(10, "cat", "accept", "dog"),
    decision(11, "cat", "keep"),
    decision(12, "dog", "change", "=SUM(A1)"),
    decision(13, "=SUM(A1)", "exclude"),
    decision(14, 'a, "b"\nc', "accept"),
]


def test_every_decision_changes_its_own_row_only() -> None:
    labels, summary = apply_decisions(table(), ALL[:4], HASH)
    assert labels.column_names == ["id", "path", "label", "previous", "decision"]
    assert labels.column("label").to_pylist() == ["dog", "cat", "=SUM(A1)", None, CLASSES[4]]
    assert labels.column("previous").to_pylist() == table().column("label").to_pylist()
    assert labels.column("decision").to_pylist() == ["accept", "keep", "change", "exclude", ""]
    assert summary.decided == {"accept": 1, "keep": 1, "change": 1, "exclude": 1}
    assert (summary.examples, summary.changed) == (5, 2)


def test_an_accepted_suggestion_without_a_name_is_the_suggested_label() -> None:
    labels, _ = apply_decisions(table(), ALL, HASH)
    assert labels.column("label").to_pylist()[4] == "cat"


def test_no_decisions_change_nothing_and_numbers_stay_numbers() -> None:
    plain = make_table({"id": ["a", "b"], "label": [1, 2]}, classes=[0, 1, 2])
    labels, summary = apply_decisions(plain, [], HASH)
    assert labels.column_names == ["id", "label", "previous", "decision"]
    assert summary.changed == 0
    labels, _ = apply_decisions(plain, [decision("b", "2", "change", "0"), decision("a", "1", "exclude")], HASH)
    assert labels.column("label").to_pylist() == [None, 0]


def test_file_round_trip(tmp_path: Path) -> None:
    assert read_decisions(write(tmp_path / "decisions.csv", ALL)) == ALL


def test_a_folder_stands_for_the_log_in_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"decisions\.log does not exist: decide in mohs review, or give the decisions\.csv"):
        read_decisions(tmp_path)
    (tmp_path / "decisions.log").write_text(f"id,data_hash,label,decision,new_label\n1,{HASH},cat,keep,\n")
    assert len(read_decisions(tmp_path)) == 1


def test_a_file_that_a_spreadsheet_saved_with_semicolons(tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    file.write_text(f'id;data_hash;label;decision;new_label\n1;{HASH};"a, b";keep;\n', encoding="utf-8-sig")
    assert read_decisions(file) == [{"id": "1", "data_hash": HASH, "label": "a, b", "decision": "keep", "new_label": ""}]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(deadline=None, derandomize=True)
def test_cells_round_trip_and_are_never_formulas(text: str) -> None:
    assert from_cell(to_cell(text)) == text
    assert not to_cell(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (decision(10, "cat", "keep", data_hash="other"), r"row 2 \(id '10'\) was made for other data: its data_hash is 'other'"),
        (decision(99, "cat", "keep"), r"row 2 \(id '99'\): this run has no such id"),
        (decision(10, "dog", "keep"), r"row 2 \(id '10'\) was made when the label was 'dog'; here it is 'cat'"),
        (decision(10, "cat", "burn"), "unknown decision 'burn'; known: accept, keep, change, exclude"),
        (decision(10, "cat", "change", "cow"), "the new label 'cow' is not one of the 5 classes"),
        (decision(10, "cat", "change", "catt"), r"'catt' is not one of the 5 classes \(.*\): did you mean 'cat'\?"),
        (decision(10, "cat", "change"), "the new label '' is not one of the 5 classes"),
    ],
)
def test_decisions_on_other_data_are_refused_by_row(row: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        apply_decisions(table(), [row], HASH)
    with pytest.raises(DataError, match=r"^d\.csv, row 2 "):
        apply_decisions(table(), [row], HASH, name="d.csv")


def test_repeated_ids_are_refused() -> None:
    with pytest.raises(DataError, match="row 3: the id '10' has two decisions"):
        apply_decisions(table(), [ALL[0], decision(10, "cat", "keep")], HASH)
    with pytest.raises(DataError, match="the table has the id '10' twice"):
        apply_decisions(table(id=[10, 10, 11, 12, 13]), ALL, HASH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\n1,2\n", "no column 'data_hash'; decisions have id, data_hash"),
        ("", "no column 'id'"),
        ("id,data_hash,label,decision,new_label\n1,2\n", "row 2: 2 cells where the header has 5"),
        ('id,data_hash,label,decision,new_label\n"a"b,c,d,e,f\n', "cannot be read as a CSV file"),
        (b"id,data_hash,label,decision,new_label\n\xff,c,d,e,f\n", "cannot be read as a CSV file in UTF-8"),
    ],
)
def test_files_that_are_not_decisions(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        read_decisions(path)


def read(path: Path) -> list[str]:
    return pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)).column("label").to_pylist()


@pytest.mark.parametrize("name", ["labels.csv", "labels.parquet"])
def test_undo_writes_the_original_labels_if_there_was_no_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_labels(apply_decisions(table(), ALL[:2], HASH)[0], path)
    write_labels(apply_decisions(table(), ALL, HASH)[0], path)  # a second time: the first was made of the same run
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]
    assert "the original labels" in undo_labels(table(), path)
    if path.suffix == ".csv":
        assert read(path) == table().column("label").to_pylist()
        assert b'""' in path.read_bytes().replace(b'"b"', b"")
    undo_labels(table(), path)  # once more does no harm
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


def test_a_user_file_is_kept_and_restored(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("mine\n1\n")
    for _ in range(2):
        write_labels(apply_decisions(table(), ALL, HASH)[0], path)
        assert (tmp_path / "labels.csv.before").read_text() == "mine\n1\n"
    assert "was there before" in undo_labels(table(), path)
    assert path.read_text() == "mine\n1\n"
    assert not (tmp_path / "labels.csv.before").exists()
    with pytest.raises(DataError, match="was not written from this run"):
        undo_labels(table(), path)


def test_nothing_is_lost_or_overwritten_by_mistake(tmp_path: Path) -> None:
    labels = apply_decisions(table(), ALL, HASH)[0]
    path = tmp_path / "labels.csv"
    with pytest.raises(DataError, match="does not exist: there is nothing to undo"):
        undo_labels(table(), path)
    path.write_text("a")
    write_labels(labels, path)
    path.write_text("b")
    with pytest.raises(DataError, match=r"would be kept as .*labels.csv.before"):
        write_labels(labels, path)
    assert path.read_text() == "b"
    with pytest.raises(ValueError, match=r"written as .parquet or .csv"):
        write_labels(labels, tmp_path / "labels.txt")
    with pytest.raises(ValueError, match="does not exist; create it first"):
        write_labels(labels, tmp_path / "no" / "labels.csv")


def test_more_rows_than_a_person_can_decide_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[read_decisions.__module__], "MOST_ROWS", 2)
    (tmp_path / "d.csv").write_text("id,data_hash,label,decision,new_label\n" + "a,b,c,keep,\n" * 3)
    with pytest.raises(DataError, match=r"d\.csv has over 2 rows"):
        read_decisions(tmp_path / "d.csv")


@pytest.mark.parametrize("where", ["", "below", "runs/audit"])
def test_paths_start_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    Path(where).mkdir(parents=True, exist_ok=True)
    for name in ("1.png", "2.png"):
        Path("photos", name).write_bytes(b"")
    paths = ["photos/1.png", "photos/2.png", "gone/3.png", *["photos.zip/4.png"] * (len(table()) - 3)]
    made = apply_decisions(table(path=paths), ALL, HASH)[0]
    file = Path(where, "labels.csv")
    write_labels(made, file)
    with file.open() as opened:
        found = [row["path"] for row in csv.DictReader(opened)]
    assert [(file.parent / one).resolve() for one in found[:2]] == [tmp_path / one for one in paths[:2]]
    assert found[2:] == paths[2:]
