"""Closed-form heads out of fold: against scikit-learn and obvious loops, and no label in its own scores."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from torch import Tensor
from torch.nn.functional import cosine_similarity, one_hot

from mohs._core.errors import DataError
from mohs.hardness.judgment import judge_labels
from mohs.train.fold_heads import _Linear, _Neighbors, assign_folds, fold_scores
from mohs.train.head_inputs import principal_axes, rbf_units

heads = import_module("mohs.train.fold_heads")  # `mohs.train` is the function
IRIS, SPECIES = (torch.tensor(a) for a in load_iris(return_X_y=True))
PIXELS, DIGITS = (torch.tensor(a)[:500] for a in load_digits(return_X_y=True))


def moved(clean: Tensor, rate: float, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    classes = int(clean.max()) + 1
    wrong = torch.rand(len(clean), generator=g) < rate
    return torch.where(wrong, (clean + torch.randint(1, classes, clean.shape, generator=g)) % classes, clean)


def rows_of(fold: Tensor) -> list[Tensor]:
    return [(fold == f).nonzero().squeeze(1) for f in range(int(fold.max()) + 1)]


def iris() -> tuple[Tensor, Tensor, list[Tensor]]:
    fold = assign_folds(SPECIES, folds=5, seed=0)
    return principal_axes(IRIS, 10)[1], fold, rows_of(fold)


# --- against scikit-learn and loops --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("out", [[2], [1, 4]])
def test_lda_matches_scikit_learn(shrinkage: float, out: list[int]) -> None:
    x, fold, rows = iris()
    head = _Linear(principal_axes(IRIS, 10)[0], x, rows, lda=True)
    train = torch.tensor([int(f) not in out for f in fold])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(x[train], SPECIES[train])
    expected = model.decision_function(x[rows[out[0]]])
    found = head.scores(out, out[0], head.sums(one_hot(SPECIES, 3).float()), shrinkage)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("strength", [0.001, 0.1])
def test_ridge_matches_scikit_learn(strength: float) -> None:
    x, fold, rows = iris()
    train, targets = fold != 3, torch.rand(150, 3, generator=torch.Generator().manual_seed(0))
    model = Ridge(alpha=strength * float(targets[train].sum()) / x.shape[1] ** 0.5, fit_intercept=False)
    sizes = targets[train].sum(0)
    prior = sizes / sizes.sum()
    model.fit(x[train], targets[train] - prior)
    head = _Linear(principal_axes(IRIS, 10)[0], x, rows, lda=False)
    found = head.scores([3], 3, head.sums(targets), strength)
    np.testing.assert_allclose(found, model.predict(x[rows[3]]) + prior.numpy(), atol=1e-3)


def test_neighbor_votes_by_rank_match_a_loop() -> None:
    x, fold, rows = iris()
    targets = one_hot(SPECIES, 3).float()
    found = _Neighbors(x, fold, rows).scores([1, 2], 1, targets, 5.0)
    kept = [i for i in range(150) if int(fold[i]) not in (1, 2)]
    prior = targets[kept].mean(0) + 1e-6
    for place, row in enumerate(rows[1].tolist()):
        near = torch.topk(cosine_similarity(x[row], x), 61).indices.tolist()  # itself and 60 others
        near = [j for j in near if j != row][:60]
        cast, rank = torch.zeros(3), 0
        for position, j in enumerate(near):
            if j in kept:
                if position < 20:
                    cast += float(np.exp(-rank / 5)) * targets[j]
                rank += 1
        expected = torch.log((cast + 0.5 * prior) / (cast.sum() + 0.5))
        assert torch.allclose(found[place], expected, atol=0.05), row


def test_rbf_units_are_a_kernel_and_axes_a_rotation() -> None:
    axes, x = principal_axes(IRIS, 4)
    assert float(x.square().sum(1).mean()) == pytest.approx(1, abs=1e-5)
    standard = (IRIS - IRIS.mean(0)) / IRIS.std(0, correction=0)
    ratio = torch.cdist(x, x) / torch.cdist(standard, standard).clamp(min=1e-9).float()
    far = ratio[torch.cdist(x, x) > 0.1]
    assert float(far.std() / far.mean()) < 1e-4  # distances keep their proportions
    fewer = principal_axes(PIXELS, 20)[1]
    assert fewer.shape == (500, 20)
    assert principal_axes(PIXELS[:30], 256)[1].shape == (30, 29)  # fewer rows than features
    units = rbf_units(axes, x, 150, seed=0)[1]  # with all rows as landmarks the kernel is exact, up to centering and scale
    squares = torch.cdist(x, x).double().square()
    kernel = torch.exp(-squares / squares[squares > 0].median())
    center = torch.eye(150, dtype=torch.float64) - 1 / 150
    kernel = center @ kernel @ center
    gram = (units @ units.T).double()
    assert torch.corrcoef(torch.stack([gram.flatten(), kernel.flatten()]))[0, 1] > 0.999


@pytest.mark.parametrize("rows", [500, 30], ids=["tall", "wide"])
def test_fitted_heads_give_the_rows_of_a_fold_the_scores_out_of_fold(rows: int) -> None:
    pixels, y = PIXELS[:rows], moved(DIGITS[:rows], 0.1, 0)
    made = fold_scores(pixels, y, num_classes=10, folds=3, linear=True)
    assert made.names == list(made.heads) == ["features lda", "features rbf_lda", "features rbf_ridge"]
    for scores, head in zip(made.scores, made.heads.values(), strict=True):
        inputs, fold = head.map(pixels), torch.from_numpy(made.fold)
        again = torch.einsum("nr,nrk->nk", inputs, head.weight[fold]) + head.bias[fold]
        np.testing.assert_allclose(again, scores, atol=2e-3 * np.abs(scores).max())


# --- no label in its own scores ------------------------------------------------------------------------------------------


@pytest.fixture
def same_folds(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Folds that do not depend on the labels: changing a label would otherwise change them."""
    fold = torch.arange(500) % 5
    monkeypatch.setattr(heads, "assign_folds", lambda labels, **_: fold)
    return fold


def changed(labels: Tensor, row: int) -> Tensor:
    other = labels.clone()
    other[row] = (other[row] + 3) % 10
    return other


@pytest.mark.parametrize("row", [3, 77, 431])
def test_no_label_influences_its_own_first_scores(row: int, same_folds: Tensor) -> None:
    y = moved(DIGITS, 0.1, 0)
    made = heads._heads(PIXELS, same_folds, y, 10, 0)
    assert set(made) == {"lda", "rbf_lda", "rbf_ridge", "neighbors"}
    for head in made.values():
        for strength in head.strengths:
            f = int(same_folds[row])
            before, after = (head.scores([f], f, head.sums(one_hot(one, 10).float()), strength) for one in (y, changed(y, row)))
            assert torch.equal(before, after)  # of the whole fold
            g = (f + 1) % 5
            elsewhere = [head.scores([g], g, head.sums(one_hot(one, 10).float()), strength) for one in (y, changed(y, row))]
            assert not torch.equal(*elsewhere)


def test_no_label_influences_its_own_second_scores(same_folds: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    y, rows = moved(DIGITS, 0.1, 0), (3, 77, 431)
    free = fold_scores(PIXELS, y, num_classes=10, folds=5)
    scale = free.scores.std((1, 2))
    for row in rows:
        moved_by = np.abs(fold_scores(PIXELS, changed(y, row), num_classes=10, folds=5).scores - free.scores)[:, row].max(1)
        assert (moved_by < 0.1 * scale).all()  # through the few numbers of the noise model, which all labels share
    once = heads.fit_noise
    kept: list[Any] = []

    def first_fit(scores: Any, labels: Any) -> Any:
        if not kept:
            kept.append(once(scores, labels))
        return kept[0]

    monkeypatch.setattr(heads, "fit_noise", first_fit)
    before = fold_scores(PIXELS, y, num_classes=10, folds=5)
    for row in rows:
        after = fold_scores(PIXELS, changed(y, row), num_classes=10, folds=5)
        assert before.chosen == after.chosen
        np.testing.assert_array_equal(before.scores[:, row], after.scores[:, row])
        assert (before.scores != after.scores).any()


def test_few_rows_get_more_folds() -> None:
    assert [heads.default_folds(n) for n in (6, 19, 20, 2000, 2001)] == [5, 5, 10, 10, 5]
    made = fold_scores(PIXELS[:200], DIGITS[:200], num_classes=10)
    assert sorted(set(made.fold.tolist())) == list(range(10))


# --- as a whole ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_digits_are_found_and_clean_ones_are_not_flagged(seed: int) -> None:
    y = moved(DIGITS, 0.1, seed)
    judgment, wrong = judge_labels(fold_scores(PIXELS, y, num_classes=10, seed=seed).scores, y), (y != DIGITS).numpy()
    assert wrong[judgment.flagged].mean() > 0.9
    assert (wrong & judgment.flagged).sum() > 0.8 * wrong.sum()
    clean = judge_labels(fold_scores(PIXELS, DIGITS, num_classes=10, seed=seed).scores, DIGITS)
    assert clean.flagged.mean() <= 0.01


def test_the_noise_model_of_the_heads_is_the_one_that_their_judge_would_fit() -> None:
    y = moved(DIGITS, 0.1, 0)
    made = fold_scores(PIXELS, y, num_classes=10)
    given, own = (judge_labels(made.scores, y, model=model) for model in (made.model, None))
    assert given.model is made.model
    np.testing.assert_allclose(given.model.transition, own.model.transition, rtol=1e-6)
    np.testing.assert_allclose(given.p_mislabeled, own.p_mislabeled, rtol=1e-6)


def test_same_seed_same_scores() -> None:
    first, second, other = (fold_scores(IRIS.numpy(), SPECIES, num_classes=3, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.scores, second.scores)
    np.testing.assert_array_equal(first.fold, second.fold)
    assert first.chosen == second.chosen
    assert (first.fold != other.fold).any()


def test_several_sets_of_features_and_progress() -> None:
    ticks: list[tuple[int, int]] = []
    made = fold_scores(
        {"flower": IRIS, "noise": torch.randn(150, 3, generator=torch.Generator().manual_seed(0))},
        SPECIES,
        num_classes=3,
        folds=4,
        progress=lambda done, of: ticks.append((done, of)),
    )
    assert made.names == [
        f"{name} {kind}" for name in ("flower", "noise") for kind in ("lda", "rbf_lda", "rbf_ridge", "neighbors")
    ]
    assert made.scores.shape == (8, 150, 3)
    assert np.isfinite(made.scores).all()
    assert ticks == [(i, 6) for i in range(1, 7)]
    right = (made.scores.argmax(2) == SPECIES.numpy()).mean(1)
    assert (right[:4] > 0.8).all()
    assert (right[4:] < 0.6).all()


def test_many_rows_go_without_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MANY", 100)
    assert fold_scores(IRIS, SPECIES, num_classes=3).names == ["features lda", "features rbf_lda", "features rbf_ridge"]


@pytest.mark.parametrize(
    "features",
    [
        torch.ones(40, 3),  # constant
        torch.randn(40, 200, generator=torch.Generator().manual_seed(0)),  # more features than rows
        torch.randn(40, 1, generator=torch.Generator().manual_seed(0)) * 1e6,
        torch.eye(40)[:, :2] * 1e-6,  # all but two rows alike
        torch.randint(0, 255, (40, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8),
    ],
    ids=["constant", "wide", "large", "sparse", "bytes"],
)
def test_odd_features_give_finite_scores(features: Tensor) -> None:
    labels = torch.arange(40) % 2
    labels[0] = 3  # a class of one example; class 2 has none
    made = fold_scores(features, labels, num_classes=4, folds=3)
    assert np.isfinite(made.scores).all()
    assert np.isfinite(judge_labels(made.scores, labels).p_mislabeled).all()


def test_bad_features_and_folds() -> None:
    broken = IRIS.clone()
    broken[17, 2] = torch.nan
    with pytest.raises(DataError, match=r"features\[17\] holds NaN or infinity"):
        fold_scores(broken, SPECIES, num_classes=3)
    with pytest.raises(ValueError, match="folds must be at least 2 and at most 150"):
        fold_scores(IRIS, SPECIES, num_classes=3, folds=151)


def test_features_of_unequal_scale_are_judged_as_well_as_rotated_ones() -> None:
    """Embeddings by principal axes: standardizing would blow up axes that hold noise alone."""
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=400)
    told, noise = 5 * np.eye(4)[truth] + rng.normal(size=(400, 4)), 0.1 * rng.normal(size=(400, 120))
    x = np.concatenate([told, noise], 1).astype(np.float32)
    labels = np.where(rng.random(400) < 0.2, (truth + 1) % 4, truth)
    rotation = np.linalg.qr(rng.normal(size=(124, 124)))[0].astype(np.float32)
    found = [
        (fold_scores(one, torch.from_numpy(labels), num_classes=4).scores.argmax(2) == truth).mean(1) for one in (x, x @ rotation)
    ]
    assert found[0].min() > 0.9
    np.testing.assert_allclose(found[0], found[1], atol=0.04)


# --- groups --------------------------------------------------------------------------------------------------------------


def test_no_head_sees_an_example_of_the_group_that_it_scores() -> None:
    groups = torch.arange(150).reshape(3, 50)[:, torch.randperm(50, generator=torch.Generator().manual_seed(0))]
    groups = (groups.flatten() % 50) // 2  # 25 groups, each with two rows of every species
    found = fold_scores(IRIS, SPECIES, num_classes=3, groups=groups)
    assert len(np.unique(np.stack([found.fold, groups.numpy()]), axis=1).T) == 25
    changed = SPECIES.clone()
    changed[groups == 7] = (changed[groups == 7] + 1) % 3
    fold = int(found.fold[(groups == 7).numpy()][0])
    for m, name in enumerate(
        found.names
    ):  # the first fit, with the strengths above: the labels of a group move none of its scores
        head = heads._heads(IRIS, torch.from_numpy(found.fold), SPECIES, 3, 0)[name.removeprefix("features ")]
        scored = [
            head.scores([fold], fold, head.sums(one_hot(labels, 3).float()), found.chosen[name]) for labels in (SPECIES, changed)
        ]
        own = (groups == 7)[torch.from_numpy(found.fold) == fold]
        assert torch.allclose(scored[0][own], scored[1][own], atol=1e-5), (m, name)
    assert found.refit.groups is not None


def test_labels_that_are_wrong_in_whole_groups_are_found_by_other_groups() -> None:
    rng = np.random.default_rng(0)
    truth, wrong = np.arange(40) % 2, np.arange(40) < 4
    center = rng.normal(size=(40, 5)) + 2 * (2 * truth[:, None] - 1) * np.array([1, 0.5, 0, 0, 0])
    own = np.repeat(np.arange(40), 6)
    x = torch.from_numpy((center[own] + 0.05 * rng.normal(size=(240, 5))).astype(np.float32))
    labels, groups = torch.from_numpy(np.where(wrong, 1 - truth, truth)[own]), torch.from_numpy(own)
    found = {}
    for name, groups_or_none in (("rows", None), ("groups", groups)):
        made = fold_scores(x, labels, num_classes=2, groups=groups_or_none)
        judged = judge_labels(made.scores, labels.numpy(), ambiguity=made.ambiguity, refit=made.refit)
        found[name] = (judged.p_mislabeled[wrong[own]].mean(), judged.p_mislabeled[~wrong[own]].mean())
    assert found["rows"][0] < 0.1  # the other rows of the group vouch for the label
    assert found["groups"][0] > 0.5
    assert found["groups"][1] < 0.1
