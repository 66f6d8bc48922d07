"""Audits of examples with several labels: what they are read from, which labels are wrong, and the sets that are suggested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import mohs
from mohs._core.errors import DataError
from mohs.audit.decisions import apply_decisions
from mohs.audit.pipeline import audited_data
from mohs.data.labels import as_set, set_members

NAMES = np.array(["cat", "dog", "elk"])
Array = np.ndarray[Any, Any]


def made(n: int = 300) -> tuple[Array, Array, Array]:
    """Features (N, D), true labels and given ones (N, K); about a tenth of the labels is missing, some are too many."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 8))
    z = x @ rng.normal(size=(8, len(NAMES))) - 0.7
    truth = (rng.random(z.shape) < 1 / (1 + np.exp(-4 * z))).astype(int)
    drawn = rng.random(z.shape)
    return x.astype(np.float32), truth, np.where(truth == 1, drawn >= 0.12, drawn < 0.03).astype(int)


def written(labels: Array, separator: str = ";") -> list[str]:
    return [as_set(NAMES[row == 1], separator, "") for row in labels]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> mohs.AuditResult:
    x, _, given = made()
    file = tmp_path_factory.mktemp("several") / "data.npz"
    np.savez(file, x=x, y=given, classes=NAMES)
    return mohs.audit(str(file), out=file.parent / "audit")


def test_wrong_labels_are_found_and_the_suggested_sets_are_better(audited: mohs.AuditResult) -> None:
    _, truth, given = made()
    wrong = truth != given
    table = audited.table
    assert table.column("label").to_pylist() == written(given)
    assert average_precision_score(wrong.any(1), table.column("p_mislabeled").to_numpy()) > 0.85
    suggested = table.column("suggested_label").to_pylist()
    right = [np.mean([a == b for a, b in zip(one, written(truth), strict=True)]) for one in (written(given), suggested)]
    assert right[1] > right[0] + 0.05
    assert set(table.column("part").to_pylist()) <= set(NAMES)
    assert audited.estimate is not None
    assert abs(audited.estimate.rate - wrong.mean()) < 0.03
    page = (audited.folder / "report.html").read_text()
    assert any(re.search(rf"{name}: predicted no \([^)]*%\), not yes \([^)]*%\)", page) for name in NAMES)


def test_decisions_write_the_suggested_sets_and_they_can_be_audited(audited: mohs.AuditResult, tmp_path: Path) -> None:
    rows = [row for row in audited.table.to_pylist() if row["verdict"] == "mislabeled"]
    decisions = [
        {"id": str(row["id"]), "data_hash": audited.data_hash, "label": row["label"], "decision": "accept", "new_label": ""}
        for row in rows
    ]
    labels, done = apply_decisions(audited.table, decisions, audited.data_hash, classes=audited.classes)
    assert done.changed == len(rows) > 0
    mohs.write_labels(labels, tmp_path / "labels.csv")
    call = json.loads((audited.folder / "audit.json").read_text())["call"]
    again = audited_data({**call, "corrected": str(tmp_path / "labels.csv")}).train
    assert [again.classes[i] for i in again.labels.tolist()] == audited.table.column("suggested_label").to_pylist()


def test_files_with_several_labels_are_read_alike(tmp_path: Path) -> None:
    x, _, given = made(40)
    rows = [{"id": f"e{i}", "features": x[i].tolist(), "labels": NAMES[given[i] == 1].tolist()} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = [f"{' | '.join(NAMES[given[i] == 1])},{','.join(map(str, x[i]))}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["tags," + ",".join(f"c{j}" for j in range(8)), *lines]))
    listed = mohs.open_data(str(tmp_path / "rows.jsonl")).train
    cells = mohs.open_data(str(tmp_path / "rows.csv"), label="tags", separator="|").train
    for train, sign in ((listed, ";"), (cells, "|"), (mohs.open_data((x, given)).train, ";")):
        names, members = set_members(train.classes, train.separator)
        np.testing.assert_array_equal(members[train.labels].numpy(), given)
        assert train.separator == sign
    assert names == ["0", "1", "2"]
    assert listed.keys is not None
    assert listed.keys[3] == "e3"


def test_training_and_other_judges_refuse_several_labels(tmp_path: Path) -> None:
    x, _, given = made(40)
    with pytest.raises(mohs.DataError, match="can be audited, not trained on"):
        mohs.train(mohs.Run(epochs=1), (x, given))
    with pytest.raises(ValueError, match=r"run \(--run\) is for examples with one class each"):
        mohs.audit((x, given), run=tmp_path, out=tmp_path / "audit")
    with pytest.raises(mohs.DataError, match="add examples"):
        mohs.audit((x[:15], given[:15]), out=tmp_path / "audit")


def test_a_name_must_not_hold_the_separator() -> None:
    with pytest.raises(mohs.DataError, match="which separates labels"):
        as_set(["a;b"], ";", "data")


def test_labels_in_too_few_groups_are_not_judged(tmp_path: Path) -> None:
    x, _, given = made()
    groups = np.arange(300) // 5
    given[:, 2] = groups < 2  # ten examples in two groups: heads without one of them hardly know the label
    found = mohs.audit(
        {"x": x, "y": given, "classes": NAMES, "patient": groups}, group="patient", out=tmp_path / "a", issues="none"
    )
    assert found.facts["labels not judged"] == 1
    assert found.facts["groups"] == 60
    assert set(found.table.column("part").to_pylist()) <= {"cat", "dog"}
    with pytest.raises(DataError, match="no label is on 10 examples and absent from 10 others, both in at least 3 groups"):
        mohs.audit((x, np.stack([groups < 2, groups < 2], 1).astype(int)), group=groups, out=tmp_path / "b", issues="none")
