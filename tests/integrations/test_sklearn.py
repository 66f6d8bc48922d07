from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import mohs
from mohs.integrations.sklearn import MohsClassifier

IRIS, SPECIES = load_iris(return_X_y=True)
QUICK = {"epochs": 3}


@pytest.mark.parametrize(
    "estimator",
    [
        MohsClassifier(epochs=1, folds=2),
        MohsClassifier(hidden=20, epochs=1, folds=2),
        MohsClassifier(loss="cross_entropy", audit=False, class_weight="balanced"),
    ],
    ids=["linear", "hidden", "balanced"],
)
def test_keeps_scikit_learn_s_contract(estimator: MohsClassifier) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, of the checks it skips
        check_estimator(estimator)


def test_finds_the_noise_and_a_suitable_loss() -> None:
    pixels, clean = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    wrong = rng.random(len(clean)) < 0.25
    y = np.where(wrong, (clean + rng.integers(1, 10, len(clean))) % 10, clean)
    fitted = MohsClassifier(hidden=256).fit(pixels[:1400], y[:1400])
    assert abs(fitted.noise_.rate - 0.25) < 0.06
    assert not isinstance(fitted.loss_, mohs.CrossEntropyLoss)
    assert fitted.score(pixels[1400:], clean[1400:]) > 0.88
    flagged = fitted.verdict_ == "mislabeled"
    assert wrong[:1400][flagged].mean() > 0.9
    assert (wrong[:1400] & flagged).sum() > 0.9 * wrong[:1400].sum()
    assert MohsClassifier(hidden=64, **QUICK).fit(pixels[:600], clean[:600]).score(pixels[600:], clean[600:]) > 0.8


def test_two_classes_with_names() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    named = np.array(["malignant", "benign"])[y]
    fitted = MohsClassifier(**QUICK).fit(x, named)
    assert fitted.classes_.tolist() == ["benign", "malignant"]
    assert fitted.score(x, named) > 0.95
    scores = fitted.decision_function(x)
    assert scores.shape == (569,)
    np.testing.assert_allclose(fitted.predict_proba(x)[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-12)
    assert ((scores > 0) == (fitted.predict(x) == "malignant")).all()
    table = fitted.table_
    assert table.column("label").to_pylist() == named.tolist()
    assert set(table.column("predicted").to_pylist()) == {"benign", "malignant"}
    assert set(table.column("suggested_label").to_pylist()) <= {"benign", "malignant"}
    assert fitted.avh_.shape == fitted.label_right_.shape == fitted.verdict_.shape == (569,)


@pytest.mark.parametrize("loss", ["gce", {"name": "gradient_rescaling", "beta": 4.0}, mohs.EncouragingLoss(), "cross_entropy"])
def test_any_loss_works_in_pipelines_searches_and_pickles(loss: object) -> None:
    pipe = make_pipeline(StandardScaler(), MohsClassifier(loss=loss, **QUICK))  # type: ignore[arg-type]
    pipe.fit(IRIS, SPECIES)
    again = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(pipe.predict_proba(IRIS), again.predict_proba(IRIS))
    assert again[-1].table_.equals(pipe[-1].table_)
    fresh = clone(pipe).fit(IRIS, SPECIES)
    np.testing.assert_array_equal(pipe.predict_proba(IRIS), fresh.predict_proba(IRIS))


def test_grid_search_over_losses_and_penalties() -> None:
    grid = {"loss": ["gce", "cross_entropy"], "l2": [1e-3, 1e-1]}
    search = GridSearchCV(MohsClassifier(audit=False, steps=60), grid, cv=3, error_score="raise").fit(IRIS, SPECIES)
    assert search.best_score_ > 0.9
    assert cross_val_score(MohsClassifier(audit=False, loss="mae"), IRIS, SPECIES, cv=3).mean() > 0.9


def test_refitting_forgets_the_first_data() -> None:
    model = MohsClassifier(**QUICK).fit(IRIS, SPECIES)
    assert len(model.table_) == 150
    model.fit(IRIS[:120], SPECIES[:120])
    assert len(model.table_) == 120


def test_weights() -> None:
    weight = np.where(SPECIES == 2, 0.0, 1.0)
    model = MohsClassifier(**QUICK).fit(IRIS, SPECIES, sample_weight=weight)
    assert model.classes_.tolist() == [0, 1]
    assert len(model.table_) == 100


def test_class_weights_are_sample_weights() -> None:
    y, given = np.array(["a", "b", "c"])[SPECIES], {"a": 3.0, "c": 0.5}
    model = MohsClassifier(loss="cross_entropy", audit=False)
    weighted = clone(model).set_params(class_weight=given).fit(IRIS, y)
    by_row = np.array([given.get(name, 1.0) for name in y])
    np.testing.assert_allclose(
        weighted.predict_proba(IRIS), model.fit(IRIS, y, sample_weight=by_row).predict_proba(IRIS), atol=1e-6
    )
    few = np.flatnonzero((SPECIES != 2) | (np.arange(150) % 10 == 0))  # 50, 50 and 5
    balanced = clone(model).set_params(class_weight="balanced").fit(IRIS[few], y[few])
    weights = np.where(y[few] == "c", 105 / (3 * 5), 105 / (3 * 50))
    np.testing.assert_allclose(
        balanced.predict_proba(IRIS), model.fit(IRIS[few], y[few], sample_weight=weights).predict_proba(IRIS), atol=1e-6
    )
    plain = clone(model).fit(IRIS[few], y[few])
    rare = SPECIES == 2
    assert balanced.score(IRIS[rare], y[rare]) > plain.score(IRIS[rare], y[rare])
    audited = MohsClassifier(class_weight=given, **QUICK).fit(IRIS, y)  # the audit does not see class weights
    assert audited.table_.equals(MohsClassifier(**QUICK).fit(IRIS, y).table_)


@pytest.mark.parametrize("options", [{"loss": "cross_entropy"}, {"loss": "gce"}, {"hidden": 12, "loss": "cross_entropy"}, {}])
def test_sparse_rows_give_the_same_as_dense_ones(options: dict) -> None:
    x = np.where(np.random.default_rng(0).random((150, 4)) < 0.4, 0.0, IRIS)
    dense, sparse = (MohsClassifier(**options, **QUICK).fit(rows, SPECIES) for rows in (x, csr_array(x)))
    np.testing.assert_allclose(sparse.predict_proba(coo_array(x)), dense.predict_proba(x), atol=1e-5)
    assert sparse.verdict_.tolist() == dense.verdict_.tolist()


def test_wide_sparse_rows_stay_sparse() -> None:
    """300 rows of 200,000 columns: a dense copy would take 480 MB."""
    random = np.random.default_rng(0)
    y = np.arange(300) % 3
    columns = np.stack([random.integers(0, 200_000, 300), 7 * y + random.integers(0, 7, 300)], 1)
    x = csr_array((np.ones(600), (np.repeat(np.arange(300), 2), columns.ravel())), shape=(300, 200_000))
    tracemalloc.start()
    model = MohsClassifier(loss="cross_entropy", audit=False, steps=30).fit(x, y)
    assert model.score(x, y) > 0.95
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6


def test_global_random_state_is_unchanged() -> None:
    torch.manual_seed(0)
    first = torch.get_rng_state()
    MohsClassifier(hidden=10, **QUICK).fit(IRIS, SPECIES)
    assert torch.equal(torch.get_rng_state(), first)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="unknown loss 'ember'"):
        MohsClassifier(loss="ember").fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match="y must hold at least two classes, got 1 class"):
        MohsClassifier().fit(IRIS[:50], SPECIES[:50])
    with pytest.raises(ValueError, match="folds must be at least 2"):
        MohsClassifier(folds=1).fit(IRIS, SPECIES)
    with pytest.raises(NotFittedError, match="fit with audit=True"):
        _ = MohsClassifier(loss="gce", audit=False).fit(IRIS, SPECIES).table_
    with pytest.raises(NotFittedError):
        _ = MohsClassifier().verdict_
    for given, match in (
        ("even", "must be a mapping"),
        ({9: 1.0}, "9, which is not a class of y: 0, 1, 2"),
        ({0: -1.0}, "at least 0"),
    ):
        with pytest.raises(ValueError, match=match):
            MohsClassifier(class_weight=given, audit=False).fit(IRIS, SPECIES)
