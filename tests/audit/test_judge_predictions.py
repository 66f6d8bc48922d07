"""Audits of predictions in a file: one label per example, several classes, tokens and pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mohs

CLASSES = ["cat", "dog", "fox"]
Array = np.ndarray[Any, Any]


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scores_of(labels: Array, seed: int = 0) -> Array:
    """Probabilities (..., K) of a good model."""
    return softmax(5 * np.eye(3)[labels] + np.random.default_rng(seed).normal(size=(*labels.shape, 3)))


def audited(folder: Path, **arrays: Any) -> mohs.AuditResult:
    np.savez(folder / "predictions.npz", classes=CLASSES, **arrays)
    result = mohs.audit(str(folder / "predictions.npz"), out=folder / "audit")
    assert result.report is not None
    assert result.report.stat().st_size > 10_000
    return result


def flagged(result: mohs.AuditResult) -> list[dict[str, Any]]:
    return [row for row in result.table.to_pylist() if row["verdict"] == "mislabeled"]


def test_one_label_per_example(tmp_path: Path) -> None:
    labels = np.random.default_rng(1).integers(3, size=200)
    probs = scores_of(labels)
    labels[[4, 9]] = (labels[[4, 9]] + 1) % 3
    found = flagged(audited(tmp_path, probs=probs, y=labels, ids=[f"e{i}" for i in range(200)]))
    assert {"e4", "e9"} <= {row["id"] for row in found}
    assert len(found) < 6
    assert found[0]["suggested_label"] in CLASSES


def test_several_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((200, 3)) < 0.4).astype(int)
    logits = 8 * (labels - 0.5) + rng.normal(size=labels.shape)
    labels[4] = 1 - labels[4]
    result = audited(tmp_path, logits=logits[:, ::-1], labels=labels[:, ::-1])
    worst = flagged(result)[0]
    assert worst["id"] == 4
    given, expected = ({CLASSES[2 - k] for k in range(3) if row[k]} for row in (labels[4], 1 - labels[4]))
    assert set(worst["label"].split(";")) - {"(none)"} == given
    assert set(worst["suggested_label"].split(";")) - {"(none)"} == expected


@pytest.mark.parametrize("shape", [(80, 9), (20, 12, 12)], ids=["tokens", "pixels"])
def test_tokens_and_pixels(shape: tuple[int, ...], tmp_path: Path) -> None:
    labels = np.zeros(shape, int)
    labels[:, 2:7], labels[:, 7:] = 1, 2
    probs = np.moveaxis(scores_of(labels), -1, 1)
    labels[3, 2:7] = 2
    labels[5, :2] = -100
    result = audited(tmp_path, probs=probs, labels=labels)
    assert len(result.table) == shape[0]
    assert [row["id"] for row in flagged(result)] == [3]
    row = flagged(result)[0]
    assert (row["label"], row["suggested_label"]) == ("fox", "dog")
    assert 2 * np.prod(shape[2:]) <= row["part"] < 7 * np.prod(shape[2:])


def test_shapes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for arrays, message in (
        ({"probs": np.ones((5, 3)), "y": np.zeros((5, 4), int)}, "must be class indices of shape"),
        ({"probs": np.ones((5, 2)), "y": np.zeros(5, int)}, "3 class names"),
        ({"probs": np.ones((5, 3, 2)), "y": np.full((5, 2), 7)}, "outside 0..2"),
    ):
        np.savez(tmp_path / "predictions.npz", classes=CLASSES, **arrays)
        with pytest.raises(mohs.DataError, match=message):
            mohs.open_data(str(tmp_path / "predictions.npz"))
    with pytest.raises(mohs.DataError, match="cannot train on predictions"):
        mohs.train(mohs.Run(epochs=1), {"probs": scores_of(np.arange(60) % 3), "y": np.arange(60) % 3})
