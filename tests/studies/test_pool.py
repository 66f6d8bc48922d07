"""Studies together: what they share is trained once, and each then finds its runs done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mohs.studies.plan import distinct, plan
from mohs.studies.pool import train_pooled, waves
from mohs.studies.recipe import narrowed, read_recipe
from mohs.studies.run_study import run_study

Write = Callable[..., Path]


def test_two_studies_share_their_runs(written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_recipe(written(), seeds=1)
    trained = train_pooled([recipe, narrowed(recipe, ["CE"])], runs=tmp_path / "runs", device="cpu")
    assert trained == len(distinct(plan(recipe)))
    monkeypatch.setattr("mohs.train.loop.steps", lambda *given, **options: pytest.fail("trained twice"))
    assert len(run_study(recipe, runs=tmp_path / "runs", device="cpu")) == len(recipe.rows)


def test_waves_are_of_one_kind_and_even(written: Write) -> None:
    planned = plan(read_recipe(written(), seeds=5))  # two rows
    assert [len(wave) for wave in waves(planned, 8)] == [5, 5]
    assert [len(wave) for wave in waves(planned, 4)] == [4, 4, 2]
    assert [len(wave) for wave in waves(planned, 1)] == [1] * 10


def test_a_whole_label_is_meant_where_there_is_one(written: Write) -> None:
    recipe = read_recipe(written())
    assert [row.label for row in narrowed(recipe, ["CE"]).rows] == ["CE"]
    assert [row.label for row in narrowed(recipe, ["C"]).rows] == ["CE", "GCE"]
