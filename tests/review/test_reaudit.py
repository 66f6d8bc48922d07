"""The loop: decisions, an audit of the corrected labels as a subprocess, and what changed by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

pytest.importorskip("duckdb", reason="needs the review extra")
pytest.importorskip("starlette", reason="needs the review extra")

from mohs.audit.pipeline import run_audit
from mohs.data.corrections import on_top, since


def test_an_audit_with_decisions_finds_fewer_errors(serve: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    true = np.arange(240) % 3
    x = np.eye(3)[true] @ rng.normal(size=(3, 128)) + 0.5 * rng.normal(size=(240, 128))
    given = np.where(np.arange(240) % 12 == 0, (true + 1) % 3, true)
    np.savez(tmp_path / "data.npz", x=x.astype(np.float32), y=given)
    run_audit(str(tmp_path / "data.npz"), out=tmp_path / "run", device="cpu")
    server = serve(tmp_path / "run")
    flagged = server.get("/api/view", [("is.verdict", "mislabeled"), ("decided", "no"), ("has", "suggestion")])
    assert flagged["total"] >= 15
    server.post("/api/decide", {"view": flagged["view"], "decision": "accept"})
    easy = server.rows(("is.verdict", "easy"))[0]
    server.post("/api/decide", {"rows": [easy["row"]], "decision": "exclude"})
    assert server.post("/api/reaudit", {})["status"] == "running"
    ends = time.monotonic() + 120
    while (state := server.get("/api/reaudit"))["status"] == "running" and time.monotonic() < ends:
        time.sleep(0.2)
    assert state["status"] == "done", state["lines"]
    changed = state["changed"]
    assert changed["examples"] == 239
    assert changed["flagged_before"] == flagged["total"]
    assert changed["flagged_after"] < flagged["total"] / 2
    assert changed["noise_after"] < changed["noise_before"]
    assert changed["reopened"] == 0
    assert changed["checked"].startswith(f"{flagged['total'] + 1} checked labels: ")
    labels = pyarrow.csv.read_csv(Path(state["folder"]) / "labels.csv").column("label").to_pylist()
    assert sum(label != right for label, right in zip(labels, true, strict=True)) <= 5
    inner = serve(Path(state["folder"]))  # the new audit can be reviewed, and audited again, itself
    assert inner.get("/api/about")["reaudit"]


def test_corrections_add_up() -> None:
    earlier = pa.table(
        {"id": ["0", "1", "2"], "label": ["b", "", "c"], "previous": ["a", "a", "c"], "decision": ["accept", "exclude", ""]}
    )
    new = pa.table({"id": [0, 2], "label": ["b", "a"], "previous": ["b", "c"], "decision": ["", "change"]})
    made = on_top(new, earlier).to_pydict()
    assert made["label"] == ["b", "", "a"]
    assert made["previous"] == ["a", "a", "c"]
    assert made["decision"] == ["accept", "exclude", "change"]
    back = since(on_top(new, earlier), pa.table({"id": [0, 2], "label": ["b", "c"]}))
    assert back.equals(new)
