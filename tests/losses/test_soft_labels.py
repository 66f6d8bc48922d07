"""Soft labels: whole ones are the plain loss, MRKLD's are cross-entropy and a divergence, and losses without a curve say so."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from mohs.losses import create_loss
from mohs.losses.objective import Objective
from mohs.losses.soft_labels import soft_label_loss

LOGITS = 3 * torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(12) % 5


@pytest.mark.parametrize("name", ["cross_entropy", "gce", "focal", "mae", "encouraging"])
def test_hard_labels_give_the_plain_loss(name: str) -> None:
    loss, logits = create_loss(name), LOGITS.clone().requires_grad_()
    soft, plain = soft_label_loss(loss, logits, one_hot(LABELS, 5)), loss(logits, LABELS)
    torch.testing.assert_close(soft, plain)
    (a,), (b,) = torch.autograd.grad(soft, logits), torch.autograd.grad(plain, logits)
    torch.testing.assert_close(a, b)


def test_soft_labels_match_torch_and_mrkld_has_the_printed_gradient() -> None:
    shares = torch.softmax(torch.randn(12, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
    objective = Objective(create_loss("cross_entropy"))
    torch.testing.assert_close(objective(LOGITS, LABELS, soft=shares), cross_entropy(LOGITS, shares))
    logits, p = LOGITS.clone().requires_grad_(), torch.softmax(LOGITS, 1)
    whole = one_hot(LABELS, 5).double()
    (gradient,) = torch.autograd.grad(soft_label_loss(create_loss("cross_entropy"), logits, whole + 0.1 / 5), logits)
    torch.testing.assert_close(12 * gradient, (p - whole) + 0.1 * (p - 1 / 5))


@pytest.mark.parametrize(
    ("loss", "soft", "message"),
    [
        (create_loss("taylor"), LOGITS, "TaylorLoss does not support soft labels: it is not a curve of the margin"),
        (create_loss("cross_entropy", label_smoothing=0.1), LOGITS, "with label_smoothing does not support soft labels"),
        (create_loss("gce", weight=torch.ones(5)), LOGITS, "with weight does not support soft labels"),
        (create_loss("gce"), LOGITS[:, :3], r"must have the shape of the logits, \(12, 5\), got \(12, 3\)"),
    ],
)
def test_unsupported_input_raises(loss: torch.nn.Module, soft: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_label_loss(loss, LOGITS, soft)
