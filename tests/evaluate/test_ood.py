"""OOD: metrics against scikit-learn with ties, indicators by their definitions, and digits against noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from mohs._core.errors import DataError
from mohs.evaluate.ood import INDICATORS, aupr, auroc, fpr_at, ood, separation
from mohs.evaluate.outputs import Outputs, outputs_over


@given(seed=st.integers(0, 2**31), n=st.integers(1, 60), m=st.integers(1, 60), levels=st.sampled_from([2, 10, 10_000]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_metrics_match_scikit_learn(seed: int, n: int, m: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(0, levels, n) * 3.0 - 5, rng.integers(0, levels, m) * 3.0 - 8
    labels, scores = np.r_[np.ones(n), np.zeros(m)], np.r_[inside, outside]
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    found = separation(inside, outside)
    assert found["auroc"] == pytest.approx(roc_auc_score(labels, scores))
    assert found["fpr95"] == pytest.approx(fpr[np.argmax(tpr >= 0.95)])
    assert found["aupr"] == pytest.approx(average_precision_score(labels, scores))
    assert found["aupr_out"] == pytest.approx(average_precision_score(1 - labels, -scores))


def test_indicators_by_their_definitions() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (7, 3))
    logits = features @ weight.T
    out = Outputs(logits, features, weight)
    cos = torch.nn.functional.cosine_similarity(features[:, None], weight[None], dim=2)
    away = torch.pi - cos.arccos()
    p = logits.softmax(1).amax(1)
    expected = {
        "max_softmax": (p / (1 - p)).log(), "max_logit": logits.amax(1), "free_energy": logits.exp().sum(1).log(),
        "max_cosine": cos.amax(1), "avc": away.amax(1) / away.sum(1),
    }  # fmt: skip
    assert set(expected) == set(INDICATORS)
    for name, values in expected.items():
        torch.testing.assert_close(INDICATORS[name](out), values)


def test_saturated_softmax_still_ranks() -> None:
    logits = torch.tensor([[50.0, 0, 0], [40, 0, 0]])
    sure, less = INDICATORS["max_softmax"](Outputs(logits, logits, logits))
    assert sure > less
    assert logits.softmax(1).amax(1).unique().numel() == 1  # where probabilities would tie


def test_digits_against_noise(trained, digits) -> None:
    images = digits[0][1200:]
    noise = torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = ood(trained, images, noise, batch_size=128)
    assert list(found) == list(INDICATORS)
    assert found["max_cosine"]["auroc"] > 0.9
    assert ood(trained, images, images)["avc"]["auroc"] == pytest.approx(0.5)
    plain = torch.nn.Sequential(trained.scale, trained.body, trained.head)
    assert ood(plain, images, noise)["avc"] == pytest.approx(found["avc"])
    one = outputs_over(trained, images, batch_size=1000)
    torch.testing.assert_close(one.logits, outputs_over(trained, images, batch_size=7).logits, rtol=1e-4, atol=1e-4)


def test_what_is_refused(trained, digits) -> None:
    with pytest.raises(ValueError, match=r"unknown indicator 'odin'; known: max_softmax, max_logit"):
        ood(trained, digits[0], digits[0], indicators=["odin"])
    with pytest.raises(DataError, match=r"outside\[1\] holds NaN"):
        auroc([1.0, 2], [0.0, np.nan])
    with pytest.raises(DataError, match=r"inside holds no rows"):
        aupr([], [0.0])
    with pytest.raises(ValueError, match=r"tpr must be over 0 and at most 1, got 0"):
        fpr_at([1.0], [0.0], tpr=0)
    with pytest.raises(ValueError, match=r"inside must have shape \(N,\)"):
        auroc(np.ones((2, 2)), [0.0])
    with pytest.raises(ValueError, match=r"features need a torch Module with a linear head, got function"):
        ood(lambda x: x, digits[0], digits[0])
    with pytest.raises(DataError, match=r"the inputs hold no examples"):
        ood(trained, digits[0][:0], digits[0])
    with pytest.raises(ValueError, match=r"batch_size must be at least 1, got 0"):
        ood(trained, digits[0], digits[0], batch_size=0)
