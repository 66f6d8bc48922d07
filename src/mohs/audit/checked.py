"""Checked labels, matched to the examples of an audit.

decisions      of the report or of `mohs review`, on the current labels: keep means right; accept, change and exclude wrong
corrected      what `mohs apply` wrote: labels with a decision are right now. The earlier audit (`previous`)
               says whether they were right before, and how probable that was
previous       labels that were checked for the earlier audit and have not changed since; its calibration
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs.audit.decision_log import FINAL, LOG, WRONG, is_log
from mohs.audit.decisions import FIRST_ROW, read_decisions
from mohs.audit.result import AuditResult
from mohs.data.corrections import read_corrections
from mohs.data.examples import Examples
from mohs.hardness.checked_labels import Calibration, CheckedLabels

Found = dict[int, tuple[bool, Any, bool]]  # by row: whether the label is wrong, the right class, and whether it was this label


def load_checked(
    given: str | Path | Sequence[Mapping[str, str]] | CheckedLabels | None,
    examples: Examples,
    *,
    corrected: str | Path | None = None,
    earlier: AuditResult | None = None,
) -> CheckedLabels | None:
    """The checked labels among those of the examples; None if there are none.

    Args:
        given: Decisions, as `read_decisions` returns them, their file, or the folder of the audit that holds their log; checked
            labels that are already matched are returned unchanged.
        examples: The examples to audit.
        corrected: The file of corrected labels that they have been given, without the examples that it excludes.
        earlier: The earlier audit.
    """
    if isinstance(given, CheckedLabels):
        return given
    found: Found = {} if earlier is None else _still_checked(earlier, examples)
    told: list[tuple[float, bool]] = []
    if corrected is not None:
        kept = [one for one in read_corrections(corrected).column("decision").to_pylist() if one != "exclude"]
        found |= {row: (False, None, False) for row, decision in enumerate(kept) if decision}
        told = [] if earlier is None else _outcomes(corrected, earlier)
    if given is not None:
        told_before = set(found)  # the earlier audit has been calibrated by these
        decided = _decided(given, examples)
        found |= {row: (wrong, label, row not in told_before) for row, (wrong, label, _) in decided.items()}
    before = Calibration() if earlier is None else Calibration(*earlier.facts.get("calibration", ()))
    if not found and not told and before == Calibration():
        return None
    rows = sorted(found)
    wrong, labels, fresh = zip(*(found[row] for row in rows), strict=True) if rows else ((), (), ())
    return CheckedLabels(tuple(rows), wrong, labels, fresh, tuple(told), before)


def _decided(given: str | Path | Sequence[Mapping[str, str]], examples: Examples) -> Found:
    """The labels that these decisions check, by row."""
    decisions, name, numbered = _read(given)
    if not decisions:
        raise DataError(f"{name} holds no decisions: check some labels in the report or in mohs review first")
    place, names, hash_ = _places(examples), {str(one): one for one in examples.classes}, examples.fingerprint()
    labels, found = examples.labels.tolist(), Found()
    for number, row in enumerate(decisions, FIRST_ROW):
        where = f"{name}, row {number} (id {row['id']!r})" if numbered else f"{name} (id {row['id']!r})"
        if row["id"] not in place:
            raise DataError(f"{where}: {examples.name} has no such id; give decisions that were made on an audit of these data")
        at = place[row["id"]]
        label = str(examples.classes[labels[at]])
        if row["label"] != label:
            raise DataError(
                f"{where}: the label was {row['label']!r} when it was checked and is {label!r} in {examples.name} now; audit the "
                "data as they were, or remove the row and check the label again"
            )
        if row["data_hash"] != hash_:
            raise DataError(
                f"{where} was made on other data: its data_hash is {row['data_hash']!r}, that of {examples.name} is {hash_!r}; "
                "audit the data as they were, or check the labels again in a new audit"
            )
        if row["decision"] not in FINAL:
            raise DataError(f"{where}: unknown decision {row['decision']!r}; known: {', '.join(FINAL)}")
        if at in found:
            raise DataError(f"{where}: this id has two decisions; keep one of the two rows")
        new = row["new_label"]
        if new and new not in names:
            raise DataError(
                f"{where}: the new label {new!r} is not one of the {len(names)} classes; correct it, or leave it empty"
            )
        wrong = row["decision"] in WRONG and new != label
        found[at] = (wrong, names[new] if wrong and new else None, True)
    return found


def _read(given: str | Path | Sequence[Mapping[str, str]]) -> tuple[Sequence[Mapping[str, str]], str, bool]:
    """The decisions, how an error names them, and whether they have rows with numbers."""
    if not isinstance(given, str | Path):
        return given, "checked", True
    path = Path(given)
    if path.is_dir():
        path = path / LOG
    if not path.is_file():
        raise DataError(
            f"checked (--checked): {path} does not exist; give the decisions.csv that the report downloads, the decisions.log of "
            "mohs review, or the folder of the audit that holds it"
        )
    return read_decisions(path), str(path), not is_log(path)


def _still_checked(earlier: AuditResult, examples: Examples) -> Found:
    """Labels that were checked for the earlier audit and have not changed since, or have been corrected."""
    if "checked" not in earlier.table.column_names:
        return {}
    place, names = _places(examples), [str(one) for one in examples.classes]
    labels, found = examples.labels.tolist(), Found()
    columns = (earlier.table.column(one).to_pylist() for one in ("id", "label", "checked", "suggested_label"))
    for id_, label, checked, new in zip(*columns, strict=True):
        row = place.get(str(id_))
        if checked is None or row is None:
            continue
        now, wrong = names[labels[row]], checked == "wrong"
        if now == str(label):
            found[row] = (wrong, new if wrong and new != label else None, False)
        elif wrong and now == str(new):
            found[row] = (False, None, False)
    return found


def _outcomes(corrected: str | Path, earlier: AuditResult) -> list[tuple[float, bool]]:
    """For each label decided on since the earlier audit: its p_mislabeled there, and whether it was wrong."""
    texts = read_corrections(corrected)
    table = earlier.table
    before = table.column("checked").to_pylist() if "checked" in table.column_names else [None] * len(table)
    columns = (table.column(one).to_pylist() for one in ("id", "label", "p_mislabeled"))
    rows = zip(*columns, before, strict=True)
    place = {str(id_): (str(label), p) for id_, label, p, checked in rows if checked is None and p is not None}
    told = []
    for id_, label, decision in zip(*(texts.column(one).to_pylist() for one in ("id", "label", "decision")), strict=True):
        if decision and id_ in place:
            given, p = place[id_]
            told.append((float(p), decision == "exclude" or label != given))
    return told


def _places(examples: Examples) -> dict[str, int]:
    """The row of each id."""
    keys = examples.keys if examples.keys is not None else range(len(examples))
    return {str(key): row for row, key in enumerate(keys)}
