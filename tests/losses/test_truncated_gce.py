from __future__ import annotations

import pytest
import torch

import mohs
from mohs.losses.truncated_gce import keep_mask


def test_keep_mask_leaves_examples_out_but_counts_them() -> None:
    logits = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    keep = torch.tensor([True, False] * 4)
    value = mohs.TruncatedGeneralizedCrossEntropyLoss()(logits, labels, keep=keep)
    p = logits.softmax(1).gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(value, (((1 - p**0.7) / 0.7 - (1 - 0.5**0.7) / 0.7) * keep).sum() / 8)
    value.backward()
    assert (logits.grad[~keep] == 0).all()
    assert (logits.grad[keep] != 0).any(1).all()


def test_keep_mask_keeps_probabilities_above_the_threshold() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.1, 0.0]])
    assert keep_mask(logits, torch.tensor([0, 0, 0])).tolist() == [True, False, True]
    assert keep_mask(logits, torch.tensor([0, 0, 0]), threshold=0.6).tolist() == [True, False, False]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"keep must have the shape of labels, \(2,\), got \(3,\)"):
        mohs.TruncatedGeneralizedCrossEntropyLoss()(torch.randn(2, 3), torch.tensor([0, 1]), keep=torch.ones(3))
    for threshold in (0.0, 1.0):
        with pytest.raises(ValueError, match="threshold must be over 0 and under 1"):
            mohs.TruncatedGeneralizedCrossEntropyLoss(threshold=threshold)
    with pytest.raises(ValueError, match="q must be between 0 and 1, got 2"):
        mohs.TruncatedGeneralizedCrossEntropyLoss(q=2)


def test_q_0_with_a_mask_is_cross_entropy_less_a_constant() -> None:
    logits, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    loss = mohs.TruncatedGeneralizedCrossEntropyLoss(q=0, threshold=0.5)
    ce = mohs.CrossEntropyLoss()(logits, labels)
    torch.testing.assert_close(loss(logits, labels, keep=torch.ones(4).bool()), ce - torch.tensor(2.0).double().log())
