"""Audits of the same examples: what the second one reuses, what changed between them, and what cannot be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from typer.testing import CliRunner

import mohs
from mohs._core.errors import DataError
from mohs.audit import judge_features
from mohs.audit import other_issues as issues_of_audits
from mohs.audit.pipeline import run_audit
from mohs.cli import app
from mohs.data.examples import Data, Examples
from mohs.hardness.table import column
from mohs.issues import find_issues as finding
from mohs.report.changes_block import change_words
from mohs.report.page import write_report

DEFECT_CHECKS = ("image_defects", "exact_copies", "aligned_view")


@pytest.fixture(scope="module")
def wrong(few_images: Examples) -> Examples:
    """Digits with wrong labels; rows 0 and 1 are copies with different labels, row 2 is empty."""
    inputs, labels = few_images.inputs.clone(), few_images.labels.clone()
    inputs[1], labels[1] = inputs[0], (labels[0] + 1) % 10
    inputs[2] = 0
    return replace(few_images, inputs=inputs, labels=labels, truth=None, keys=None)


@pytest.fixture(scope="module")
def first(wrong: Examples, tmp_path_factory: pytest.TempPathFactory) -> mohs.AuditResult:
    return run_audit(Data(wrong, test=wrong.take(torch.arange(5, 60))), out=tmp_path_factory.mktemp("first") / "audit")


@pytest.fixture(scope="module")
def easiest(first: mohs.AuditResult) -> int:
    """The row whose label is least likely to be wrong."""
    return int(np.nanargmin(first.table.column("p_mislabeled").to_numpy()))


@pytest.fixture(scope="module")
def corrected(wrong: Examples, few_images: Examples, easiest: int) -> Data:
    """The same examples with right labels, but a wrong one for the easiest."""
    assert few_images.truth is not None
    labels = few_images.truth.clone()
    labels[1] = labels[0]
    labels[easiest] = (labels[easiest] + 5) % 10
    return Data(replace(wrong, labels=labels), test=wrong.take(torch.arange(5, 60)))


def same_columns(one: pa.Table, other: pa.Table) -> None:
    assert one.column_names == other.column_names
    for name in one.column_names:
        np.testing.assert_array_equal(column(one, name), column(other, name), err_msg=name)


def test_a_second_audit_equals_one_from_scratch_without_searching_again(
    first: mohs.AuditResult, corrected: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = run_audit(corrected, out=tmp_path / "scratch")

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed again")

    for name in DEFECT_CHECKS:
        monkeypatch.setattr(finding, name, forbidden)
    monkeypatch.setattr(issues_of_audits, "leaks_between", forbidden)
    monkeypatch.setattr(judge_features, "neighbors_of", forbidden)
    again = run_audit(corrected, out=tmp_path / "again", previous=first.folder)
    same_columns(again.table, scratch.table)
    assert again.issues is not None
    assert scratch.issues is not None
    same_columns(again.issues.table, scratch.issues.table)
    assert {"leak", "low_information", "near_duplicate"} <= set(again.issues.found)


def test_the_diff_names_new_and_solved_errors(
    first: mohs.AuditResult, wrong: Examples, corrected: Data, easiest: int, tmp_path: Path
) -> None:
    again = run_audit(corrected, out=tmp_path, previous=first.folder)
    assert again.diff is not None
    rows = {row["id"]: row for row in again.diff.table.to_pylist()}
    assert len(rows) == len(wrong)
    assert rows[str(easiest)]["change"] == "new"
    before, now = (one.table.column("verdict").to_pylist() for one in (first, again))
    for i, (old, new) in enumerate(zip(before, now, strict=True)):
        row = rows[str(i)]
        assert (row["verdict_before"], row["verdict"]) == (old, new)
        assert (row["change"] in ("solved", "withdrawn", "still")) == (old == "mislabeled")
        assert (row["change"] == "solved") <= (row["label"] != row["label_before"])
        assert (row["change"] in ("new", "still")) == (new == "mislabeled")
    counts = again.diff.counts
    assert sum(counts.values()) == len(wrong)
    assert counts["solved"] >= 10
    assert sum(again.diff.moves().values()) == counts["new"] + counts["solved"] + counts["withdrawn"] + counts["changed"]
    conflict = next(one for one in again.diff.issues if one["issue"] == "conflicting_duplicate")
    assert (conflict["before"], conflict["now"], conflict["solved"]) == (2, 0, 2)
    assert "conflicting_duplicate" in rows["0"]["issues_solved"]
    kept = mohs.load_audit(tmp_path).diff
    assert kept is not None
    assert kept.table.equals(again.diff.table)
    assert kept.issues == again.diff.issues
    page = write_report(again, tmp_path / "report.html").read_text()
    section = page[page.index('id="changes"') : page.index('id="gallery"')]
    before = counts["solved"] + counts["withdrawn"] + counts["still"]
    assert f"{counts['solved']:,} of {before:,} label errors are solved" in section
    assert "Copies with different labels" in section


def test_a_label_that_is_not_flagged_any_more_is_solved_only_if_it_changed(first: mohs.AuditResult) -> None:
    flagged = first.table.column("verdict").to_pylist().index("mislabeled")
    verdicts = ["hard" if i == flagged else one for i, one in enumerate(first.table.column("verdict").to_pylist())]
    labels = first.table.column("label").to_pylist()
    place = first.table.column_names.index
    cleared = first.table.set_column(place("verdict"), "verdict", [verdicts])
    found = mohs.diff_audits(first, replace(first, table=cleared))
    assert found.table.column("change")[flagged].as_py() == "withdrawn"
    assert "1 no longer flagged, " in change_words(found)
    labels[flagged] = next(one for one in labels if one != labels[flagged])
    moved = cleared.set_column(place("label"), "label", [labels])
    assert mohs.diff_audits(first, replace(first, table=moved)).table.column("change")[flagged].as_py() == "solved"


def test_examples_that_come_and_go(first: mohs.AuditResult) -> None:
    part = replace(first, table=first.table.slice(10))
    assert mohs.diff_audits(first, part).counts["removed"] + mohs.diff_audits(first, part).counts["solved"] == 10
    back = mohs.diff_audits(part, first).counts
    assert back["added"] + back["new"] == 10
    same = mohs.diff_audits(first.folder, first)
    assert set(same.table.column("change").to_pylist()) <= {"unchanged", "still"}
    assert repr(same).startswith("AuditDiff: ")


def test_other_data_are_refused(first: mohs.AuditResult, wrong: Examples, tmp_path: Path) -> None:
    other = Data(replace(wrong, inputs=255 - wrong.inputs))
    with pytest.raises(mohs.DataError, match="audited other inputs than those of"):
        run_audit(other, out=tmp_path / "a", previous=first.folder)
    named = Data(replace(wrong, keys=[f"photo{i}" for i in range(len(wrong))]))
    with pytest.raises(mohs.DataError, match=r"audited other examples: no id is in both \('0' there, 'photo0' in"):
        run_audit(named, out=tmp_path / "b", previous=first.folder)
    with pytest.raises(mohs.DataError, match="does not exist: give the folder of a finished audit"):
        run_audit(Data(wrong), out=tmp_path / "c", previous=tmp_path / "nowhere")
    table = first.table.set_column(0, "id", pa.array([f"x{i}" for i in range(len(first.table))]))
    with pytest.raises(mohs.DataError, match="no id is in both"):
        mohs.diff_audits(first, replace(first, table=table))


def test_changed_inputs_are_checked_again(first: mohs.AuditResult, wrong: Examples, tmp_path: Path) -> None:
    inputs = wrong.inputs.clone()
    inputs[9] = 0
    again = run_audit(Data(replace(wrong, inputs=inputs, keys=list(range(len(wrong))))), out=tmp_path, previous=first.folder)
    assert again.issues is not None
    assert np.flatnonzero(again.issues.found["low_information"].flag).tolist() == [2, 9]


def test_the_command_from_decisions_to_the_diff(tmp_path: Path) -> None:
    def called(*words: str) -> str:
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    called("audit", "--out", str(tmp_path / "one"), "--quiet")
    one = mohs.load_audit(tmp_path / "one")
    flagged = [row for row in one.table.to_pylist() if row["verdict"] == "mislabeled"]
    made = ["exclude,", *(f"accept,{row['suggested_label']}" for row in flagged[1:])]
    lines = [f"{row['id']},{one.data_hash},{row['label']},{end}" for row, end in zip(flagged, made, strict=True)]
    (tmp_path / "decisions.csv").write_text("\n".join(["id,data_hash,label,decision,new_label", *lines]) + "\n")
    called("apply", str(tmp_path / "one"), str(tmp_path / "decisions.csv"), "--to", str(tmp_path / "labels.csv"))
    words = ["audit", "--corrected", str(tmp_path / "labels.csv"), "--previous", str(tmp_path / "one"), "--json"]
    found = json.loads(called(*words, "--out", str(tmp_path / "two")).splitlines()[-1])["changes"]
    assert found["solved"] > 0.9 * len(flagged)
    assert found["new"] + found["still"] < 0.2 * len(flagged)
    assert f"since {tmp_path / 'one'}: " in called(*words[:-1], "--out", str(tmp_path / "two"))


def test_without_data_the_previous_audit_is_repeated_with_its_options(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i % 3}.{i},{'xyz'[i % 3]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a,b,kind\n{rows}")
    one = mohs.audit(tmp_path / "rows.csv", out=tmp_path / "one", open_as={"label": "kind"}, issues="none", seed=3)
    words = ["audit", "--previous", str(tmp_path / "one"), "--out", str(tmp_path / "two"), "--quiet"]
    assert CliRunner().invoke(app, [*words, "--precision", "0.9"], catch_exceptions=False).exit_code == 0
    two = mohs.load_audit(tmp_path / "two")
    assert (two.data_hash, two.classes, two.issues) == (one.data_hash, one.classes, None)
    call = json.loads((tmp_path / "two" / "audit.json").read_text())["call"]
    assert (call["data"], call["open_as"]) == (str(tmp_path / "rows.csv"), {"label": "kind"})
    assert (call["options"]["seed"], call["options"]["precision"]) == (3, 0.9)
    assert f"mohs audit --previous {tmp_path / 'two'} --checked decisions.csv" in (two.folder / "report.html").read_text()
    (tmp_path / "rows.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(DataError, match=r"no longer at .*rows\.csv: give the new location of the data as DATA"):
        mohs.audit(previous=tmp_path / "one", out=tmp_path / "three")
    again = mohs.audit(tmp_path / "moved.csv", open_as={"label": "kind"}, previous=tmp_path / "one", out=tmp_path / "three")
    assert again.diff is not None


def test_an_audit_of_data_in_memory_cannot_be_repeated_without_them(first: mohs.AuditResult, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is an audit of data that were in memory: give the data too"):
        mohs.audit(previous=first.folder, out=tmp_path / "two")
    page = write_report(first, tmp_path / "report.html").read_text()
    assert "mohs.audit(data, checked=" in page
