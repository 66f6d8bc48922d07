"""Rows whose networks did not learn: the threshold, the caution on the page, and comparisons that do not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mohs.studies.collect import read_results
from mohs.studies.judge import failed_to_learn, learned_only, learning_threshold
from mohs.studies.recipe import read_recipe
from mohs.studies.study_page import study_page, verdicts, write_study_page

Write = Callable[..., Path]


def made_up(row: str, accuracy: float, test: float, *, classes: int = 10, seeds: int = 3) -> list[dict[str, Any]]:
    numbers = {"accuracy": accuracy, "test_accuracy": test}
    where = {"hardware": "abacus", "date": "2031-01-01", "versions": "mohs 9"}
    return [
        {"row": row, "seed": seed, "classes": classes, **where, **{name: value + seed / 1000 for name, value in numbers.items()}}
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("classes", "least"), [(2, 0.625), (3, 0.5), (10, 0.2), (100, 0.02)])
def test_the_threshold_is_twice_chance_or_less_where_classes_are_few(classes: int, least: float) -> None:
    assert learning_threshold(classes) == pytest.approx(least)


def test_either_accuracy_suffices() -> None:
    assert failed_to_learn(made_up("x", 0.11, 0.10), "x").startswith(
        "x: training accuracy 11.1 %, test accuracy 10.1 %, under 20.0 %"
    )
    assert failed_to_learn(made_up("x", 0.19, 0.6), "x") == ""  # most labels are wrong, and it has learned the truth
    assert failed_to_learn(made_up("x", 0.9, 0.1), "x") == ""  # it has memorized
    bare = [{"row": "x", "seed": 0, "test_accuracy": 0.01}]
    assert failed_to_learn(bare, "x") == ""
    failed = [{"row": "x", "seed": 0, "error": "the loss became nan"}]
    assert failed_to_learn(failed, "x") == "every run of x failed (the loss became nan): nothing follows from it"
    assert failed_to_learn(failed, "y") == ""
    assert learned_only([*made_up("a", 0.1, 0.1), *failed, *made_up("b", 0.5, 0.5)]) == made_up("b", 0.5, 0.5)


def test_the_page_warns_and_does_not_judge(written: Write) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    results = made_up("CE", 0.14, 0.14) + made_up("GCE", 0.8, 0.8)
    assert verdicts(recipe, results)["GCE"].verdict == "holds"
    assert verdicts(recipe, learned_only(results)) == {}
    page = study_page(recipe, results)
    assert "## Caution" in page
    assert (
        "- CE: training accuracy 14.1 %, test accuracy 14.1 %, under 20.0 % with 10 classes: this network did not learn" in page
    )
    assert next(line for line in page.splitlines() if line.startswith("| GCE |")).endswith("| CE |  |  | not run |")
    assert "## Caution" not in study_page(recipe, made_up("CE", 0.6, 0.6) + made_up("GCE", 0.8, 0.8))


def test_one_call_judges_and_writes_a_study(written: Write, tmp_path: Path) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    done = write_study_page(recipe, made_up("CE", 0.6, 0.6) + made_up("GCE", 0.8, 0.8), tmp_path)
    assert (done.study, done.runs, done.failed) == ("toy/table1", 6, 0)
    assert done.verdicts == {"GCE against CE": "holds"}
    assert done.results == tmp_path / "toy/table1.csv"
    assert done.page.read_text() == study_page(recipe, read_results(done.results))
    again = write_study_page(recipe, made_up("GCE", 0.1, 0.1), tmp_path)  # the rows of CE stay
    assert (again.runs, again.verdicts) == (6, {"GCE against CE": "not run"})
