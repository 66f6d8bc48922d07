"""Consensus of several annotators: known skills are found, and what one more vote is worth is what it turns out to be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mohs
from mohs.hardness.annotators import NONE

CLASSES = 4


def drawn(seed: int = 0, size: int = 600, annotators: int = 8, votes: int = 4, low: float = 0.4) -> tuple:
    """True classes (N,), votes (N, A) and skills (A,)."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(CLASSES, size=size), rng.uniform(low, 0.95, size=annotators)
    given = np.full((size, annotators), NONE)
    for i in range(size):
        for a in rng.choice(annotators, votes, replace=False):
            right = rng.random() < skill[a]
            given[i, a] = truth[i] if right else (truth[i] + rng.integers(1, CLASSES)) % CLASSES
    return truth, given, skill


def majority(votes: np.ndarray) -> np.ndarray:
    return np.array([np.bincount(row[row != NONE], minlength=CLASSES).argmax() for row in votes])


def test_skills_are_found_and_the_consensus_beats_the_majority() -> None:
    gains, covered = [], []
    for seed in range(5):
        truth, votes, skill = drawn(seed)
        found = mohs.consensus(votes)
        gains.append((found.labels == truth).mean() - (majority(votes) == truth).mean())
        quality, low, high = (found.annotators.column(name).to_numpy() for name in ("quality", "low", "high"))
        assert np.abs(quality - skill).mean() < 0.05
        assert np.corrcoef(quality, skill)[0, 1] > 0.95
        covered.append((low <= skill) & (skill <= high))
        assert abs(found.p_right.mean() - (found.labels == truth).mean()) < 0.05  # it knows how often it is right
    assert np.mean(gains) > 0.01
    assert 0.8 < np.mean(covered) <= 1


def test_a_model_that_tells_something_helps_and_one_that_does_not_is_left_out() -> None:
    truth, votes, _ = drawn(votes=2)
    rng = np.random.default_rng(1)
    z = 2 * np.eye(CLASSES)[truth] + rng.normal(size=(len(truth), CLASSES))
    good = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    alone, helped = mohs.consensus(votes), mohs.consensus(votes, probs=good)
    assert (helped.labels == truth).mean() > (alone.labels == truth).mean() + 0.03
    useless = mohs.consensus(votes, probs=rng.dirichlet(np.ones(CLASSES), size=len(truth)))
    assert useless.weight < 0.1 < helped.weight
    assert (useless.labels == truth).mean() > (alone.labels == truth).mean() - 0.02


def test_the_order_of_annotators_and_the_names_of_classes_do_not_matter() -> None:
    _, votes, _ = drawn()
    first, turned = mohs.consensus(votes), mohs.consensus(votes[:, ::-1])
    np.testing.assert_allclose(turned.posterior, first.posterior, atol=1e-6)
    np.testing.assert_allclose(turned.confusion[::-1], first.confusion, atol=1e-6)
    names = np.array(["d", "c", "b", "a"], dtype=object)
    named = mohs.consensus(np.where(votes == NONE, None, names[votes]))
    np.testing.assert_allclose(named.posterior[:, ::-1], first.posterior, atol=1e-6)
    assert named.classes == ["a", "b", "c", "d"]
    assert named.names == [names[k] for k in first.labels]


def test_columns_rows_and_tables_are_the_same_votes() -> None:
    _, votes, _ = drawn(size=80)
    wide = mohs.consensus(votes)
    example, annotator = np.nonzero(votes != NONE)
    rows = mohs.consensus(mohs.Votes.from_rows(example, annotator, votes[example, annotator]))
    frame = pd.DataFrame(np.where(votes == NONE, np.nan, votes))
    table = pa.table({str(a): pa.array([None if v == NONE else int(v) for v in votes[:, a]]) for a in range(votes.shape[1])})
    nullable = frame.astype("Int64")  # missing votes are pandas.NA
    for other in (rows, mohs.consensus(frame), mohs.consensus(nullable), mohs.consensus(table)):
        np.testing.assert_allclose(other.posterior, wide.posterior, atol=1e-9)
        assert other.annotators.column("votes").to_pylist() == wide.annotators.column("votes").to_pylist()


@pytest.mark.parametrize("missing", [None, np.nan, NONE, pd.NA])
def test_rows_without_a_label_are_not_votes(missing: object) -> None:
    found = mohs.Votes.from_rows([0, 1, 1, 2], ["ada", "ada", "bo", "bo"], [1, missing, 2, missing])
    assert found.classes == [1, 2]
    assert (found.example.tolist(), found.num_examples) == ([0, 1], 3)


def test_counts_of_votes_are_votes_of_everybody() -> None:
    counts = np.array([[9, 1, 0], [0, 10, 0], [4, 4, 2], [0, 0, 3], [1, 0, 7], [5, 0, 0], [0, 6, 1], [1, 0, 9]])
    found = mohs.consensus(mohs.Votes.from_counts(counts))
    assert found.labels[[0, 1, 3, 4, 5, 6, 7]].tolist() == [0, 1, 2, 2, 0, 1, 2]
    assert found.disagreement.argmax() == 2
    assert found.p_right[1] > found.p_right[2]
    assert found.annotators.column("votes").to_pylist() == [counts.sum()]


def test_the_gain_is_what_one_more_vote_turns_out_to_be_worth() -> None:
    """Draw the true class and one more vote from the fitted model; the consensus with that vote is right that much more often."""
    _, votes, _ = drawn(size=150, votes=2)
    found = mohs.consensus(votes)
    voted = (votes != NONE).sum(0)
    average = np.tensordot(voted / voted.sum(), found.confusion, 1)
    rng, q = np.random.default_rng(0), found.posterior
    right = np.zeros(len(q))
    for _ in range(2000):
        truth = (q.cumsum(1) > rng.random((len(q), 1))).argmax(1)
        vote = (average[truth].cumsum(1) > rng.random((len(q), 1))).argmax(1)
        right += (q * average[:, vote].T).argmax(1) == truth
    np.testing.assert_allclose(right / 2000 - found.p_right, found.gain, atol=0.05)
    assert abs((right / 2000 - found.p_right - found.gain).mean()) < 0.003
    assert (found.gain >= 0).all()
    assert (found.gain <= 1 - found.p_right + 1e-12).all()
    best = found.next_examples(10)
    assert found.gain[best].min() >= np.delete(found.gain, best).max()


def test_examples_without_votes_are_as_unsure_as_the_model() -> None:
    votes = np.array([[0, 0], [1, 1], [NONE, NONE]] * 20)
    found = mohs.consensus(votes)
    assert found.p_right[2] < 0.6
    assert found.p_right[0] > 0.9
    sure = mohs.consensus(votes, probs=np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8]] * 20))
    assert sure.labels[2] == 1


def test_results_are_a_table() -> None:
    frame = mohs.consensus([["cat", "cat", "dog"], ["dog", "dog", None], ["cat", None, "cat"]]).to_pandas()
    assert frame["label"].tolist() == ["cat", "dog", "cat"]
    assert list(frame) == ["label", "p_right", "disagreement", "gain"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mohs.consensus([[None, NONE], [np.nan, None]]), "there is no vote"),
        (lambda: mohs.Votes.from_counts([[0, 0]]), "there is no vote"),
        (lambda: mohs.consensus([["cat", "cat"]]), "every vote is for 'cat'"),
        (lambda: mohs.consensus([["1", 1], ["2", 2]]), "of one type, got int and str"),
        (lambda: mohs.Votes.from_rows([0, 1], ["a", "b"], ["1", 1]), "of one type, got int and str"),
        (lambda: mohs.Votes.from_columns([["cat"]], classes=["cat", "dog", "cat"]), "'cat' is there twice"),
        (lambda: mohs.consensus([0, 1, 1]), "one column per annotator"),
        (lambda: mohs.consensus([[0, 1], [1, 1]], probs=np.ones((2, 3))), r"probs must have shape \(2, 2\)"),
        (lambda: mohs.consensus([[0, 1], [1, 1]], probs=np.array([[1.0, -1], [1, 0]])), "apply softmax"),
        (lambda: mohs.Votes.from_rows([0, -1], ["a", "b"], [0, 1]), "row numbers from 0 on"),
        (lambda: mohs.Votes.from_rows([0, 1], ["a"], [0, 1]), "equally long"),
        (lambda: mohs.Votes.from_counts([[1, -1]]), "not negative"),
        (
            lambda: mohs.Votes.from_columns([["cat"], ["cow"]], classes=["cat", "dog"]),
            "'cow' is not among the classes",
        ),
        (lambda: mohs.consensus([[0, 1]], interval=1.5), "interval"),
    ],
)
def test_what_cannot_be_is_said(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
