"""What holds for every score of the table, and the grade. Exceptions stand here by name, each with its reason."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness.human import agreement_of
from mohs.hardness.recorder import Recorder
from mohs.hardness.score import score_features
from mohs.hardness.scores import PREFERENCE, SCORES, grade, hardness, with_grade
from mohs.hardness.table import COLUMNS, add_columns, make_table

EPOCHS, CLASSES, DIM = 4, 4, 5
BLIND = {
    "norm": "the head plays no part in the features' length",
    "norm_in_class": "the head plays no part in the features' length",
    "neighbors": "the head plays no part in who is near",
    "disagreement": "people's votes have no logits",
    "residual": "a regression has no logits",
}
WITHOUT_LOGITS = ("neighbors", "disagreement", "residual")
MAY_RISE = {
    "entropy": "a prediction that was sure of another class is spread first",
    "avc": "the nearest class, if it is another, loses some of its share",
    "variability": "an epoch's confidence may move while another's is at its end",
    "forgetting": "what is learned for one epoch can be forgotten at the next",
}


def table(seed: int, step: float):
    """One example over some epochs, each with its own head; the label's logit, and nothing else, raised by `step` in all."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (1,), generator=generator)
    head = SimpleNamespace(weight=torch.zeros(CLASSES, DIM, dtype=torch.float64))
    recorder = Recorder(1, head=head)
    for epoch in range(EPOCHS):
        x = torch.randn(1, DIM, generator=generator, dtype=torch.float64)
        head.weight = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
        head.weight[label] += step * x / x.square().sum()  # its product with x rises by step
        recorder.update(torch.tensor([0]), x @ head.weight.T, label, x, epoch=epoch)
    record = recorder.table()
    seen = score_features(x, head.weight, label)
    human = agreement_of(seen.column("confidence").to_numpy(), label.numpy(), np.full(CLASSES, 0.9))
    return add_columns(
        seen,
        {name: record.column(name) for name in SCORES if name not in seen.column_names and name in record.column_names}
        | {"human": human},
    )


@pytest.fixture(scope="module")
def raised() -> list[list]:
    return [[table(seed, step) for step in (0.0, 0.1, 1.0, 3.0, 10.0)] for seed in range(40)]


def rises(name: str, tables: list[list]) -> float:
    """The most that hardness rose from one step to the next."""
    values = np.array([[hardness(t, name)[0] for t in steps] for steps in tables])
    return float(np.diff(values, axis=1).max())


@pytest.mark.parametrize("name", [name for name in SCORES if name not in BLIND | MAY_RISE])
def test_raising_the_labels_logit_never_raises_hardness(name: str, raised: list[list]) -> None:
    assert rises(name, raised) <= 1e-9
    values = np.array([[hardness(t, name)[0] for t in steps] for steps in raised])
    assert (values[:, 0] > values[:, -1]).any()


@pytest.mark.parametrize("name", MAY_RISE)
def test_exceptions_are_real(name: str, raised: list[list]) -> None:
    assert rises(name, raised) > 1e-3


@pytest.mark.parametrize("name", [name for name in BLIND if name not in WITHOUT_LOGITS])
def test_scores_of_the_features_alone_are_kept(name: str, raised: list[list]) -> None:
    assert rises(name, raised) == 0


@pytest.mark.parametrize("name", SCORES)
def test_signs_agree_with_the_columns(name: str) -> None:
    score = SCORES[name]
    assert COLUMNS[score.column].direction == {1: "harder", -1: "easier"}[score.sign]
    assert score.meaning
    got = hardness(make_table({score.column: [1.0, 2.0]}), name)
    assert (got[1] > got[0]) == (COLUMNS[score.column].direction == "harder")


def test_every_directed_column_is_a_score_except_two() -> None:
    assert {name for name, about in COLUMNS.items() if about.direction} - {"mohs", "top_confidence"} == {
        s.column for s in SCORES.values()
    }


def test_hardness_errors_and_gaps() -> None:
    made = make_table({"margin": [1.0, np.nan]})
    assert hardness(made, "margin")[0] == -1
    assert np.isnan(hardness(made, "margin")[1])
    with pytest.raises(ValueError, match="unknown score 'ember'; known: confidence, margin"):
        hardness(made, "ember")
    with pytest.raises(ValueError, match="the table has no column 'aum'; its columns: margin"):
        hardness(made, "aum")


def loop_grade(values: list[float]) -> list[int]:
    known = sorted(v for v in values if v == v)
    grades = []
    for v in values:
        if v != v:
            grades.append(0)
            continue
        places = [i + 1 for i, other in enumerate(known) if other == v]
        doubled = places[0] + places[-1] - 1  # twice the middle of the places, less a half
        grades.append(next(g for g in range(1, 11) if 10 * doubled <= 2 * g * len(known)))
    return grades


@given(
    st.lists(
        st.one_of(st.integers(-3, 3).map(float), st.floats(-5, 5), st.just(float("nan")), st.just(float("inf"))), max_size=60
    )
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_grade_matches_deciles_computed_in_a_loop(values: list[float]) -> None:
    assert grade(values).tolist() == loop_grade(values)


def test_grade_of_few_many_and_equal() -> None:
    assert grade([]).tolist() == []
    assert grade([7.0]).tolist() == [5]
    assert grade([3.0] * 9).tolist() == [5] * 9
    assert grade([1.0, 2.0]).tolist() == [3, 8]
    assert grade(np.arange(10)[::-1]).tolist() == list(range(10, 0, -1))
    assert np.bincount(grade(np.random.default_rng(0).normal(size=1000)), minlength=11).tolist() == [0] + [100] * 10
    assert grade([np.nan, 0.0, 1.0, np.nan]).tolist() == [0, 3, 8, 0]
    with pytest.raises(ValueError, match=r"shape \(N,\), one number per row, got shape \(2, 2\)"):
        grade(np.zeros((2, 2)))


def test_with_grade_uses_the_best_available_score() -> None:
    both = make_table({"margin": [2.0, 1.0, np.nan], "mean_margin": [1.0, 2.0, 3.0]}, classes=["a", "b"])
    assert with_grade(both).column("mohs").to_pylist() == [9, 5, 2]
    assert with_grade(both, by="margin").column("mohs").to_pylist() == [3, 8, None]
    assert with_grade(both).schema.metadata == both.schema.metadata
    with pytest.raises(ValueError, match="no score to grade by; it needs one of: mean_margin"):
        with_grade(make_table({"entropy": [1.0]}))
    assert set(PREFERENCE) <= set(SCORES)


def test_never_learned_examples_are_the_hardest_by_forgetting() -> None:
    """Toneva et al. count them as forgotten infinitely often; here: at every epoch of the example seen most often."""
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    courses = {"steady": [right] * 6, "forgotten": [right, wrong] * 3, "never": [wrong] * 6, "never, seen twice": [wrong] * 2}
    recorder = Recorder(len(courses) + 1)  # the last is never seen
    for epoch in range(6):
        rows = [(i, logits[epoch]) for i, logits in enumerate(courses.values()) if epoch < len(logits)]
        ids, logits = torch.tensor([i for i, _ in rows]), torch.tensor([row for _, row in rows])
        recorder.update(ids, logits, torch.zeros_like(ids))
    table = recorder.table()
    assert table.column("forgetting").to_pylist() == [0, 3, 6, 6, None]
    values = hardness(table, "forgetting")
    assert values[:4].tolist() == [0, 3, 6, 6]
    assert np.isnan(values[4])
