"""One example in detail: images, texts, tables and bare features; the whole text from the data; the training curve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

pytest.importorskip("duckdb", reason="needs the review extra")

from mohs.audit.pipeline import call_of
from mohs.data.open_data import open_data
from mohs.review.example import ExampleView
from mohs.review.original import Original
from mohs.review.review import open_review
from mohs.review.source import open_source
from mohs.train.checkpoint import save_tree

COLUMNS: dict[str, list[Any]] = {
    "label": ["a", "b", "a"],
    "suggested_label": ["a", "a", None],
    "p_mislabeled": [0.1, float("nan"), 0.9],
}


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        ({"text": ["some words", "", None]}, "text"),
        ({"fields": ['{"age": 3, "name": "x"}', "not json", None]}, "table"),
        ({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, None]}, "table"),
        ({"when": pa.array([0, 1, 2], pa.timestamp("s")), "ok": [True, None, False]}, "table"),
    ],
)
def test_every_kind_of_table_is_shown(extra: dict[str, Any], kind: str, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table(COLUMNS | extra), tmp_path / "table.parquet")
    review = open_review(open_source(tmp_path / "table.parquet"))
    assert review.source.kind == kind
    view = ExampleView(review)
    shown = [view.of(row) for row in range(3)]
    review.close()
    assert [one["id"] for one in shown] == ["0", "1", "2"]
    assert [one["text"] for one in shown] == extra.get("text", [None] * 3)
    assert shown[0]["fields"] == ([["age", 3], ["name", "x"]] if "fields" in extra else None)
    assert shown[1]["values"]["p_mislabeled"] is None
    assert all(one["neighbors"] == one["probabilities"] == one["curve"] == [] for one in shown)


def test_the_training_curve_is_read_by_row(run: Path) -> None:
    (run / "run").mkdir()
    confidence = torch.rand(5, 240).half()
    confidence[0, 7] = torch.nan
    save_tree({"confidence": confidence, "right": confidence > 0.5}, run / "run" / "trace.safetensors")
    review = open_review(open_source(run))
    curve = ExampleView(review).of(7)["curve"]
    review.close()
    assert curve[0] is None
    np.testing.assert_allclose(curve[1:], confidence[1:, 7].float(), atol=1e-3)


def test_the_whole_text_comes_from_the_data_if_they_are_the_same(tmp_path: Path) -> None:
    long = "a long text " * 100
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"{long}{i},{'ab'[i % 2]}\n" for i in range(8)))
    data = open_data(tmp_path / "texts.csv")
    pyarrow.parquet.write_table(pa.table({"label": ["a", "b"] * 4, "text": [long[:280]] * 8}), tmp_path / "table.parquet")
    source = open_source(tmp_path / "table.parquet")
    call = call_of(tmp_path / "texts.csv", None, None, {})
    own = replace(source, call=call, data_hash=data.train.fingerprint())
    assert Original(own).text(3) == f"{long}3"
    assert Original(replace(own, data_hash="other")).text(3) is None
    assert Original(replace(own, call=None)).text(3) is None
    assert Original(replace(own, call={**(call or {}), "data": str(tmp_path / "gone.csv")})).text(3) is None
    assert Original(own).picture(3) is None
