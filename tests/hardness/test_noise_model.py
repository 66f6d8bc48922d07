from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mohs.hardness.noise_model import even_noise, fit_noise, transition
from mohs.hardness.table import make_table
from mohs.hardness.verdict import verdict

K, N = 5, 6000


def drawn(rate: float, *, shift: int | None, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of a calibrated model times a temperature, given labels and true ones."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(N, K, generator=g, dtype=torch.float64) * 4
    true = torch.multinomial(torch.softmax(z, 1), 1, generator=g).squeeze(1)
    wrong = torch.rand(N, generator=g) < rate
    by = torch.randint(1, K, (N,), generator=g) if shift is None else shift
    return z * temperature, torch.where(wrong, (true + by) % K, true), true


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("shift", [None, 1])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 9.0])
def test_finds_temperature_rate_and_pairs(rate: float, shift: int | None, temperature: float) -> None:
    logits, given, true = drawn(rate, shift=shift, temperature=temperature)
    fit = fit_noise(logits, given)
    assert fit.temperature == pytest.approx(temperature, rel=0.15)
    assert fit.rate == pytest.approx(rate, abs=0.02)
    right = fit.right(logits, given)
    assert float((1 - right).mean()) == pytest.approx(rate, abs=0.02)
    wrong = given != true
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.01)):  # the probabilities are what they say
        among = (right >= low) & (right < high)
        if among.sum() > 200:
            assert float((~wrong)[among].double().mean()) == pytest.approx(float(right[among].mean()), abs=0.07)
    if shift == 1 and rate == 0.3:
        off = fit.transition - torch.diag(fit.transition.diag())
        assert (off.argmax(1) == (torch.arange(K) + 1) % K).all()


def test_right_is_bayes_rule_and_nan_stays() -> None:
    logits, given, _ = drawn(0.1, shift=None, temperature=2.0)
    fit = fit_noise(logits, given)
    right = fit.right(logits[:20], given[:20])
    for i in range(20):
        p = torch.softmax(logits[i] / fit.temperature, 0)
        y = int(given[i])
        assert float(right[i]) == pytest.approx(float(p[y] * fit.transition[y, y] / (p @ fit.transition[:, y])))
    logits[3, 1] = torch.nan
    assert fit_noise(logits, given).right(logits, given).isnan().nonzero().flatten().tolist() == [3]
    assert fit.right(logits[:0], given[:0]).shape == (0,)


def test_expectation_maximization_against_a_loop() -> None:
    logits, given, _ = drawn(0.2, shift=None, temperature=1.0)
    probs, y = torch.softmax(logits[:60], 1), given[:60]
    _, rate, table = transition(probs, y)
    counts = np.zeros((K, K))  # at the end one more step changes nothing
    for p, g in zip(probs.numpy(), y.tolist(), strict=True):
        share = p * table.numpy()[:, g]
        counts[:, g] += share / share.sum()
    again = counts + 50 * even_noise(rate, K).numpy()
    np.testing.assert_allclose(table, again / again.sum(1, keepdims=True), atol=2e-3)
    np.testing.assert_allclose(table.sum(1), 1)


def test_extreme_logits_and_two_classes() -> None:
    z = torch.tensor([[1e4, -1e4], [-1e4, 1e4], [1e4, -1e4], [0.0, 0.0]])
    fit = fit_noise(z, torch.tensor([0, 1, 1, 0]))
    assert math.isfinite(fit.temperature)
    assert fit.right(z, torch.tensor([0, 1, 1, 0])).isfinite().all()
    assert (
        fit_noise(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])).right(torch.zeros(4, 3), torch.zeros(4).long()).isfinite().all()
    )


def test_the_verdict_takes_the_probabilities_as_they_are() -> None:
    table = make_table({"id": [0, 1, 2], "label": ["a", "b", "b"], "predicted": ["a", "a", "b"], "margin": [4.0, -5.0, 0.1]})
    told = verdict(table, right=[0.99, 0.02, math.nan])
    np.testing.assert_allclose(told.column("p_mislabeled").to_numpy()[:2], [0.01, 0.98])
    assert told.column("verdict").to_pylist()[1:] == ["mislabeled", None]
    assert told.column("suggested_label").to_pylist() == ["a", "a", "b"]
    assert "predicted a, not b" in told.column("why").to_pylist()[1]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"logits must be \(N, K\) and labels \(N,\), got \(3,\) and \(3,\)"):
        fit_noise(torch.zeros(3), torch.zeros(3).long())
    with pytest.raises(ValueError, match="no row without NaN"):
        fit_noise(torch.full((2, 3), torch.nan), torch.zeros(2).long())
    with pytest.raises(ValueError, match=r"right must have shape \(1,\)"):
        verdict(make_table({"id": [0], "label": [0], "predicted": [0], "margin": [1.0]}), right=[0.5, 0.5])
