"""Linear probes: as good as scikit-learn's on digits, better balanced on a long tail, and the head is of raw features."""

from __future__ import annotations

import pytest
import torch

from mohs._core.errors import DataError
from mohs.evaluate.probe import probe


def test_matches_logistic_regression_also_on_raw_features(digits) -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = digits[0].flatten(1) * 16, digits[1]
    found = probe(x[:1200], y[:1200], x[1200:], y[1200:])
    theirs = LogisticRegression(max_iter=2000).fit(x[:1200].numpy(), y[:1200].numpy()).score(x[1200:].numpy(), y[1200:].numpy())
    assert found.accuracy > theirs - 0.02
    right = found.logits(x[1200:]).argmax(1) == y[1200:]
    assert float(right.double().mean()) == found.accuracy
    assert found.train_accuracy > 0.97
    again = probe(x[:1200], y[:1200], x[1200:], y[1200:])
    assert torch.equal(again.weight, found.weight)
    moved = probe(7 * x[:1200] + 3, y[:1200], 7 * x[1200:] + 3, y[1200:])  # scale and shift of features are no matter
    assert moved.accuracy == pytest.approx(found.accuracy, abs=0.01)


def test_balanced_sampling_lifts_the_tail(digits) -> None:
    x, y = digits[0].flatten(1), digits[1]
    kept = torch.cat([(y[:1200] == k).nonzero().squeeze(1)[: int(100 * 0.6**k) + 1] for k in range(10)])
    plain, balanced = (probe(x[kept], y[kept], x[1200:], y[1200:], sampling=sampling) for sampling in ("as_is", "balanced"))
    assert balanced.balanced_accuracy > plain.balanced_accuracy + 0.1


def test_classes_missing_in_training_and_constant_features() -> None:
    x = torch.cat([torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.ones(40, 1)], 1)
    y = (x[:, 0] > 0).long()
    for sampling in ("as_is", "balanced"):
        found = probe(x, y, x, y, classes=4, sampling=sampling, epochs=5)
        assert found.weight.shape == (4, 4)
        assert found.weight.isfinite().all()
        assert found.accuracy > 0.9
    far = probe(x, y, x, torch.full((40,), 3), epochs=1)  # classes are as many as either side has
    assert far.weight.shape == (4, 4)
    assert far.accuracy == 0


def test_works_under_no_grad() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert probe(x, (x[:, 0] > 0).long(), x, (x[:, 0] > 0).long(), epochs=5).accuracy > 0.8


def test_what_is_refused() -> None:
    x, y = torch.randn(6, 3), torch.arange(6) % 2
    with pytest.raises(ValueError, match="features have 3 dimensions and held_out 2"):
        probe(x, y, x[:, :2], y)
    with pytest.raises(ValueError, match=r"sampling must be one of as_is, balanced, got 'sqrt'"):
        probe(x, y, x, y, sampling="sqrt")
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        probe(x, y, x, y, epochs=0)
    with pytest.raises(ValueError, match="lr must be over 0"):
        probe(x, y, x, y, lr=0)
    with pytest.raises(DataError, match=r"held_out_labels\[1\] is 1, but there are 1 classes"):
        probe(x, torch.zeros(6, dtype=torch.long), x, y, classes=1)
    with pytest.raises(DataError, match=r"features\[0\] holds NaN"):
        probe(x * torch.nan, y, x, y)
    with pytest.raises(ValueError, match=r"labels must have shape \(6,\)"):
        probe(x, y[:3], x, y)
