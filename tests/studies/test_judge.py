"""Judgments: runs that collapsed, equality, claims of several comparisons, and the interval behind every verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mohs.studies.collect import read_results
from mohs.studies.compare import compared
from mohs.studies.judge import Judgment, all_of, failed_to_learn, judge, judge_equal, learned_only, learning_threshold
from mohs.studies.recipe import read_recipe
from mohs.studies.study_page import study_page, verdicts, write_study_page

Write = Callable[..., Path]


def made_up(row: str, accuracy: float, test: float, *, classes: int = 10, seeds: int = 3) -> list[dict[str, Any]]:
    numbers = {"accuracy": accuracy, "test_accuracy": test}
    where = {"hardware": "abacus", "date": "2031-01-01", "versions": "mohs 9"}
    return [
        {"row": row, "seed": seed, "classes": classes, **where}
        | {name: value + len(row) * seed / 1000 for name, value in numbers.items()}
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("classes", "least"), [(2, 0.625), (3, 0.5), (10, 0.2), (100, 0.02)])
def test_the_threshold_is_twice_chance_or_less_where_classes_are_few(classes: int, least: float) -> None:
    assert learning_threshold(classes) == pytest.approx(least)


def test_either_accuracy_suffices() -> None:
    assert failed_to_learn(made_up("x", 0.11, 0.10), "x").startswith(
        "3 of 3 runs of x collapsed (seed 0: training accuracy 11.0 %, test accuracy 10.0 %, under 20.0 % with 10 classes; seed 1"
    )
    assert failed_to_learn(made_up("x", 0.19, 0.6), "x") == ""  # most labels are wrong, and it has learned the truth
    assert failed_to_learn(made_up("x", 0.9, 0.1), "x") == ""  # it has memorized
    bare = [{"row": "x", "seed": 0, "test_accuracy": 0.01}]
    assert failed_to_learn(bare, "x") == ""
    failed = [{"row": "x", "seed": 0, "error": "the loss became nan"}]
    assert failed_to_learn(failed, "x") == "1 of 1 runs of x collapsed (seed 0: the loss became nan): nothing follows from it"
    assert failed_to_learn(failed, "y") == ""
    assert learned_only([*made_up("a", 0.1, 0.1), *failed, *made_up("b", 0.5, 0.5)]) == made_up("b", 0.5, 0.5)


def test_the_page_warns_and_does_not_judge(written: Write) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    results = made_up("CE", 0.14, 0.14) + made_up("GCE", 0.8, 0.8)
    assert verdicts(recipe, results) == {}
    page = study_page(recipe, results)
    assert "## Collapsed runs" in page
    assert "- 3 of 3 runs of CE collapsed (seed 0: training accuracy 14.0 %, test accuracy 14.0 %, under 20.0 % with 10" in page
    assert next(line for line in page.splitlines() if line.startswith("| GCE |")).endswith("| CE |  |  | not run |")
    assert "## Collapsed runs" not in study_page(recipe, made_up("CE", 0.6, 0.6) + made_up("GCE", 0.8, 0.8))


def test_a_collapsed_run_is_left_out_with_its_partner_everywhere(written: Write) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    spread = [
        one | {"test_accuracy": one["test_accuracy"] + 0.01 * one["seed"] ** 2} for one in made_up("GCE", 0.8, 0.8, seeds=4)
    ]
    results = [*made_up("CE", 0.6, 0.6, seeds=4), *spread]
    for broken in ({"accuracy": 0.1, "test_accuracy": 0.1}, {"error": "the loss became nan"}):
        some = [one | broken if (one["row"], one["seed"]) == ("CE", 3) else one for one in results]
        found = verdicts(recipe, some)["GCE"]
        assert (found.verdict, found.n) == ("holds", 3)
        assert found == verdicts(recipe, [one for one in results if one["seed"] != 3])["GCE"]
        assert "- 1 of 4 runs of CE collapsed (seed 3: " in study_page(recipe, some)
        judged = compared(recipe, some)
        assert judged[1].difference == found.difference


def test_equality_is_judged_by_two_one_sided_tests() -> None:
    def at(*gaps: float) -> Judgment:
        return judge_equal({i: 0.5 + gap for i, gap in enumerate(gaps)}, dict.fromkeys(range(len(gaps)), 0.5), margin=0.005)

    assert at(0.0001, 0.0004, -0.0003).verdict == "holds"
    assert at(-0.0154, -0.0035, -0.0094).verdict == "draw"  # significant, but the interval reaches into the margin
    assert at(-0.0094, -0.0095, -0.0096).verdict == "fails"
    assert at(-0.0094, -0.0095, -0.0096).p_fails == pytest.approx(
        stats.ttest_1samp([-0.0094, -0.0095, -0.0096], -0.005, alternative="less").pvalue
    )
    assert at(0.001, 0.001, 0.001).verdict == "draw"  # identical differences of three runs
    assert at(*[0.001] * 6).verdict == "holds"


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=5))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_all_comparisons_have_to_hold(gaps: list[list[float]]) -> None:
    single = [judge(dict(enumerate(own)), dict.fromkeys(range(3), 0.0)) for own in gaps]
    found = all_of(single)
    assert found.p_holds == max(one.p_holds for one in single)
    assert found.p_fails == min(1.0, len(single) * min(one.p_fails for one in single))
    if found.verdict == "holds":
        assert {one.verdict for one in single} == {"holds"}
    if found.verdict == "fails":
        assert "fails" in {one.verdict for one in single}


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.sampled_from(["higher", "lower"]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_verdict_is_the_interval_against_zero(gaps: list[float], direction: str) -> None:
    found = judge(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0), direction=direction)
    beyond = "draw" if found.low <= 0 <= found.high else "holds" if (found.low > 0) == (direction == "higher") else "fails"
    assert found.verdict == beyond
    turned = judge(dict.fromkeys(range(len(gaps)), 0.0), dict(enumerate(gaps)), direction=direction)
    assert turned.verdict == {"holds": "fails", "fails": "holds", "draw": "draw"}[found.verdict]


def test_one_call_judges_and_writes_a_study(written: Write, tmp_path: Path) -> None:
    recipe = read_recipe(written(("seeds = 2", "seeds = 3")))
    done = write_study_page(recipe, made_up("CE", 0.6, 0.6) + made_up("GCE", 0.8, 0.8), tmp_path)
    assert (done.study, done.runs, done.failed) == ("toy/table1", 6, 0)
    assert done.verdicts == {"GCE against CE": "holds"}
    assert done.results == tmp_path / "toy/table1.csv"
    assert done.page.read_text() == study_page(recipe, read_results(done.results))
    again = write_study_page(recipe, made_up("GCE", 0.1, 0.1), tmp_path)  # the rows of CE stay
    assert (again.runs, again.verdicts) == (6, {"GCE against CE": "not run"})
