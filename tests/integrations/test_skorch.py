"""mohs losses in skorch's classifier."""

from __future__ import annotations

import importlib
import pickle
import re
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from torch import nn

import mohs

skorch = pytest.importorskip("skorch", reason="skorch is not installed (the bench extra)")
NeuralNetClassifier = import_module("mohs.integrations.skorch").NeuralNetClassifier

X, Y = load_iris(return_X_y=True)
X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
SETTINGS = {"max_epochs": 20, "lr": 0.2, "verbose": 0, "module__in_features": 4, "module__out_features": 3}


def fitted(criterion: object, **settings: object) -> NeuralNetClassifier:
    torch.manual_seed(0)
    return NeuralNetClassifier(nn.Linear, criterion=criterion, **SETTINGS, **settings).fit(X, Y)


@pytest.mark.parametrize("criterion", [mohs.CrossEntropyLoss, mohs.GeneralizedCrossEntropyLoss, mohs.GradientRescalingLoss])
def test_predict_proba_gives_probabilities(criterion: type[nn.Module]) -> None:
    net = fitted(criterion)
    probs, logits = net.predict_proba(X), net.forward(X)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(probs, torch.softmax(logits, 1).numpy(), rtol=1e-6)
    assert net.score(X, Y) > 0.8


def test_softmax_alternatives_have_probabilities_of_their_own() -> None:
    """−log of the probability of the label is the loss itself."""
    for criterion, settings in ((mohs.TaylorLoss, {}), (mohs.SphericalLoss, {"criterion__eps": 0.1})):
        net = fitted(criterion, **settings)
        probs = net.predict_proba(X)
        expected = net.criterion_(net.forward(X), torch.from_numpy(Y)).item()
        np.testing.assert_allclose(-np.log(probs[np.arange(len(Y)), Y]).mean(), expected, rtol=1e-5)


def test_the_same_as_skorch_with_torch_s_cross_entropy() -> None:
    torch.manual_seed(0)
    theirs = skorch.NeuralNetClassifier(nn.Linear, criterion=nn.CrossEntropyLoss, **SETTINGS).fit(X, Y)
    np.testing.assert_allclose(fitted(mohs.CrossEntropyLoss).predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(fitted(nn.CrossEntropyLoss).predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    raw = fitted(mohs.CrossEntropyLoss, predict_nonlinearity=None)
    np.testing.assert_allclose(raw.predict_proba(X), raw.forward(X).numpy())


def test_clones_pickles_and_searches() -> None:
    net = NeuralNetClassifier(nn.Linear, criterion=mohs.GeneralizedCrossEntropyLoss, **SETTINGS)
    assert clone(net).get_params()["criterion"] is mohs.GeneralizedCrossEntropyLoss
    assert clone(NeuralNetClassifier(nn.Linear, **SETTINGS)).get_params()["criterion"] is mohs.CrossEntropyLoss
    search = GridSearchCV(net, {"criterion__q": [0.3, 0.7]}, cv=2, error_score="raise").fit(X, Y)
    best = search.best_estimator_
    again = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))


def test_without_skorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skorch", None)
    monkeypatch.delitem(sys.modules, "mohs.integrations.skorch")
    with pytest.raises(ImportError, match=re.escape("pip install skorch")):
        importlib.import_module("mohs.integrations.skorch")
