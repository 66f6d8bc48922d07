"""A setting that a row chooses on held-out examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mohs.studies.collect import collect
from mohs.studies.plan import RunIndex, distinct, plan
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import attempts, run_study, train_pooled
from mohs.train.trained import Trained, load_run

Write = Callable[..., Path]
HELD = ("validation = 0.0", "validation = 0.25")
CHOOSING = '\n[[row]]\nlabel = "chosen"\nchoose = {key = "optimizer.lr", values = [1e-9, 0.05]}\n[[measure]]\nname = "recall"\n'
LONGER = (("epochs = 2", "epochs = 6"), ("limit = 12", "limit = 40"))


def test_all_seeds_use_the_value_that_is_best_for_the_first(written: Write, tmp_path: Path) -> None:
    recipe, runs = read_recipe(written(HELD, *LONGER, more=CHOOSING)), tmp_path / "runs"
    planned = plan(recipe)
    assert len(planned) == 2 * 3
    todo = distinct(planned)
    assert [one.depth for one in todo].count(1) == 2
    assert len(todo) == len(planned) + 2  # the trials
    results = [one for one in run_study(recipe, runs=runs, device="cpu") if one["row"] == "chosen"]
    assert [(one["seed"], one["chosen"]) for one in results] == [(0, 0.05), (1, 0.05)]
    for one in results:
        assert load_run(next(runs.glob(f"*-{one['run']}"))).run.optimizer["lr"] == 0.05
        assert "least_recall" in one  # measured, as no other trial is
    assert len(list(runs.glob("*/DONE"))) == len(todo) - 1  # the first seed's run is one of the trials
    assert [one for one in collect(recipe, runs=runs) if one["row"] == "chosen"] == results
    assert len(list(runs.glob("*/measures.json"))) == len(planned)  # of the other trial nothing is measured


def test_trials_are_trained_with_the_other_runs(written: Write, tmp_path: Path) -> None:
    recipe = read_recipe(written(HELD, more=CHOOSING))
    assert train_pooled([recipe], runs=tmp_path, device="cpu") == 2 * 2 + 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[1e-9, 0.05]", "[0.05]"), "at least two numbers"),
        (("[1e-9, 0.05]", '["a", "b"]'), "at least two numbers"),
        (("optimizer.lr", "hed.scale"), r"row 'chosen'.*hed"),
        (("optimizer.lr", "epochs.x"), "epochs has no fields, it is 2"),
        (("values", "valeus"), "choose has key and values"),
        (("optimizer.lr", "optimizer.ls"), "no field 'ls'"),
        (('label = "chosen"', 'label = "chosen"\nrelabel_from = "CE"'), "choose does not go with relabel_from"),
    ],
)
def test_invalid_choices_are_reported_at_once(written: Write, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(read_recipe(written(HELD, more=CHOOSING.replace(*change))))


def test_rows_that_choose_the_same_are_one_run(written: Write, tmp_path: Path) -> None:
    other = CHOOSING[: CHOOSING.index("[[measure]]")].replace('"chosen"', '"also"').replace("[1e-9,", "[1e-9, 1e-8,")
    recipe = read_recipe(written(HELD, ("seeds = 2", "seeds = 1"), *LONGER, more=CHOOSING + other))
    todo = distinct(plan(recipe))
    wave = [one for one in todo if one.depth == 1]
    assert len(wave) == 2
    index = RunIndex(tmp_path, recipe.study.id)
    for trial, made in attempts([one for one in todo if one.depth == 0], index, device="cpu", watch=lambda event: None):
        assert isinstance(made, Trained)
        index.add(trial.key, folder=made.folder)
    first, second = (made for _, made in attempts(wave, index, device="cpu", watch=lambda event: None))
    assert isinstance(first, Trained)
    assert first is second


def test_choosing_needs_a_validation_set(written: Write, tmp_path: Path) -> None:
    recipe = read_recipe(written(("validation = 0.0", "validation = 0.0\ncheck_every = 1"), more=CHOOSING))
    with pytest.raises(ValueError, match="choose, but row 'chosen' has no validation set"):
        run_study(recipe, runs=tmp_path, device="cpu")


def test_a_value_that_diverges_is_not_chosen(written: Write, tmp_path: Path) -> None:
    worse = CHOOSING.replace("1e-9", "1e30")
    recipe = read_recipe(written(HELD, ("seeds = 2", "seeds = 1"), more=worse))
    results = {one["row"]: one for one in run_study(recipe, runs=tmp_path / "a", device="cpu")}
    assert results["chosen"]["chosen"] == 0.05
    recipe = read_recipe(written(HELD, ("seeds = 2", "seeds = 1"), more=worse.replace("0.05", "2e30")))
    results = {one["row"]: one for one in run_study(recipe, runs=tmp_path / "b", device="cpu")}
    assert "diverged with every optimizer.lr" in results["chosen"]["error"]
