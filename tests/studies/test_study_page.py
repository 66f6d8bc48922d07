"""Judgments and pages, from made-up results; and the committed pages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import mohs
from mohs._core.errors import DataError
from mohs.evaluate.statistics import holm, paired
from mohs.studies.collect import read_results
from mohs.studies.judge import judge, judge_all, judge_equal, judge_number
from mohs.studies.recipe import read_recipe
from mohs.studies.study_page import study_page, table, verdicts

Write = Callable[..., Path]
SOURCE = Path(mohs.__file__).parents[2]


def result_of(recipe: Path) -> Path:
    """The committed results of a recipe."""
    return SOURCE / "results" / recipe.parent.name / f"{recipe.stem}.csv"


def made_up(row: str, values: Sequence[float], **more: Any) -> list[dict[str, Any]]:
    where = {"hardware": "1 × abacus", "date": "2031-01-01", "versions": "mohs 9"}
    return [{"row": row, "seed": seed, "test_accuracy": value, **where, **more} for seed, value in enumerate(values)]


def test_a_judgment_is_a_paired_test_over_shared_seeds() -> None:
    better, worse = {0: 0.80, 1: 0.82, 2: 0.81, 7: 0.1}, {2: 0.70, 1: 0.72, 0: 0.69}
    found = judge(better, worse)
    test = paired([0.80, 0.82, 0.81], [0.69, 0.72, 0.70])
    assert (found.verdict, found.n, found.p, found.low) == ("holds", 3, test.p, test.low)
    assert judge(worse, better).verdict == "fails"
    assert judge(better, worse, direction="lower").verdict == "fails"
    assert judge({0: 0.5, 1: 0.7}, {0: 0.6, 1: 0.5}).verdict == "draw"
    one = judge({0: 0.9}, {0: 0.1})
    assert (one.verdict, one.n, math.isnan(one.p)) == ("draw", 1, True)
    with pytest.raises(DataError, match="share no seed"):
        judge({0: 0.9}, {1: 0.1})


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.05, 0.0501), "holds"),
        ((0.03, 0.0301), "fails"),
        ((-0.05, -0.0501), "fails"),
        ((0.03, 0.06), "draw"),
        ((0.05, 0.05), "draw"),
    ],
)
def test_a_margin_requires_a_gain_that_large(gaps: tuple[float, float], verdict: str) -> None:
    ours, less = ({seed: 0.5 + sign * gap for seed, gap in enumerate(gaps)} for sign in (1, -1))
    assert judge(ours, {0: 0.5, 1: 0.5}, margin=0.04).verdict == verdict
    assert judge(less, {0: 0.5, 1: 0.5}, margin=0.04, direction="lower").verdict == verdict
    assert judge({0: ours[0]}, {0: 0.5}, margin=0.04).verdict == "draw"  # one run
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        judge({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.1}, margin=0.0)


def test_several_judgments_are_corrected_for_their_number() -> None:
    pairs = [({0: 1.0, 1: 1.2, 2: 1.1}, {0: 0.9, 1: 1.0, 2: 0.8}), ({0: 1.0, 1: 1.3, 2: 1.1}, {0: 0.5, 1: 0.75, 2: 0.6})]
    single = [judge(*pair) for pair in pairs]
    corrected = judge_all(single)
    assert [one.p for one in corrected] == holm([one.p for one in single])
    assert judge_all([]) == []


def test_the_page_of_a_study(written: Write) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    results = made_up("CE", [0.60, 0.61, 0.62], ece=0.1) + made_up("GCE", [0.80, 0.815, 0.82], ece=0.05)
    page = study_page(recipe, results)
    assert "| CE | 61.00 ± 1.00 (3) | [58.52, 63.48] | 60.9 | +0.10 |  |  |  |  |" in page
    assert "| GCE | 81.17 ± 1.04 (3) |" in page
    assert "| CE | +20.17 [19.45, 20.88] | 6.8e-05 | **holds** |" in page
    assert "- GCE: digits | instead of CIFAR-10" in page
    assert "6 run(s) on 1 × abacus, 2031-01-01; mohs 9." in page
    assert "Numbers are from the last epoch." in page
    assert "| CE | 0.1 ± 0 (3) |" in page
    assert verdicts(recipe, results)["GCE"].verdict == "holds"
    trial = study_page(read_recipe(written(), scale="smoke"), results)
    assert "its numbers mean nothing" in trial


def test_selection_on_test_labels_is_reported(written: Write) -> None:
    page = study_page(read_recipe(written(("seeds = 2", 'seeds = 2\nselect = "best"'))), made_up("CE", [0.6]))
    assert "selected on the test labels, too high" in page
    assert "| GCE | not run |" in page


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert table(["a|b"], [["c\nd"]]) == "| a\\|b |\n|---|\n| c d |"


def test_equality_requires_the_interval_within_the_margin() -> None:
    one = {0: 0.910, 1: 0.912, 2: 0.911}
    assert judge_equal(one, {0: 0.911, 1: 0.911, 2: 0.911}, margin=0.005).verdict == "holds"
    assert judge_equal(one, {0: 0.901, 1: 0.902, 2: 0.9015}, margin=0.005).verdict == "fails"
    assert judge_equal(one, {0: 0.906, 1: 0.908, 2: 0.9071}, margin=0.005).verdict == "holds"  # different, and near enough
    assert judge_equal(one, {0: 0.95, 1: 0.87, 2: 0.91}, margin=0.005).verdict == "draw"
    alone = judge_equal({0: 0.5}, {0: 0.5}, margin=0.1)
    assert (alone.verdict, alone.how) == ("draw", "one run cannot tell a difference from chance")
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        judge_equal(one, one, margin=0.0)


def test_a_bound_holds_if_the_whole_interval_is_beyond_it() -> None:
    values = {0: 0.95, 1: 0.96, 2: 0.94, 3: math.nan}
    assert [judge_number(values, above=bound).verdict for bound in (0.9, 0.95, 0.99)] == ["holds", "draw", "fails"]
    assert [judge_number(values, below=bound).verdict for bound in (0.9, 0.95, 0.99)] == ["fails", "draw", "holds"]
    assert judge_number({0: 0.0, 1: 0.0}, below=0.5).verdict == "draw"  # two equal values: the sign test
    assert judge_number(dict.fromkeys(range(6), 0.0), below=0.5).verdict == "holds"
    assert judge_number({0: 1.0}, above=0.5).verdict == "draw"
    with pytest.raises(ValueError, match="give either above or below"):
        judge_number(values)
    with pytest.raises(DataError, match="the row has no finite value"):
        judge_number({0: math.nan}, above=0.0)


RECIPES = sorted(recipe for recipe in (SOURCE / "recipes").glob("*/*.toml") if result_of(recipe).exists())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pages_in_results_are_up_to_date(path: Path) -> None:
    """Every page is what the recipe and the committed results give; the page says how many seeds were run."""
    page = result_of(path).with_suffix(".md").read_text()
    seeds = int(re.search(r"(\d+) seed\(s\)", page)[1])  # type: ignore[index]
    assert page == study_page(read_recipe(path, seeds=seeds), read_results(result_of(path)))
