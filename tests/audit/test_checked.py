"""An audit with labels that somebody has checked: from decisions, from corrected labels, and from an earlier audit."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import mohs
from mohs.audit.decision_log import LOG, DecisionLog
from mohs.audit.decisions import read_labels, undo_labels
from mohs.audit.pipeline import corrected_before
from mohs.cli import app
from mohs.data.corrections import read_corrections

FIELDS = ("id", "data_hash", "label", "decision", "new_label")
Decide = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def truth() -> np.ndarray[Any, Any]:
    return np.asarray(load_digits().target[:300])


@pytest.fixture(scope="module")
def data(truth: np.ndarray[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 digits by half of their pixels, every fifth label wrong."""
    pixels = load_digits().data[:300, ::2].astype(np.float32)
    file = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(file, x=pixels, y=np.where(np.arange(300) % 5 == 0, (truth + 1) % 10, truth))
    return file


@pytest.fixture(scope="module")
def first(data: Path, tmp_path_factory: pytest.TempPathFactory) -> mohs.AuditResult:
    return mohs.audit(data, out=tmp_path_factory.mktemp("runs") / "first", device="cpu")


@pytest.fixture(scope="module")
def decide(first: mohs.AuditResult, truth: np.ndarray[Any, Any]) -> Decide:
    """A decision on a row: by the truth, or as given."""

    def decided(row: int, decision: str | None = None, new_label: str | None = None) -> dict[str, str]:
        label = first.table.column("label")[row].as_py()
        right = str(truth[row])
        told = ("keep", "") if str(label) == right else ("change", right)
        made = told if decision is None else (decision, new_label or "")
        return dict(zip(FIELDS, (str(first.table.column("id")[row].as_py()), first.data_hash, str(label), *made), strict=True))

    return decided


def flagged(result: mohs.AuditResult) -> list[int]:
    return [row for row, one in enumerate(result.table.column("verdict").to_pylist()) if one == "mislabeled"]


def to_check(result: mohs.AuditResult) -> list[int]:
    places = result.table.column("to_check").to_pylist()
    return sorted((row for row, place in enumerate(places) if place), key=lambda row: places[row])


def p_of(result: mohs.AuditResult) -> np.ndarray[Any, Any]:
    return np.asarray(result.table.column("p_mislabeled").to_numpy())


def write(file: Path, rows: list[dict[str, str]]) -> Path:
    with file.open("w", newline="") as out:
        table = csv.DictWriter(out, FIELDS)
        table.writeheader()
        table.writerows(rows)
    return file


def test_an_audit_says_which_labels_to_check_first(first: mohs.AuditResult) -> None:
    rows = to_check(first)
    assert len(rows) == 20
    assert "checked" not in first.table.column_names
    chances = p_of(first)[rows]
    assert (np.diff(chances) <= 0).all()
    assert chances[0] == np.nanmax(p_of(first))
    page = (first.folder / "report.html").read_text()
    assert "Check first" in page
    assert "--checked decisions.csv" in page


def test_kept_labels_lower_p_and_are_not_flagged_again(
    first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path
) -> None:
    rows = flagged(first)
    assert len(rows) > 12
    file = write(tmp_path / "decisions.csv", [decide(row, "keep") for row in rows[:12]])
    again = mohs.audit(data, out=tmp_path / "again", checked=file, device="cpu")
    assert not set(rows[:12]) & set(flagged(again))
    doubtful = np.setdiff1d(np.flatnonzero(p_of(first) > 0.05), rows[:12])
    assert (p_of(again)[doubtful] < p_of(first)[doubtful]).all()
    assert p_of(again)[rows[:12]].max() == 0
    assert [again.table.column("checked")[row].as_py() for row in rows[:12]] == ["right"] * 12
    assert not set(rows[:12]) & set(to_check(again))
    assert again.facts["checked labels"].startswith("12 checked labels: 0 wrong, ")
    assert "lowered" in again.facts["checked labels"]
    assert again.facts["checked labels"] in (again.folder / "report.html").read_text()
    assert again.estimate is not None
    assert first.estimate is not None
    assert again.estimate.rate == pytest.approx(p_of(again).mean())
    assert again.estimate.rate < first.estimate.rate
    more = mohs.audit(data, out=tmp_path / "more", checked=[decide(row, "keep") for row in rows[:13]], device="cpu")
    assert not set(rows[:13]) & set(flagged(more))  # other decisions, another audit


def test_wrong_labels_stay_flagged_with_the_label_they_should_have(
    first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path
) -> None:
    rows = to_check(first)
    log = DecisionLog(tmp_path / LOG, first.data_hash)
    for row in rows[:-1]:
        made = decide(row)
        log.decide("ada", made["decision"], [(made["id"], made["label"], made["new_label"])])
    last = decide(rows[-1])
    log.decide("ada", "exclude", [(last["id"], last["label"], "")])
    log.close()
    again = mohs.audit(data, out=tmp_path / "again", checked=tmp_path, device="cpu")  # the folder that holds the log
    for row in rows[:-1]:
        wanted = decide(row)
        entry = again.table.slice(row, 1).to_pylist()[0]
        if wanted["decision"] == "keep":
            assert (entry["verdict"] == "mislabeled", entry["p_mislabeled"], entry["checked"]) == (False, 0, "right")
        else:
            assert (entry["verdict"], entry["p_mislabeled"], entry["checked"]) == ("mislabeled", 1, "wrong")
            assert str(entry["suggested_label"]) == wanted["new_label"]
            assert entry["p_suggested"] == 1
    assert again.table.column("checked")[rows[-1]].as_py() == "wrong"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"id": "3000"},
            r"d\.csv, row 2 \(id '3000'\): digits has no such id; give decisions that were made on an audit of these",
        ),
        (
            {"label": "7000"},
            r"d\.csv, row 2 .*the label was '7000' when it was checked and is .* now; audit the data as they were",
        ),
        ({"data_hash": "0"}, r"d\.csv, row 2 .* was made on other data: its data_hash is '0'.*or check the labels again"),
        ({"decision": "maybe"}, r"d\.csv, row 2 .*unknown decision 'maybe'; known: accept, keep, change, exclude"),
        ({"decision": "change", "new_label": "x"}, r"d\.csv, row 2 .*the new label 'x' is not one of the 10 classes"),
        ("twice", r"d\.csv, row 3 .*this id has two decisions; keep one of the two rows"),
        ("empty", r"d\.csv holds no decisions: check some labels"),
        ("missing", r"checked \(--checked\): .*d\.csv does not exist; give the decisions\.csv that the report downloads"),
        ("other", r"d\.csv has no column 'id'; decisions have"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(change: Any, message: str, data: Path, decide: Decide, tmp_path: Path) -> None:
    rows = {"twice": [decide(0), decide(0)], "empty": []}.get(change) if isinstance(change, str) else [decide(0) | change]
    file = tmp_path / "d.csv"
    if change == "other":
        file.write_text("a,b\n1,2\n")
    elif rows is not None:
        write(file, rows)
    with pytest.raises(mohs.DataError, match=message):
        mohs.audit(data, out=tmp_path / "out", checked=file, device="cpu")
    assert not (tmp_path / "out").exists()  # before any work


def test_corrected_labels_are_not_flagged_again_and_the_earlier_audit_calibrates(
    first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path
) -> None:
    kept, moved = flagged(first)[:8], [row for row in flagged(first)[8:] if decide(row)["decision"] == "change"][:4]
    decisions = [*(decide(row, "keep") for row in kept), *(decide(row) for row in moved)]
    labels = tmp_path / "labels.csv"
    mohs.write_labels(mohs.apply_decisions(first.table, decisions, first.data_hash)[0], labels)
    how: dict[str, Any] = {"corrected": labels, "device": "cpu"}
    alone = mohs.audit(data, out=tmp_path / "alone", **how)
    assert not set(kept + moved) & set(flagged(alone))
    assert alone.facts["checked labels"].startswith("12 checked labels; p_mislabeled of the others is unchanged: ")
    again = mohs.audit(data, out=tmp_path / "again", previous=first.folder, **how)
    assert not set(kept + moved) & set(flagged(again))
    assert again.facts["checked labels"].startswith(f"12 checked labels: {len(moved)} wrong, ")
    assert p_of(again).mean() < p_of(alone).mean()
    third = mohs.audit(data, out=tmp_path / "third", previous=again.folder, **how)  # nothing new: what is known stays
    np.testing.assert_allclose(p_of(third), p_of(again))
    assert not set(kept + moved) & set(flagged(third))


def test_corrections_of_an_audit_that_had_corrections_hold_both(
    first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path
) -> None:
    moved = [row for row in flagged(first) if decide(row)["decision"] == "change"]
    one, both = tmp_path / "one.csv", tmp_path / "both.csv"
    again = first
    for rows, file, earlier in ((moved[:3], one, None), (moved[3:6], both, one)):
        decisions = [{**decide(row), "data_hash": again.data_hash} for row in rows]
        labels, _ = mohs.apply_decisions(again.table, decisions, again.data_hash)
        mohs.write_labels(labels, file, earlier=None if earlier is None else read_corrections(earlier))
        again = mohs.audit(data, out=tmp_path / file.stem, previous=again.folder, corrected=file, device="cpu")
        assert corrected_before(again.folder).equals(read_corrections(file))
    made = read_corrections(both)
    new, old = (made.column(name).to_pylist() for name in ("label", "previous"))
    assert [i for i in range(len(made)) if new[i] != old[i]] == sorted(moved[:6])
    assert old == [str(label) for label in first.table.column("label").to_pylist()]
    assert not set(moved[:6]) & set(flagged(again))
    assert list(map(str, read_labels(first.table, both).column("label").to_pylist())) == new
    undo_labels(mohs.load_audit(tmp_path / "one").table, both, earlier=read_corrections(one))
    assert read_corrections(both).column("label").equals(read_corrections(one).column("label"))


def test_an_earlier_audit_with_checked_labels_hands_them_on(
    first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path
) -> None:
    decisions = [decide(row) for row in to_check(first)]
    second = mohs.audit(data, out=tmp_path / "second", checked=decisions, device="cpu")
    for checked in (None, decisions):  # the same decisions again do not count twice
        third = mohs.audit(data, out=tmp_path / f"third-{checked is None}", previous=second.folder, checked=checked, device="cpu")
        np.testing.assert_allclose(p_of(third), p_of(second))
        assert flagged(third) == flagged(second)
        assert third.facts["checked labels"].split("; ")[1] == second.facts["checked labels"].split("; ")[1]
        assert third.table.column("suggested_label").equals(second.table.column("suggested_label"))


def test_labels_that_were_corrected_as_checked_are_right(
    first: mohs.AuditResult, data: Path, decide: Decide, truth: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    decisions = [decide(row) for row in to_check(first)]
    moved = [row for row, one in zip(to_check(first), decisions, strict=True) if one["decision"] == "change"]
    second = mohs.audit(data, out=tmp_path / "second", checked=decisions, device="cpu")
    with np.load(data) as held:
        x, y = held["x"], held["y"]
    y[moved] = truth[moved]
    np.savez(tmp_path / "digits.npz", x=x, y=y)
    third = mohs.audit(tmp_path / "digits.npz", out=tmp_path / "third", previous=second.folder, device="cpu")
    assert [third.table.column("checked")[row].as_py() for row in to_check(first)] == ["right"] * 20
    assert not set(to_check(first)) & set(flagged(third))
    assert third.facts["calibration"] == second.facts["calibration"]


def test_only_examples_with_one_class_can_be_checked(tmp_path: Path, decide: Decide) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "houses.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["area", "rooms", "price"])
        rows.writerows([[area, rng.integers(1, 6), 3 * area + rng.normal()] for area in rng.uniform(20, 200, size=60)])
    write(tmp_path / "d.csv", [decide(0)])
    with pytest.raises(
        ValueError, match=r"checked \(--checked\) is for examples with one class each, and houses has sets, numbers or parts"
    ):
        mohs.audit(tmp_path / "houses.csv", open_as={"target": "price"}, checked=tmp_path / "d.csv", out=tmp_path / "out")


def test_the_command_prints_what_the_checks_changed(first: mohs.AuditResult, data: Path, decide: Decide, tmp_path: Path) -> None:
    words = ["audit", str(data), "--device", "cpu", "--out"]
    shown = CliRunner().invoke(app, [*words, str(tmp_path / "a")])
    assert "check the labels under “Check first” in the report" in shown.stdout
    write(tmp_path / "d.csv", [decide(row) for row in to_check(first)])
    shown = CliRunner().invoke(app, [*words, str(tmp_path / "b"), "--checked", str(tmp_path / "d.csv")])
    assert shown.exit_code == 0, shown.output
    assert "20 checked labels: " in shown.stdout
    assert "Check first" not in shown.stdout
    shown = CliRunner().invoke(app, ["audit", str(tmp_path), "--stream", "--checked", str(tmp_path / "d.csv")])
    assert "leave --checked out" in str(shown.exception)
