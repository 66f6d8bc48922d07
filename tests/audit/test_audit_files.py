"""Audits of files that need not fit in memory: the same judgment as in memory, whatever the blocks, and after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mohs._core.errors import DataError, RunError
from mohs.audit import audit_files as module
from mohs.audit.audit_files import audit_files, flag_threshold, load_audited_files, write_flagged
from mohs.audit.file_judge import BINS, fit_judge, load_judge, save_judge
from mohs.cli import app
from mohs.hardness import blocks
from mohs.hardness.judgment import choose_flags, judge_labels
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.shards import open_source
from mohs.hardness.table import classes_of, column, read_table
from mohs.hardness.verdict import Places
from mohs.train.fold_heads import fold_scores

N, D, K = 2400, 12, 5
NAMES = ["ant", "bee", "cat", "dog", "eel"]
rng = np.random.default_rng(0)
TRUTH = rng.integers(K, size=N)
FEATURES = (rng.normal(size=(K, D))[TRUTH] * 1.2 + rng.normal(size=(N, D))).astype(np.float32)
WRONG = rng.random(N) < 0.1
GIVEN = np.where(WRONG, (TRUTH + rng.integers(1, K, size=N)) % K, TRUTH)


def shards(folder: Path, *, rows: int = N, group: int = 200, features: np.ndarray = FEATURES) -> Path:
    folder.mkdir()
    for number, start in enumerate(range(0, rows, 900)):
        own = slice(start, min(rows, start + 900))
        columns = {
            "embedding": list(features[own]),
            "label": [NAMES[i] for i in GIVEN[own]],
            "id": [f"e{i}" for i in range(rows)[own]],
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=group)
    return folder


def table_of(done: Any) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(done.table.glob("*.parquet"))])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An audit whose sample is all rows."""
    home = tmp_path_factory.mktemp("whole")
    return audit_files(open_source(shards(home / "s"), headless=True), home / "out")


def test_with_all_rows_in_the_sample_the_judgment_is_that_in_memory(whole: Any) -> None:
    made = fold_scores(FEATURES, torch.from_numpy(GIVEN), num_classes=K, linear=True)
    expected = judge_labels(made.scores, GIVEN, ambiguity=made.ambiguity)
    table = table_of(whole)
    apart = np.abs(column(table, "p_mislabeled") - expected.p_mislabeled)
    assert apart.max() < 0.01  # one head in float32 instead of three
    assert np.median(apart) < 1e-5
    assert column(table, "id").tolist() == [f"e{i}" for i in range(N)]
    assert classes_of(table) == NAMES
    flagged = column(table, "verdict") == "mislabeled"
    assert (flagged != expected.flagged).sum() <= 2  # a row at the edge of a bin
    assert WRONG[flagged].mean() > 0.8
    assert (WRONG & flagged).sum() > 0.6 * WRONG.sum()
    both = flagged & expected.flagged
    suggested = np.array([NAMES.index(name) for name in table.column("suggested_label").to_pylist()])
    assert (suggested[both] == expected.suggested[both]).mean() > 0.98
    assert (suggested[~flagged] == GIVEN[~flagged]).all()
    estimate = estimate_from(expected, GIVEN, NAMES)
    assert whole.estimate.rate == pytest.approx(estimate.rate, abs=1e-3)
    assert whole.estimate.low == pytest.approx(estimate.low, abs=1e-3)
    np.testing.assert_allclose(whole.estimate.counts, estimate.counts, atol=0.5)


def test_the_table_has_the_columns_of_an_audit_and_places_are_those_of_all_rows(whole: Any) -> None:
    table = table_of(whole)
    scored = {"margin", "loss", "avh", "norm", "norm_in_class", "neighbors", "map_x", "map_y", "mohs", "why", "p_easy"}
    assert scored <= set(table.column_names)
    hard = column(table, "p_hard") / (1 - column(table, "p_mislabeled")).clip(1e-12)
    place = Places.of(table)(table)
    assert np.corrcoef(place, hard)[0, 1] > 0.7
    grades = np.bincount(column(table, "mohs"), minlength=11)[1:]
    assert (np.abs(grades - N / 10) <= 0.02 * N).all()
    assert dict(whole.counts) == {name: table.column("verdict").to_pylist().count(name) for name in whole.counts}
    assert not (whole.folder / "parts").exists()
    shown = read_table(whole.flagged)
    assert len(shown) == whole.counts["mislabeled"]
    assert set(shown.column("verdict").to_pylist()) == {"mislabeled"}
    assert (np.diff(column(shown, "p_mislabeled")) <= 0).all()
    again = load_audited_files(whole.folder)
    assert again.shares == whole.shares
    assert again.estimate.summary == whole.estimate.summary


def test_a_sample_judges_rows_it_does_not_hold_and_the_blocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(shards(tmp_path / "s"), headless=True)
    few = audit_files(source, tmp_path / "few", sample=800)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 500)
    many = audit_files(source, tmp_path / "many", sample=800)
    assert len(list(few.table.glob("*.parquet"))) == 1
    assert len(list(many.table.glob("*.parquet"))) == 6
    a, b = table_of(few), table_of(many)
    np.testing.assert_allclose(column(a, "p_mislabeled"), column(b, "p_mislabeled"), atol=1e-5)
    assert a.column("id").to_pylist() == b.column("id").to_pylist()
    flagged = column(a, "verdict") == "mislabeled"
    assert WRONG[flagged].mean() > 0.75
    assert (WRONG & flagged).sum() > 0.5 * WRONG.sum()
    assert any("800 of 2,400 rows" in note for note in few.facts["approximate"])


def test_no_label_has_a_part_in_its_own_judgment(tmp_path: Path) -> None:
    """The head of a row's fold is unchanged by another label of that row, in the sample or not."""
    judge = fit_judge(open_source(shards(tmp_path / "s"), headless=True), NAMES, sample=800)
    assert judge.head is not None
    rows = torch.arange(N)
    scores = judge.head.scores(torch.from_numpy(FEATURES), rows)
    at = torch.searchsorted(judge.head.rows, rows).clamp(max=799)
    inside = judge.head.rows[at] == rows
    assert int(inside.sum()) == 800
    for row in (int(judge.head.rows[5]), int(rows[~inside][7])):
        f = int(judge.head.fold[at[row]]) if inside[row] else row % 5
        x = judge.head.units.axes(torch.from_numpy(FEATURES[row : row + 1]))
        own = x @ judge.head.weight[f] + judge.head.units.kernel(x) @ judge.head.kernel_weight[f] + judge.head.bias[f]
        torch.testing.assert_close(own[0], scores[row])


def test_a_judge_that_was_kept_is_the_same(tmp_path: Path) -> None:
    source = open_source(shards(tmp_path / "s"), headless=True)
    judge = fit_judge(source, NAMES, sample=600)
    save_judge(judge, tmp_path / "judge.safetensors")
    batch, index = {"features": FEATURES[:300]}, torch.from_numpy(GIVEN[:300])
    for one, other in zip(judge(batch, index, 0), load_judge(tmp_path / "judge.safetensors")(batch, index, 0), strict=True):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(other[name]))


@pytest.mark.parametrize("probabilities", [False, True])
def test_logits_in_npy_files_are_judged_as_they_are(tmp_path: Path, probabilities: bool) -> None:
    logits = fold_scores(FEATURES, torch.from_numpy(GIVEN), num_classes=K, linear=True).scores[0]
    shown = torch.from_numpy(logits).softmax(1).numpy() if probabilities else logits
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s" / "logits.npy", shown)
    np.save(tmp_path / "s" / "labels.npy", GIVEN)
    done = audit_files(open_source(tmp_path / "s", headless=True), tmp_path / "out")
    expected = judge_labels(shown, GIVEN)
    table = table_of(done)
    np.testing.assert_allclose(column(table, "p_mislabeled"), expected.p_mislabeled, atol=1e-5)
    assert "neighbors" not in table.column_names


def test_rows_that_cannot_be_judged_have_no_verdict(tmp_path: Path) -> None:
    broken = FEATURES.copy()
    broken[[3, 1700]] = np.nan
    done = audit_files(open_source(shards(tmp_path / "s", features=broken), headless=True), tmp_path / "out")
    table = table_of(done)
    assert done.unjudged == 2
    assert done.shares["not_judged"] == 2 / done.rows
    assert [i for i, verdict in enumerate(table.column("verdict").to_pylist()) if verdict is None] == [3, 1700]
    assert np.isnan(column(table, "margin")[[3, 1700]]).all()


def test_flags_by_a_histogram_are_those_of_all_rows() -> None:
    for seed in range(20):
        p = np.random.default_rng(seed).beta(0.2, 1.5, size=3000)
        bins = np.minimum((p * BINS).astype(int), BINS - 1)
        threshold = flag_threshold(np.bincount(bins, minlength=BINS), np.bincount(bins, p, minlength=BINS), 0.8)
        exact, found = choose_flags(p, 0.8), p >= threshold
        assert found.sum() <= exact.sum()
        assert exact.sum() - found.sum() <= (np.abs(p - threshold) < 2 / BINS).sum()
        assert p[found].mean() >= 0.8
    assert flag_threshold(np.zeros(BINS, int), np.zeros(BINS), 0.8) == 1.0


def test_only_so_many_rows_are_shown(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN", 50)
    rows = table_of(whole)
    (tmp_path / "hardness").mkdir()
    for number in range(4):
        pq.write_table(rows[600 * number : 600 * number + 600], tmp_path / "hardness" / f"{number}.parquet")
    write_flagged(tmp_path, whole.threshold)
    shown = read_table(tmp_path / "flagged.parquet")
    assert column(shown, "p_mislabeled").tolist() == sorted(column(rows, "p_mislabeled"), reverse=True)[:50]


KILLED = """
import os
from mohs.hardness import blocks
from mohs.hardness.shards import open_source
from mohs.audit.audit_files import audit_files, VerdictWork
blocks.BLOCK_ROWS = 500
plain, calls = VerdictWork.__call__ if where == "verdict" else blocks.BlockWork.__call__, []
def dying(self, item):
    calls.append(item)
    if len(calls) > 3:
        os.kill(os.getpid(), 9)
    return plain(self, item)
setattr(VerdictWork if where == "verdict" else blocks.BlockWork, "__call__", dying)
audit_files(open_source(folder, headless=True), out, sample=800)
"""


@pytest.mark.parametrize("where", ["score", "verdict"])
def test_a_killed_audit_goes_on_and_gives_the_same_table(
    run_forked: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = shards(tmp_path / "s")
    assert run_forked(KILLED, folder=folder, out=tmp_path / "out", where=where) == -9
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 500)
    kept = sorted((tmp_path / "out" / ("parts" if where == "score" else "hardness")).glob("*.parquet"))
    dates = {file: file.stat().st_mtime_ns for file in kept}
    assert len(dates) == 3
    measured: list[int] = []
    plain = blocks.BlockWork.columns
    monkeypatch.setattr(blocks.BlockWork, "columns", lambda self, unit: measured.append(unit.rows) or plain(self, unit))
    source = open_source(folder, headless=True)
    done = audit_files(source, tmp_path / "out", sample=800)
    assert sum(measured) == (N - sum(pq.read_metadata(file).num_rows for file in done.table.glob("0000[012].parquet"))) * (
        where == "score"
    )
    straight = audit_files(source, tmp_path / "straight", sample=800)
    assert table_of(done).equals(table_of(straight))
    assert done.shares == straight.shares
    if where == "verdict":
        assert {file: file.stat().st_mtime_ns for file in dates} == dates


def test_other_settings_and_one_class_are_refused(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", rows=300)
    source = open_source(folder, headless=True)
    audit_files(source, tmp_path / "out")
    with pytest.raises(RunError, match="holds another audit"):
        audit_files(source, tmp_path / "out", precision=0.9)
    np.save(tmp_path / "s" / "labels.npy", np.zeros(300, int))
    np.save(tmp_path / "s" / "features.npy", FEATURES[:300])
    with pytest.raises(DataError, match="all labels are 0: at least 2 classes"):
        audit_files(open_source(tmp_path / "s", headless=True), tmp_path / "one")


def test_the_command(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", rows=900)
    words = ["audit", str(folder), "--stream", "--out", str(tmp_path / "out"), "--device", "cpu"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "900 examples: " in shown.output
    assert "neighbors" not in shown.output.split("note")[0]
    assert (tmp_path / "out" / "hardness" / "00000.parquet").exists()
    again = CliRunner().invoke(app, [*words, "--json", "--quiet", "--gate", "noise<0.001"])
    assert again.exit_code == 1
    assert json.loads(again.output.splitlines()[-1])["gates_broken"] == ["noise<0.001"]
    refused = CliRunner().invoke(app, [*words, "--embed", "none"])
    assert "leave --embed out" in str(refused.exception)
