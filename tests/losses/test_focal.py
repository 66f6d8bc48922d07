"""The focal loss's α, and γ by position."""

from __future__ import annotations

import pickle

import pytest
import torch

import mohs

generator = torch.Generator().manual_seed(0)
LOGITS, LABELS = torch.randn(40, 4, generator=generator), torch.randint(4, (40,), generator=generator)


def test_gamma_and_alpha_may_be_positional() -> None:
    assert repr(mohs.FocalLoss(0.5)) == repr(mohs.FocalLoss(gamma=0.5))
    assert mohs.FocalLoss(1.5)(LOGITS, LABELS) == mohs.FocalLoss(gamma=1.5)(LOGITS, LABELS)
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        mohs.FocalLoss(-1.0)
    assert repr(mohs.FocalLoss(2.0, 0.25)) == repr(mohs.FocalLoss(gamma=2.0, alpha=0.25))
    assert mohs.FocalLoss(2.0, torch.ones(3)).weight is None
    with pytest.raises(TypeError):
        mohs.FocalLoss(2.0, 0.25, torch.ones(3))


@pytest.mark.parametrize("alpha", [0.25, [0.1, 0.5, 0.0, 3.0], torch.tensor([0.1, 0.5, 0.0, 3.0])])
def test_alpha_multiplies_the_loss_of_each_class_and_not_the_mean_s_denominator(alpha: object) -> None:
    by_class = [0.75, 0.25, 0.25, 0.25] if isinstance(alpha, float) else [0.1, 0.5, 0.0, 3.0]
    logits = LOGITS.clone().requires_grad_()
    labels = LABELS.clone()
    labels[3] = -100
    loss = mohs.FocalLoss(2.0, alpha=alpha)
    expected = torch.zeros(())
    for row, label in zip(logits, labels, strict=True):
        if label >= 0:
            p = torch.softmax(row, 0)[label]
            expected = expected - by_class[label] * (1 - p) ** 2 * p.log() / 39
    value = loss(logits, labels)
    torch.testing.assert_close(value, expected)
    ours, theirs = (torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (value, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    again = pickle.loads(pickle.dumps(loss))
    assert again(logits, labels) == value
    torch.testing.assert_close(mohs.create_loss("focal", alpha=alpha)(logits, labels), value)
    assert not loss.state_dict()


def test_settings_of_alpha_are_checked() -> None:
    for alpha, match in ((1.5, "alpha must"), ([0.5, -1.0], "at least 0 per class"), ([[0.5]], "one finite number")):
        with pytest.raises(ValueError, match=match):
            mohs.FocalLoss(alpha=alpha)
    with pytest.raises(ValueError, match="alpha must have shape"):
        mohs.FocalLoss(alpha=[0.5, 0.5])(LOGITS, LABELS)
