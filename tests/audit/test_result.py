"""AuditResult are kept in a run directory and come back the same; what is not findings is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mohs._core.errors import DataError
from mohs.audit.gallery_rows import gallery_rows
from mohs.audit.result import AuditResult, load_audit, save_audit
from mohs.hardness.table import make_table
from mohs.report.page import page


@pytest.fixture(scope="module")
def run(digits: AuditResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_audit(digits, tmp_path_factory.mktemp("run") / "new")


def test_round_trip_of_all_fields(digits: AuditResult, run: Path) -> None:
    found = load_audit(run)
    assert sorted(path.name for path in run.iterdir()) == [
        "checksums.json",
        "findings.json",
        "findings.npz",
        "hardness.parquet",
        "thumbnails.parquet",
    ]
    assert found.table.equals(digits.table)
    for name in ("name", "data_hash", "classes", "chosen", "reason", "left_out"):
        assert getattr(found, name) == getattr(digits, name)
    assert found.history == digits.history
    assert found.facts == digits.facts
    assert found.estimate is not None
    assert digits.estimate is not None
    assert found.estimate.summary == digits.estimate.summary
    np.testing.assert_array_equal(found.estimate.counts, digits.estimate.counts)
    assert found.dynamics is not None
    assert digits.dynamics is not None
    for name, values in digits.dynamics.items():
        np.testing.assert_array_equal(found.dynamics[name], values)
    assert found.held_out is not None
    assert digits.held_out is not None
    np.testing.assert_array_equal(found.held_out[0], digits.held_out[0])
    assert page(found) == page(digits)


def test_what_an_audit_prints_in_a_notebook_is_a_line(digits: AuditResult, run: Path) -> None:
    line = repr(load_audit(run))
    counts = digits.totals.by_verdict()
    assert line.startswith(f"AuditResult({digits.name}: {digits.totals.rows:,} examples, ")
    assert all(f"{number:,} {name}" in line for name, number in counts.items() if name is not None)
    assert "array" not in line
    assert "\n" not in line
    verdicts = pa.array([None, *digits.table.column("verdict").to_pylist()[1:]], pa.string())
    place = digits.table.column_names.index("verdict")
    assert ", 1 not judged" in repr(replace(digits, table=digits.table.set_column(place, "verdict", verdicts)))


def test_only_thumbnails_of_the_gallery_are_stored(digits: AuditResult, run: Path) -> None:
    thumbnails = load_audit(run).thumbnails
    assert thumbnails is not None
    assert digits.thumbnails is not None
    rows = gallery_rows(digits.table)
    other = next(row for row in range(len(digits.table)) if row not in rows)
    kept = thumbnails([rows[0], other])
    assert kept[1] is None
    assert kept[0] is not None
    np.testing.assert_array_equal(np.asarray(kept[0].convert("L")), np.asarray(digits.thumbnails([rows[0]])[0]))


def test_minimal_result_and_overwriting_an_older_run(
    run: Path, synthetic: Callable[..., Any], tmp_path: Path, digits: AuditResult
) -> None:
    save_audit(digits, tmp_path)
    least = AuditResult(synthetic(30, ["a", "b"]), "least", "h", ["a", "b"], history=[{"epoch": 0, "loss": float("nan")}])
    found = load_audit(save_audit(least, tmp_path))
    assert (found.estimate, found.dynamics, found.held_out, found.thumbnails, found.left_out) == (None, None, None, None, [])
    assert found.history == [{"epoch": 0, "loss": None}]
    assert not (tmp_path / "thumbnails.parquet").exists()


def test_hostile_names_are_kept_unchanged(hostile: AuditResult, tmp_path: Path) -> None:
    found = load_audit(save_audit(hostile, tmp_path))
    assert (found.name, found.classes, found.left_out) == (hostile.name, hostile.classes, hostile.left_out)


def test_errors_name_what_is_wrong(synthetic: Callable[..., Any]) -> None:
    table = synthetic(30, ["a", "b"])
    with pytest.raises(ValueError, match=r"no column 'verdict': pass it through mohs.verdict first"):
        AuditResult(make_table({"id": [1], "label": ["a"]}), "n", "h", ["a"])
    with pytest.raises(DataError, match="n: the table has no rows"):
        AuditResult(table.slice(0, 0), "n", "h", ["a"])
    good = AuditResult(table, "n", "h", ["a", "b"])
    with pytest.raises(ValueError, match="dynamics has no 'epoch'"):
        replace(good, dynamics={"norm": np.ones((3, 2))})
    with pytest.raises(ValueError, match="dynamics has 'size'"):
        replace(good, dynamics={"epoch": np.arange(3), "size": np.ones((3, 2))})
    with pytest.raises(ValueError, match=r"dynamics\['avh'\] must have shape \(E, bins\) for the epochs \(3,\), got \(2, 2\)"):
        replace(good, dynamics={"epoch": np.arange(3), "avh": np.ones((2, 2))})
    with pytest.raises(ValueError, match=r"held_out must be probs \(M, 2\), one column per class, and labels \(M,\)"):
        replace(good, held_out=(np.ones((4, 3)), np.ones(4)))


def test_folders_that_are_not_runs(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist: give the folder of a finished audit"):
        load_audit(tmp_path / "none")
    with pytest.raises(DataError, match="is not the folder of an audit; give"):
        load_audit(tmp_path)
    for file in run.iterdir():
        if file.name != "checksums.json":  # a folder of an older version is read without
            (tmp_path / file.name).write_bytes(file.read_bytes())
    words = json.loads((run / "findings.json").read_text())
    (tmp_path / "findings.json").write_text(json.dumps(words | {"version": 99}))
    with pytest.raises(DataError, match="layout of version 99, this mohs reads 1: upgrade mohs"):
        load_audit(tmp_path)
    del words["reason"]
    (tmp_path / "findings.json").write_text(json.dumps(words))
    with pytest.raises(DataError, match=r"findings\.json is damaged \(it lacks 'reason'\): .*; run the audit again"):
        load_audit(tmp_path)
    (tmp_path / "findings.json").write_text("{")
    with pytest.raises(DataError, match=r"findings\.json is damaged"):
        load_audit(tmp_path)
    (tmp_path / "findings.json").write_bytes((run / "findings.json").read_bytes())
    for name in ("findings.npz", "hardness.parquet"):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"not this")
        with pytest.raises(DataError, match=f"{name} is damaged"):
            load_audit(tmp_path)
        (tmp_path / name).write_bytes(kept)


@pytest.mark.parametrize("name", ["findings.json", "findings.npz", "hardness.parquet", "thumbnails.parquet"])
@pytest.mark.parametrize("way", ["flip", "delete"])
def test_damage_is_noticed_and_the_remedy_said(run: Path, tmp_path: Path, name: str, way: str) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    if way == "delete":
        (folder / name).unlink()
    else:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is (damaged|missing).* lost; run the audit again with the same options"):
        load_audit(folder)
