"""The numbers of the charts are right, against obvious loops; every chart is valid Vega-Lite; the map unpacks to the table."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import mohs
from mohs._core.plain_text import page_json
from mohs.audit.result import AuditResult
from mohs.evaluate.calibration import ece
from mohs.hardness.score import score_logits
from mohs.hardness.table import VERDICTS, column
from mohs.report import data_map as maps
from mohs.report.data_map import data_map
from mohs.report.figures import PAIRED, Figure, distinct, figures

needs_charts = pytest.mark.skipif(importlib.util.find_spec("altair") is None, reason="needs the report extra")


@pytest.fixture(scope="module")
def made(digits: AuditResult) -> dict[str, Figure]:
    return {figure.key: figure for figure in figures(digits)}


def test_every_available_figure_is_drawn(made: dict[str, Figure]) -> None:
    assert list(made) == [
        "pairs", "classes", "grades", "margins", "emphasis", "norm", "avh", "accuracy", "loss", "accuracies", "reliability",
        "confusion",
    ]  # fmt: skip
    assert all(figure.meaning.endswith(".") and len(figure.rows) <= 1000 for figure in made.values())


def test_counts_match_a_loop(digits: AuditResult, made: dict[str, Figure]) -> None:
    rows = digits.table.to_pylist()
    for cell in made["pairs"].rows:
        same = [
            r
            for r in rows
            if r["label"] == cell["given"] and r["suggested_label"] == cell["suggested"] and r["label"] != r["suggested_label"]
        ]
        assert cell["examples"] == len(same)
    for bar in made["grades"].rows:
        assert bar["examples"] == sum(r["mohs"] == bar["grade"] and r["verdict"] == bar["verdict"] for r in rows)
    for bar in made["classes"].rows:
        own = [r for r in rows if r["label"] == bar["class"]]
        assert bar["share"] == pytest.approx(sum(r["verdict"] == bar["verdict"] for r in own) / len(own))
    assert sum(bar["examples"] for bar in made["margins"].rows) == len(rows)
    edges = sorted({bar["from"] for bar in made["margins"].rows})
    inner = [bar for bar in made["margins"].rows if edges[0] < bar["from"] < edges[-1]]
    for bar in inner[:10]:
        assert bar["examples"] == sum(bar["from"] <= r["margin"] < bar["to"] and r["verdict"] == bar["verdict"] for r in rows)


def test_emphasis_figure_uses_the_loss_and_the_examples_probabilities(digits: AuditResult, made: dict[str, Figure]) -> None:
    rows = made["emphasis"].rows
    p = torch.tensor([row["p"] for row in rows if row["part"] == "gce:q=0.7"], dtype=torch.float64)
    w = mohs.emphasis(mohs.GeneralizedCrossEntropyLoss(q=0.7), p)
    assert [row["value"] for row in rows if row["part"] == "gce:q=0.7"] == pytest.approx((w / w.max()).tolist())
    bars = [row for row in rows if row["part"] == "examples"]
    confidence = column(digits.table, "confidence")
    assert sum(bar["value"] for bar in bars) == pytest.approx(1)
    assert bars[3]["value"] == pytest.approx(np.mean((confidence >= bars[3]["p"]) & (confidence < bars[3]["to"])))


@pytest.mark.parametrize("chosen", ["", "forward", "ember", "gce:q"])
def test_a_loss_with_required_settings_has_no_emphasis_figure(digits: AuditResult, chosen: str) -> None:
    assert "emphasis" not in {figure.key for figure in figures(replace(digits, chosen=chosen))}


def test_held_out_figures_agree_with_the_arrays(digits: AuditResult, made: dict[str, Figure]) -> None:
    assert digits.held_out is not None
    probs, labels = digits.held_out
    assert f"error {ece(probs, labels):.3f}" in made["reliability"].meaning
    wrong = Counter((str(a), str(b)) for a, b in zip(labels, probs.argmax(1), strict=True) if a != b)
    assert {(c["label"], c["predicted"]): c["examples"] for c in made["confusion"].rows if c["examples"]} == wrong


def test_many_classes_are_reduced_to_the_most_informative(synthetic: Callable[..., Any]) -> None:
    classes = [f"class {i:04}" for i in range(300)]
    made = {figure.key: figure for figure in figures(AuditResult(synthetic(4000, classes), "n", "h", classes))}
    assert (PAIRED - 1) ** 2 <= len(made["pairs"].rows) <= PAIRED**2
    assert "Only the classes of the most common pairs are drawn" in made["pairs"].meaning
    assert sum(cell["examples"] for cell in made["pairs"].rows) >= PAIRED // 2
    assert len(made["classes"].rows) == (len(VERDICTS) - 1) * 30
    assert made["classes"].meaning.startswith("The 30 classes with the most wrong labels.")


def test_numbers_and_names_may_be_classes_at_once() -> None:
    assert distinct([1, "1", "a" * 99]) == ["1", "1 (1)", "a" * 14 + "…" + "a" * 13]


@needs_charts
def test_every_chart_is_valid_and_refers_to_its_data_by_name(digits: AuditResult, hostile: AuditResult) -> None:
    from mohs.report.drawings import specification

    for figure in (*figures(digits), *figures(hostile)):
        spec = specification(figure)  # Altair checks it against Vega-Lite's schema
        assert spec["data"] == {"name": "rows"}
        assert '"values"' not in page_json(spec)
        assert "datasets" not in spec


def unpacked(table: Any, names: list[Any]) -> tuple[Any, dict[str, np.ndarray]]:
    found = data_map(table, names)
    assert found is not None
    data, n = gzip.decompress(base64.b64decode(found.points)), found.count
    wide = np.frombuffer(data[: 8 * n], "<u2").reshape(4, n)
    narrow = np.frombuffer(data[8 * n :], "u1").reshape(2, n)
    return found, dict(zip(("x", "y", "label", "predicted", "verdict", "chance"), (*wide, *narrow), strict=True))


def test_the_map_unpacks_to_the_table(digits: AuditResult) -> None:
    found, points = unpacked(digits.table, list(digits.classes))
    assert (found.count, found.names, found.x_limit) == (len(digits.table), None, 0.5)
    np.testing.assert_allclose(points["y"] / 65535, column(digits.table, "mean_confidence"), atol=1e-5)
    np.testing.assert_allclose(points["x"] / 65535 * 0.5, column(digits.table, "variability"), atol=1e-5)
    assert [digits.classes[i] for i in points["label"]] == digits.table.column("label").to_pylist()
    assert [VERDICTS[i] for i in points["verdict"]] == digits.table.column("verdict").to_pylist()
    np.testing.assert_allclose(points["chance"], 100 * column(digits.table, "p_mislabeled"), atol=0.5)
    assert sum(row["examples"] for row in found.summary) == len(digits.table)


def test_names_on_the_map_are_those_of_files(synthetic: Callable[..., Any]) -> None:
    found, _ = unpacked(synthetic(50, ["a", "b"]), ["a", "b"])
    assert json.loads(gzip.decompress(base64.b64decode(found.names)))[3].endswith("image_000003.jpg")


def test_a_large_map_thins_the_easy_and_keeps_the_rest(synthetic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    table = synthetic(3000, ["a", "b"], paths=False)
    verdicts = Counter(table.column("verdict").to_pylist())
    monkeypatch.setattr(maps, "MOST", 2000)
    found, points = unpacked(table, ["a", "b"])
    assert (found.count, found.examples) == (2000, 3000)
    assert found.names is not None
    kept = Counter(VERDICTS[i] for i in points["verdict"])
    assert all(kept[name] == verdicts[name] for name in verdicts if name != "easy")
    monkeypatch.setattr(maps, "MOST", 100)
    assert unpacked(table, ["a", "b"])[0].count == 100


def test_without_dynamics_the_map_uses_other_columns(synthetic: Callable[..., Any]) -> None:
    table = synthetic(50, ["a", "b"]).drop_columns(["variability"])
    assert data_map(table, ["a", "b"]) is None
    torch.manual_seed(0)
    found = data_map(mohs.verdict(score_logits(torch.randn(40, 3), torch.randint(3, (40,)))), [0, 1, 2])
    assert found is not None
    assert "entropy" in found.x_title
