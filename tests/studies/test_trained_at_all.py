"""Rows whose networks did not learn: the bar, the caution on the page, and comparisons that do not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mohs.studies.recipe import read_recipe
from mohs.studies.study_page import report, verdicts
from mohs.studies.trained_at_all import bar, of_learned, unlearned

Write = Callable[..., Path]


def made_up(row: str, accuracy: float, test: float, *, classes: int = 10, seeds: int = 3) -> list[dict[str, Any]]:
    numbers = {"accuracy": accuracy, "test_accuracy": test}
    where = {"hardware": "abacus", "date": "2031-01-01", "versions": "mohs 9"}
    return [
        {"row": row, "seed": seed, "classes": classes, **where, **{name: value + seed / 1000 for name, value in numbers.items()}}
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("classes", "least"), [(2, 0.625), (3, 0.5), (10, 0.2), (100, 0.02)])
def test_the_bar_is_twice_chance_or_less_where_classes_are_few(classes: int, least: float) -> None:
    assert bar(classes) == pytest.approx(least)


def test_either_accuracy_will_do() -> None:
    assert unlearned(made_up("x", 0.11, 0.10), "x").startswith("x: training accuracy 11.1 %, test accuracy 10.1 %, under 20.0 %")
    assert unlearned(made_up("x", 0.19, 0.6), "x") == ""  # most labels are wrong, and it has learned the truth
    assert unlearned(made_up("x", 0.9, 0.1), "x") == ""  # it has memorized
    bare = [{"row": "x", "seed": 0, "test_accuracy": 0.01}]
    assert unlearned(bare, "x") == ""
    failed = [{"row": "x", "seed": 0, "error": "the loss became nan"}]
    assert unlearned(failed, "x") == "every run of x failed (the loss became nan): nothing follows from it"
    assert unlearned(failed, "y") == ""
    assert of_learned([*made_up("a", 0.1, 0.1), *failed, *made_up("b", 0.5, 0.5)]) == made_up("b", 0.5, 0.5)


def test_the_page_warns_and_does_not_judge(written: Write) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    results = made_up("CE", 0.14, 0.14) + made_up("GCE", 0.8, 0.8)
    assert verdicts(recipe, results)["GCE"].verdict == "holds"
    assert verdicts(recipe, of_learned(results)) == {}
    page = report(recipe, results)
    assert "## Caution" in page
    assert (
        "- CE: training accuracy 14.1 %, test accuracy 14.1 %, under 20.0 % with 10 classes: this network did not learn" in page
    )
    assert next(line for line in page.splitlines() if line.startswith("| GCE |")).endswith("| CE |  |  | not run |")
    assert "## Caution" not in report(recipe, made_up("CE", 0.6, 0.6) + made_up("GCE", 0.8, 0.8))
