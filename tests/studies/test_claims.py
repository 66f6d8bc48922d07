"""The register of claims: verdicts from results, what cannot be traced, and the page that the repository holds."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import pytest
from scipy import stats

from mohs._core.errors import DataError
from mohs.studies.claim_verdict import Claim, Verdict
from mohs.studies.claims import LATE, REGISTER, judge_register, problems, read_register, verdict_of
from mohs.studies.claims_page import PAGE, claims_page, write_claims_page
from mohs.studies.guide import GUIDE_PAGE, Advice, Shown, guide_page, read_guide

ROOT = Path(__file__).parents[2]
ENTRY = """
[[claim]]
id = "toy/1"
where = "Table 1"
what = "A is better than B."
paper = "A 83.3; B 60.9"
counterpart = "digits"
"""
RECIPE = """
[study]
id = "toy/1"
paper = "toy"
what = "A against B"
seeds = 3

[base]
data = "digits"

[[row]]
label = "A"

[[row]]
label = "B"
"""
COMPUTED = """recipe = "recipes/toy/1.toml"
results = "results/toy/1.csv"
better = "A"
worse = "B"
"""


def repository(root: Path, text: str, *, results: str | None = None) -> list[Claim]:
    for folder in ("register", "recipes/toy", "results/toy", "tests"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "register" / "toy.toml").write_text(text)
    (root / "recipes/toy/1.toml").write_text(RECIPE)
    (root / "tests/test_toy.py").write_text("def test_one() -> None: ...\n")
    if results is not None:
        (root / "results/toy/1.csv").write_text(results)
    return read_register(root / "register")


CSV = "row,seed,test_accuracy,hardware,date\n" + "".join(
    f"{row},{seed},{value},abacus,2031-01-0{seed + 1}\n"
    for row, values in {"A": (0.8, 0.82, 0.81), "B": (0.6, 0.62, 0.61001)}.items()
    for seed, value in enumerate(values)
)


def test_a_verdict_is_computed_from_the_committed_rows(tmp_path: Path) -> None:
    (claim,) = repository(tmp_path, ENTRY + COMPUTED, results=CSV)
    found = verdict_of(claim, tmp_path)
    assert (found.verdict, found.n, found.hardware, found.date) == ("holds", 3, "abacus", "2031-01-03")
    assert (found.planned, found.code, found.caveats) == (3, ["unknown"], [])
    assert "A 0.81, B 0.61 (test_accuracy): +0.2, p < 0.0001;" in found.evidence
    (turned,) = repository(tmp_path, ENTRY + COMPUTED + 'direction = "lower"\nmargin = 0.1\n')
    assert verdict_of(turned, tmp_path).verdict == "fails"
    assert problems([claim, turned], tmp_path) == []


SECOND = """
[[second]]
of = "toy/1"
id = "toy/1-small"
where = "on less"
counterpart = "digits, fewer"
recipe = "recipes/toy/1-small.toml"
results = "results/toy/1-small.csv"
"""


def test_a_second_counterpart_compares_the_same_rows_elsewhere(tmp_path: Path) -> None:
    other = ENTRY.replace("toy/1", "toy/1/b") + COMPUTED + 'reason = "so it is"\nheadline = true\n'
    after = ENTRY.replace("toy/1", "toy/2")
    first, b, small, small_b, last = repository(tmp_path, ENTRY + COMPUTED + other + after + SECOND)
    assert [one.id for one in (first, b, small, small_b, last)] == ["toy/1", "toy/1/b", "toy/1-small", "toy/1-small/b", "toy/2"]
    assert (small.again, small_b.again) == ("toy/1", "toy/1/b")
    assert (small.where, small.counterpart, small.results) == ("Table 1, on less", "digits, fewer", "results/toy/1-small.csv")
    assert (small_b.better, small_b.worse, small_b.reason, small_b.headline) == (("A",), ("B",), "", False)
    some = repository(tmp_path, ENTRY + other + SECOND + 'claims = ["b"]\n')
    assert [one.id for one in some] == ["toy/1", "toy/1/b", "toy/1-small/b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('of = "toy/1"', 'of = "toy/3"'), "no claim has the id toy/3"),
        (('where = "on less"', 'wehre = "on less"'), "unknown key 'wehre'"),
        (('where = "on less"\n', ""), "needs where"),
        (('where = "on less"', 'where = ""\nclaims = ["c"]'), "toy/1 has no claim 'c'"),
    ],
)
def test_a_second_counterpart_of_nothing_is_an_error(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        repository(tmp_path, ENTRY + COMPUTED + SECOND.replace(*change))


def test_rows_not_yet_run_give_no_verdict(tmp_path: Path) -> None:
    (claim,) = repository(tmp_path, ENTRY + COMPUTED.replace('"B"', '"C"'), results=CSV)
    assert verdict_of(claim, tmp_path) == Verdict("not run", "row C of its study has not been run yet")
    assert problems([claim], tmp_path) == []


def test_a_second_counterpart_counts_where_the_first_was_not_run(tmp_path: Path) -> None:
    first = ENTRY.replace("toy/1", "toy/0") + "headline = true\n"
    second = ENTRY.replace("Table 1", "Table 1, on digits") + COMPUTED + 'again = "toy/0"\n'
    repository(tmp_path, first + second, results=CSV)
    page = write_claims_page(tmp_path, register=tmp_path / "register").read_text()
    assert "1 claims of 1 papers; 1 were tested here, 1 of them in a second experiment" in page
    assert "| toy | 1 | 1 | 0 | 0 | 0 | 1 | 0 |" in page
    assert "- A is better than B. (toy, Table 1, on digits, n = 3.) *Run here:* digits" in page
    assert "The summary covers 1 main claims; 0 of them have not been run yet." in page


def test_the_mean_of_several_rows_can_be_compared(tmp_path: Path) -> None:
    table = "row,seed,test_accuracy,source_accuracy\n" + "".join(
        f"{row},{seed},{value},0.5\n"
        for row, values in {"A1": (0.9, 0.92), "A2": (0.5, 0.52), "B1": (0.7, 0.71), "B2": (0.6, 0.63)}.items()
        for seed, value in enumerate(values)
    )
    rows = COMPUTED.replace('"A"', '["A1", "A2"]').replace('"B"', '["B1", "B2"]') + "together = true\n"
    (claim,) = repository(tmp_path, ENTRY + rows, results=table)
    found = verdict_of(claim, tmp_path)
    assert "mean of A1, A2 0.71, of B1, B2 0.66 (test_accuracy): +0.05" in found.evidence
    assert (found.verdict, found.n) == ("draw", 2)  # 0.05 in both seeds: the sign test of two runs shows nothing
    other = COMPUTED.replace('"A"', '["A1", "A2"]').replace('worse = "B"', 'other_metric = "source_accuracy"')
    (claim,) = repository(tmp_path, ENTRY + other + "together = true\n", results=table)
    assert "mean of 2 rows: test_accuracy 0.71, source_accuracy 0.5: +0.21" in verdict_of(claim, tmp_path).evidence
    with pytest.raises(DataError, match="equally many others"):
        repository(tmp_path, ENTRY + rows.replace('["B1", "B2"]', '"B1"'))


def test_hostile_text_is_shown_and_not_executed(tmp_path: Path) -> None:
    (late,) = repository(tmp_path, ENTRY + COMPUTED)
    assert (verdict_of(late, tmp_path).verdict, verdict_of(late, tmp_path).evidence) == (
        "not run",
        LATE,
    )
    (shown,) = repository(tmp_path, ENTRY + 'test = "tests/test_toy.py::test_one"')
    assert verdict_of(shown, tmp_path) == Verdict("holds", "proven by a test")
    (refuted,) = repository(tmp_path, ENTRY + 'refuted_by = "tests/test_toy.py::test_one"\nreason = "so it is not"')
    assert verdict_of(refuted, tmp_path) == Verdict("fails", "so it is not")
    assert problems([late, shown, refuted], tmp_path) == []
    failed = "row,seed,test_accuracy,error\nA,0,,the loss became nan\nB,0,0.5,\n"
    (broken,) = repository(tmp_path, ENTRY + COMPUTED, results=failed)
    assert verdict_of(broken, tmp_path).verdict == "not run"
    assert "1 of 1 runs of A collapsed (seed 0: the loss became nan)" in verdict_of(broken, tmp_path).evidence


OTHERS = "row,seed,classes,accuracy,test_accuracy,other,flat\n" + "".join(
    f"{row},{seed},{classes},{value},{value},{value + 0.1 + seed / 1000},1\n"
    for row, values, classes in (
        ("A", (0.80, 0.81, 0.82), 10),
        ("B", (0.801, 0.810, 0.8205), 10),
        ("C", (0.6, 0.612, 0.62), 10),
        ("lost", (0.1, 0.12, 0.11), 10),
    )
    for seed, value in enumerate(values)
)


@pytest.mark.parametrize(
    ("more", "verdict", "evidence"),
    [
        ('worse = "B"\nrelation = "equal"\nmargin = 0.005', "holds", "against ± 0.005"),
        ('worse = "C"\nrelation = "equal"\nmargin = 0.005', "fails", "A 0.81, C 0.6107 (test_accuracy)"),
        ('worse = "B"\nrelation = "equal"\nmargin = 0.0005', "draw", "two one-sided tests: 95 % interval"),
        ("above = 0.7", "holds", "A 0.81 (test_accuracy)"),
        ("above = 0.9", "fails", "t-test against 0.9"),
        ("above = 0.81", "draw", "t-test against 0.81"),
        ("below = 0.9", "holds", "t-test against 0.9"),
        ('metric = "flat"\nabove = 0.9', "draw", "A 1 (flat); all runs differ by the same number: exact sign test"),
        ('metric = "other"\nother_metric = "test_accuracy"', "holds", "A: other 0.911, test_accuracy 0.81: +0.101"),
        ('other_metric = ["other"]\ndirection = "lower"', "holds", "A: test_accuracy"),
        ('other_metric = ["other", "flat"]', "fails", "flat 1"),
        ('worse = "C"\nrelation = "ratio"\nabove = 1.2', "holds", "A ÷ C 1.326 (test_accuracy)"),
        ('worse = "C"\nrelation = "ratio"\nbelow = 1.2', "fails", "t-test against 1.2"),
        ('better = ["A", "B", "C"]\nrelation = "range"\nabove = 0.1', "holds", "range of 3 rows 0.1998 (test_accuracy)"),
        ('better = ["A", "B", "C"]\nrelation = "range"\nabove = 0.3', "fails", "t-test against 0.3"),
        ('better = ["A", "C", "lost"]\nrelation = "range"\nabove = 0.5', "holds", "range of 3 rows 0.7"),
        (
            'better = ["A", "B", "C"]\nother_metric = "other"\nrelation = "ranks"\nabove = 0.5',
            "draw",  # the ranks agree with every seed: an exact test of three seeds
            "ρ of test_accuracy and other over 3 rows 1;",
        ),
        (
            'worse = "lost"',
            "not run",
            "3 of 3 runs of lost collapsed (seed 0: training accuracy 10.0 %, test accuracy 10.0 %, under",
        ),
    ],
)
def test_other_relations(tmp_path: Path, more: str, verdict: str, evidence: str) -> None:
    head = ENTRY + 'recipe = "recipes/toy/1.toml"\nresults = "results/toy/1.csv"\n'
    row = "" if "better" in more else 'better = "A"\n'
    (claim,) = repository(tmp_path, head + row + more, results=OTHERS)
    found = verdict_of(claim, tmp_path)
    assert (found.verdict, evidence in found.evidence) == (verdict, True), found.evidence
    assert problems([claim], tmp_path) == []


def test_a_claim_over_several_rows_holds_where_all_do(tmp_path: Path) -> None:
    head = ENTRY + 'recipe = "recipes/toy/1.toml"\nresults = "results/toy/1.csv"\nworse = "C"\n'
    (both,) = repository(tmp_path, head + 'better = ["A", "B"]', results=OTHERS)
    found = verdict_of(both, tmp_path)
    assert (found.verdict, found.n) == ("holds", 3)
    assert "A 0.81, C 0.6107" in found.evidence
    assert "B 0.8105, C 0.6107" in found.evidence
    (mixed,) = repository(tmp_path, head + 'better = ["A", "C"]')
    assert verdict_of(mixed, tmp_path).verdict == "draw"


def table_of(rows: dict[str, dict[str, tuple[float, ...]]], **more: str) -> str:
    """Results as CSV: by row and column, the values by seed."""
    names = list(dict.fromkeys(name for columns in rows.values() for name in columns))
    lines = [",".join(["row", "seed", *names, *more])]
    for row, columns in rows.items():
        for seed in range(len(next(iter(columns.values())))):
            lines.append(",".join([row, str(seed), *(str(columns[name][seed]) for name in names), *more.values()]))
    return "\n".join(lines) + "\n"


def test_a_claim_to_be_best_of_all_needs_all_rows_and_fails_by_one(tmp_path: Path) -> None:
    high, low, top = (0.80, 0.81, 0.82), (0.7, 0.72, 0.71), (0.85, 0.87, 0.875)
    claim = ENTRY + COMPUTED.replace('"B"', '["B", "C", "D"]')
    (best,) = repository(tmp_path, claim, results=table_of({"A": {"test_accuracy": high}, "B": {"test_accuracy": low}}))
    found = verdict_of(best, tmp_path)
    assert (found.verdict, found.evidence) == ("not run", "rows C and D of its study have not been run yet")
    table = table_of({row: {"test_accuracy": own} for row, own in {"A": high, "B": low, "C": top}.items()})
    (best,) = repository(tmp_path, claim, results=table)
    found = verdict_of(best, tmp_path)
    assert (found.verdict, found.caveats) == ("fails", ["row D of its study has not been run yet"])
    single = next(judged for text, judged in found.comparisons if "C" in text)
    assert found.p == pytest.approx(3 * single.p)  # any of three could have failed
    order = ENTRY + COMPUTED.replace('"A"', '["C", "A"]').replace('"B"', '["A", "B"]')
    (each,) = repository(tmp_path, order, results=table)
    (one_by_one,) = repository(tmp_path, order + "matched = true\n", results=table)
    assert [len(verdict_of(claim, tmp_path).comparisons) for claim in (each, one_by_one)] == [4, 2]
    assert verdict_of(one_by_one, tmp_path).verdict == "holds"
    assert verdict_of(one_by_one, tmp_path).p == max(judged.p for _, judged in verdict_of(one_by_one, tmp_path).comparisons)


def test_what_limits_a_verdict_goes_with_it(tmp_path: Path) -> None:
    rows = {
        "A": {
            "linf_robust_pgd": (0.5, 0.52, 0.51, 0.5),
            "linf_masking_suspected": (1, 1, 0, 0),
            "accuracy": (0.9, 0.9, 0.9, 0.1),
        },
        "B": {
            "linf_robust_pgd": (0.1, 0.13, 0.11, 0.5),
            "linf_masking_suspected": (1, 1, 1, 1),
            "accuracy": (0.9, 0.9, 0.9, 0.9),
        },
    }
    for name, values in (("lost_classes", (0, 2, 3, 0)), ("classes", (10, 10, 10, 10))):
        rows = {
            row: columns | {name: values if row == "A" or name == "classes" else (0, 0, 0, 0)} for row, columns in rows.items()
        }
    more = 'metric = "linf_robust_pgd"\nrerun = "it was another network"\nheadline = true\n'
    (claim,) = repository(tmp_path, ENTRY + COMPUTED + more, results=table_of(rows, git="0123456789ab+"))
    found = verdict_of(claim, tmp_path)
    assert (found.verdict, found.n, found.code) == ("holds", 3, ["0123456789ab+"])
    assert found.caveats == [
        "to be rerun: it was another network",
        "1 of 4 runs of A collapsed (seed 3: training accuracy 10.0 %, under 20.0 % with 10 classes)",
        "2 of 4 runs of A lost 2 to 3 of 10 classes",
        "gradient masking suspected in 2 of 4 runs of A",
    ]
    page = write_claims_page(tmp_path, register=tmp_path / "register").read_text()
    assert "| **holds**; to be rerun: it was another network; 1 of 4 runs of A collapsed" in page
    assert "*Gradient masking suspected in 2 of 4 runs of A.*" in page
    assert "code not traceable (0123456789ab+)" in page


def test_results_older_than_the_choice_of_their_recipe_are_marked(tmp_path: Path) -> None:
    (claim,) = repository(tmp_path, ENTRY + COMPUTED, results=CSV)
    chooses = RECIPE.replace('data = "digits"', 'data = "digits"\nchoose = {key = "optimizer.lr", values = [0.1, 0.3]}')
    (tmp_path / "recipes/toy/chooses.toml").write_text(chooses)
    claim = dataclasses.replace(claim, recipe="recipes/toy/chooses.toml")
    (caveat,) = verdict_of(claim, tmp_path).caveats
    assert caveat == ("to be rerun: each row of the recipe now selects its optimizer.lr on held-out examples")
    (tmp_path / "results/toy/1.csv").write_text(
        CSV.replace(",date", ",date,chosen")
        .replace("2031-01-0", "2031-01-0")
        .replace("\n", ",0.1\n")
        .replace("chosen,0.1", "chosen")
    )
    assert list(verdict_of(claim, tmp_path).caveats) == []


def test_intervals_over_examples_judge_each_run(tmp_path: Path) -> None:
    numbers = {"rho": (0.30, 0.32), "rho_low": (0.28, 0.30), "rho_high": (0.32, 0.34), "other": (0.35, 0.33)}
    numbers |= {"other_low": (0.33, 0.31), "other_high": (0.37, 0.35)}
    head = (
        ENTRY
        + 'recipe = "recipes/toy/1.toml"\nresults = "results/toy/1.csv"\nbetter = "A"\nmetric = "rho"\ninterval = "examples"\n'
    )
    expected = {
        "above = 0.0": "holds",
        "above = 0.305": "draw",
        "below = 0.2": "fails",
        'relation = "equal"\nmargin = 0.05': "fails",
        'relation = "equal"\nmargin = 0.5': "holds",
        'other_metric = "other"': "fails",  # −0.05 ± 0.028 and −0.01 ± 0.028
        'other_metric = "other"\ndirection = "lower"': "draw",
    }
    for more, verdict in expected.items():
        (claim,) = repository(tmp_path, head + more, results=table_of({"A": numbers}))
        found = verdict_of(claim, tmp_path)
        assert (found.verdict, found.n) == (verdict, 2), (more, found.evidence)
    error = math.hypot(0.02, 0.02) / 1.959964
    assert found.comparisons[0][1].p_holds == pytest.approx(stats.norm.cdf(-0.05 / error), rel=1e-5)


def test_pooled_runs_are_one_sample(tmp_path: Path) -> None:
    rows = {row: {"trend": (1.0, 1.0, 1.0)} for row in ("A", "B")}
    more = 'results = "results/toy/1.csv"\nrecipe = "recipes/toy/1.toml"\nbetter = ["A", "B"]\nmetric = "trend"\nabove = 0.9\n'
    (single,) = repository(tmp_path, ENTRY + more, results=table_of(rows))
    (pooled,) = repository(tmp_path, ENTRY + more + "pooled = true\n")
    assert [verdict_of(claim, tmp_path).verdict for claim in (single, pooled)] == ["draw", "holds"]
    assert (verdict_of(pooled, tmp_path).n, verdict_of(pooled, tmp_path).p) == (6, pytest.approx(2**-5))


def test_the_false_discovery_rate_is_controlled_over_the_register(tmp_path: Path) -> None:
    entries = [ENTRY.replace("toy/1", f"toy/{i}") + COMPUTED.replace('"A"', f'"{row}"') for i, row in enumerate("ACDE")]
    gaps = {"A": (0.2, 0.21, 0.205), "C": (0.01, 0.02, 0.018), "D": (0.01, -0.01, 0.001), "E": (0.02, -0.01, -0.001)}
    rows = {row: {"test_accuracy": tuple(0.5 + gap for gap in own)} for row, own in gaps.items()} | {
        "B": {"test_accuracy": (0.5,) * 3}
    }
    judged = judge_register(repository(tmp_path, "".join(entries), results=table_of(rows)), tmp_path)
    assert [one.q for one in judged] == pytest.approx(stats.false_discovery_control([one.found.p for one in judged]))
    assert [one.verdict for one in judged] == ["holds", "holds", "draw", "draw"]
    assert [one.controlled for one in judged] == ["holds", "draw", "draw", "draw"]
    page = write_claims_page(tmp_path, register=tmp_path / "register").read_text()
    assert "| toy | 4 | 2 | 0 | 2 | 0 | 1 | 0 |" in page
    assert "**holds**; not with the false discovery rate controlled (q = 0.0" in page


def test_a_benchmark_is_judged_over_its_measurements(tmp_path: Path) -> None:
    machine = {"cpu": "abacus", "date": "2031-01-01", "commit": "0123456"}
    rows = [{"name": name, "against": "x", "ms": ms} for ms in (1.0, 1.1, 1.2) for name in ("A",)]
    more = 'recipe = "recipes/toy/1.toml"\nresults = "results/toy/1.json"\nbetter = "A"\nmetric = "ms"\nbelow = 2.0\n'
    (claim,) = repository(tmp_path, ENTRY + more)
    (tmp_path / "results/toy/1.json").write_text(json.dumps({"machine": machine, "rows": rows}))
    found = verdict_of(claim, tmp_path)
    assert (found.verdict, found.n, found.hardware, found.code) == ("holds", 3, "abacus", ["0123456"])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('recipe = "recipes/none.toml"', "toy/1: recipe = recipes/none.toml: no such file"),
        ('results = "results/none.csv"', "toy/1: results = results/none.csv: no such file"),
        ('test = "tests/test_toy.py::test_two"', "toy/1: test = tests/test_toy.py::test_two: no such test"),
        ('refuted_by = "tests/test_toy.py::test_two"', "toy/1: refuted_by = tests/test_toy.py::test_two: no such test"),
        (COMPUTED.replace('recipe = "recipes/toy/1.toml"', ""), "toy/1: computed from results/toy/1.csv, but no recipe is given"),
        (COMPUTED + 'metric = "ece"', "has no ece for row 'A'; rows that have it: (none)"),
        ('again = "toy/9"', "toy/1: again = toy/9, which is not the id of a first test"),
    ],
)
def test_what_cannot_be_traced_is_listed(tmp_path: Path, more: str, problem: str) -> None:
    claims = repository(tmp_path, ENTRY + more, results=CSV)
    assert any(problem in found for found in problems(claims, tmp_path))
    with pytest.raises(DataError, match="the register of claims has problems"):
        write_claims_page(tmp_path, register=tmp_path / "register")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY + ENTRY, "duplicate id 'toy/1'"),
        (ENTRY + 'verdit = "holds"', r"claim 1 \(toy/1\): unknown key 'verdit'"),
        (ENTRY + 'verdict = "holds"', r"unknown key 'verdict'"),  # none can be stated
        (ENTRY + 'test = "a"\nrefuted_by = "b"', "proven by test, or refuted by refuted_by, not both"),
        (ENTRY + 'better = "A"\nabove = 1.0\ntest = "a"', "judged by rows of results, or by a test, not both"),
        (ENTRY + 'better = ["A", "C"]\nworse = "B"\nmatched = true', "matched compares rows with equally many others"),
        (ENTRY + 'better = "A"\nworse = "B"\npooled = true', "pooled compares the runs of all rows with a number"),
        (ENTRY + 'interval = "days"', "interval must be one of seeds, examples"),
        (ENTRY + 'better = "A"', "better needs exactly one of worse, above, below and other_metric"),
        (ENTRY + 'better = "A"\nworse = "B"\nabove = 1.0', "better needs exactly one of worse, above, below and other_metric"),
        (ENTRY + 'worse = "B"', "a comparison needs better"),
        (ENTRY + 'better = "A"\nabove = 1.0\nbelow = 2.0', "give either above or below"),
        (ENTRY + 'better = "A"\nworse = "B"\nother_metric = "ece"', "other_metric compares two metrics of one row"),
        (
            ENTRY + 'better = "A"\nworse = "B"\nrelation = "equal"',
            'relation = "equal" compares two rows or two metrics and needs',
        ),
        (ENTRY + 'better = "A"\nworse = "B"\nrelation = "ratio"', 'relation = "ratio" needs worse, and above or below'),
        (ENTRY + 'better = "A"\nrelation = "range"\nabove = 0.1', 'relation = "range" needs at least 2 rows in better, and'),
        (ENTRY + 'better = ["A", "B", "C"]\nrelation = "ranks"\nabove = 0.1', "rows in better, other_metric, and above or below"),
        (ENTRY + 'relation = "like"', "relation must be one of better, equal, ratio, range, ranks"),
        (ENTRY + 'direction = "up"', "direction must be one of higher, lower"),
        (ENTRY.replace('paper = "A 83.3; B 60.9"', ""), r"claim 1 \(toy/1\): needs paper"),
        ("[[claim]", "not TOML"),
    ],
)
def test_an_invalid_register_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        repository(tmp_path, text)


def test_the_page_counts_and_summarizes(tmp_path: Path) -> None:
    second = ENTRY.replace("toy/1", "toy/2").replace("A is better than B.", "B | is fine.")
    repository(tmp_path, ENTRY + COMPUTED + "headline = true\n" + second, results=CSV)
    page = write_claims_page(tmp_path, register=tmp_path / "register").read_text()
    assert page == claims_page(tmp_path, register=tmp_path / "register")
    assert "2 claims of 1 papers; 1 were tested here" in page
    assert "| toy | 2 | 1 | 0 | 0 | 1 | 1 | 0 |" in page
    assert "- A is better than B. (toy, Table 1, n = 3.) *Run here:* digits" in page
    assert "B \\| is fine." in page
    assert "[1.csv](../results/toy/1.csv)" in page


needs_register = pytest.mark.skipif(not list(REGISTER.glob("*.toml")), reason="the register has no claims yet")


@needs_register
def test_every_claim_of_the_repository_can_be_traced() -> None:
    assert problems(read_register(), ROOT) == []


@needs_register
def test_every_claim_that_a_recipe_names_is_in_the_register() -> None:
    from mohs.studies.recipe import read_recipe

    known = {claim.id for claim in read_register()}
    for path in sorted((ROOT / "recipes").rglob("*.toml")):
        for row in read_recipe(path).rows:
            assert set(row.claim) <= known, f"{path}: {row.claim}"


@needs_register
def test_rows_that_claims_name_are_rows_of_their_recipes() -> None:
    from mohs.studies.recipe import read_recipe

    for claim in read_register():
        named = {*claim.better, *claim.worse}
        if claim.recipe is not None and claim.recipe.endswith(".toml"):
            rows = [row.label for row in read_recipe(ROOT / claim.recipe).rows]
            assert named <= set(rows), f"{claim.id}: rows of {claim.recipe} are {rows}"


@needs_register
def test_the_page_in_docs_is_up_to_date() -> None:
    assert (ROOT / PAGE).is_file(), "write it: mohs study --claims"
    assert (ROOT / PAGE).read_text() == claims_page(ROOT), "write it anew: mohs study --claims"


@needs_register
def test_verdicts_on_two_rows_are_those_of_scipy() -> None:
    """Every claim that one row beats another, recomputed from the CSV without the package."""
    compared = 0
    for one in judge_register(read_register(), ROOT):
        claim, found = one.claim, one.found
        if not found.comparisons or (len(claim.better), len(claim.worse), claim.relation) != (1, 1, "better") or claim.margin:
            continue
        with (ROOT / str(claim.results)).open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if line.get(claim.metric)]
        ours, theirs = (
            {line["seed"]: float(line[claim.metric]) for line in lines if line["row"] == row}
            for row in (claim.better[0], claim.worse[0])
        )
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) != found.n or claim.interval == "examples":  # a run collapsed
            continue
        if len({ours[seed] - theirs[seed] for seed in seeds}) == 1:  # no spread: the exact sign test
            continue
        test = stats.ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
        assert found.p == pytest.approx(test.pvalue, rel=1e-6), claim.id
        better = (test.statistic > 0) == (claim.direction == "higher")
        assert found.verdict == ("draw" if test.pvalue >= 0.05 else "holds" if better else "fails"), claim.id
        compared += 1
    assert compared >= 60


@needs_register
def test_what_to_use_is_what_the_register_says() -> None:
    judged = judge_register(read_register(), ROOT)
    page = guide_page(judged, read_guide())
    assert (ROOT / GUIDE_PAGE).read_text() == page, "write it anew: mohs study --claims"
    assert len(page.splitlines()) <= 40  # one screen
    by_id = {one.claim.id: one for one in judged}
    for row in read_guide():
        for shown in row.results:
            one, text = by_id[shown.claim], guide_page(judged, [dataclasses.replace(row, results=[shown])])
            if one.verdict == "holds":
                assert f"**{'hurts' if shown.inverse else 'helps'}**" in text, shown.claim
            assert ("\\*" in text.splitlines()[-1]) == (one.verdict != one.controlled), shown.claim


def test_the_guide_turns_gains_by_direction_and_refuses_what_was_not_run(tmp_path: Path) -> None:
    rows = {"A": {"ece": (0.02, 0.021, 0.019)}, "B": {"ece": (0.05, 0.052, 0.055)}}
    more = 'metric = "ece"\ndirection = "lower"\n'
    judged = judge_register(repository(tmp_path, ENTRY + COMPUTED + more, results=table_of(rows)), tmp_path)
    at = {"when": "Always", "idea": "A", "instead": "B"}
    page = guide_page(
        judged, [Advice(**at, results=[Shown(claim="toy/1", on="digits"), Shown(claim="toy/1", on="turned", inverse=True)])]
    )
    assert (
        "| **Always** | A | B | digits: **helps** +3.2 [2.4, 4.0] (n = 3)<br>turned: **hurts** -3.2 [-4.0, -2.4] (n = 3) |"
        in page
    )
    with pytest.raises(DataError, match="the claim toy/9 is not in the register, or has not been run"):
        guide_page(judged, [Advice(**at, results=[Shown(claim="toy/9", on="digits")])])


@needs_register
def test_at_least_thirty_verdicts_come_from_runs() -> None:
    run = [claim for claim in read_register() if claim.results is not None and verdict_of(claim, ROOT).verdict != "not run"]
    assert len(run) >= 30
