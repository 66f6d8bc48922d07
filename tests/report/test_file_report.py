"""The report of an audit whose table does not fit in memory: counts over all parts, and the most suspicious rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mohs.audit.audit_files import AuditedFiles
from mohs.audit.file_result import SHOWN, file_result
from mohs.audit.totals import Totals
from mohs.cli import app
from mohs.hardness import blocks
from mohs.hardness.shards import open_source
from mohs.report.figures import figures
from mohs.workflow import audit_stream

N, D, K = 2000, 8, 4
NAMES = np.array(["ant", "bee", "</script><b>cat", "dog"])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> AuditedFiles:
    """An audit in four parts; a tenth of the labels are moved to the next class, and two rows cannot be judged."""
    home, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    truth = rng.integers(K, size=N)
    features = (2 * rng.normal(size=(K, D))[truth] + rng.normal(size=(N, D))).astype(np.float32)
    features[[5, 1200]] = np.nan
    given = np.where(rng.random(N) < 0.1, (truth + 1) % K, truth)
    table = pa.table({"features": list(features), "label": NAMES[given], "id": [f"row {i}" for i in range(N)]})
    (home / "shards").mkdir()
    pq.write_table(table, home / "shards" / "0.parquet", row_group_size=500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 500)
        return audit_stream(open_source(home / "shards", headless=True), home / "audit")


def test_the_counts_of_the_parts_are_those_of_the_whole_table(done: AuditedFiles) -> None:
    result = file_result(done)
    whole = pa.concat_tables([pq.read_table(file) for file in sorted(done.table.glob("*.parquet"))])
    expected = Totals.of([whole], result.totals.edges)
    for name in ("rows", "verdicts", "pairs", "grades", "margins", "doubts"):
        assert getattr(result.totals, name) == getattr(expected, name)
    assert result.totals.rows == N
    assert result.totals.by_verdict()[None] == 2
    rows = list(zip(*(whole.column(name).to_pylist() for name in ("label", "verdict")), strict=True))
    assert all(result.totals.verdicts[pair] == rows.count(pair) for pair in set(rows))
    assert sum(result.totals.doubts.values()) == sum(result.totals.margins.values()) == N - 2
    assert result.shares == done.shares
    worst = whole.sort_by([("p_mislabeled", "descending")]).column("p_mislabeled")[:SHOWN]
    assert result.table.column("p_mislabeled").to_pylist() == worst.to_pylist()
    pairs = {(row["given"], row["suggested"]): row["examples"] for row in figures(result)[0].rows}
    assert max(pairs, key=lambda pair: pairs[pair])[0] != max(pairs, key=lambda pair: pairs[pair])[1]


def test_the_page_in_a_browser(done: AuditedFiles, browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the report extra")
    said: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(done.report.as_uri())
    for figure in page.query_selector_all("[data-figure]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("figure => figure.dataset.drawn === 'yes'", arg=figure)
    keys = [figure.get_attribute("data-figure") for figure in page.query_selector_all("[data-figure]")]
    assert keys == ["pairs", "classes", "doubts", "grades", "margins"]
    assert len(page.query_selector_all("#suspicious tbody tr")) == SHOWN
    assert "</script><b>cat" in page.inner_text("#suspicious")
    assert f"This audit covers {N:,} examples of {K} classes." in page.inner_text("#summary")
    assert f"mohs review {done.folder}/flagged.parquet" in page.inner_text("#summary")
    assert not page.query_selector_all("#gallery, #map")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    page.close()
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert said == []


def test_the_command_writes_it_again(done: AuditedFiles, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["report", str(done.folder), "--out", str(tmp_path / "again.html")])
    assert shown.exit_code == 0, shown.output
    assert f"{N:,} examples: " in shown.output
    assert (tmp_path / "again.html").read_text() == done.report.read_text()
