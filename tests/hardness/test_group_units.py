"""Groups that share a label are judged as one: the units, their means against a loop, and what a judgment of them says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness.group_units import share_labels, unit_means, units_of
from mohs.hardness.judgment import judge_labels
from mohs.hardness.noise_model import softmax


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=40), st.integers(0, 99))
def test_units_and_means_match_a_loop(pairs: list[tuple[int, int]], seed: int) -> None:
    groups, labels = (np.array(one) for one in zip(*pairs, strict=True))
    unit, values = units_of(groups, labels), np.random.default_rng(seed).normal(size=(len(pairs), 3))
    means = unit_means(values, unit)
    assert len(means) == len(set(pairs))
    for i, pair in enumerate(pairs):
        own = [j for j, other in enumerate(pairs) if other == pair]
        assert {unit[j] for j in own} == {unit[i]}
        np.testing.assert_allclose(means[unit[i]], values[own].mean(0))
    commonest = sum(max(sum(p == (g, k) for p in pairs) for k in range(3)) for g in set(groups.tolist()))
    assert share_labels(groups, labels) == (commonest >= 0.9 * len(pairs))


def test_all_examples_of_a_group_get_the_same_verdict() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(120), 5)
    true = groups % 3
    labels = np.where(groups < 12, (true + 1) % 3, true)
    scores = 3 * np.eye(3)[true] + rng.normal(size=(120, 3))[groups] + 0.5 * rng.normal(size=(600, 3))
    scores[7] = np.nan  # one image of the second group could not be scored
    found = judge_labels(softmax(scores), labels, groups=groups)
    rows = np.arange(600) != 7
    for values in (found.flagged, found.p_mislabeled, found.suggested, found.cannot_tell):
        assert all(len(set(values[rows & (groups == one)].tolist())) == 1 for one in range(120))
    assert np.isnan(found.p_mislabeled[7])
    assert not found.flagged[7]
    wrong = groups < 12
    assert found.flagged[wrong].mean() > 0.7
    assert found.flagged[~wrong].mean() < 0.02
    assert found.low < 0.1 < found.high


def test_where_labels_differ_within_groups_each_example_is_judged() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(600) % 3
    labels = np.where(np.arange(600) < 60, (true + 1) % 3, true)
    probs = softmax(4 * np.eye(3)[true] + rng.normal(size=(600, 3)))
    found = judge_labels(probs, labels, groups=np.arange(600) // 5)
    assert len(set(found.p_mislabeled[:5].tolist())) > 2
    assert found.flagged[:60].mean() > 0.7
