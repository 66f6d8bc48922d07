"""Losses that attacks maximize, per example.

    cross_entropy   −log p_y                        its gradient vanishes where the softmax is saturated
    margin          max_{k≠y} z_k − z_y             Carlini & Wagner's: never vanishes, positive exactly on errors
    dlr             (max_{k≠y} z_k − z_y)/(z_(1) − z_(3))    the same, invariant to scale and shift; z_(i): the i-th largest
    scaled          cross-entropy of z/SD(z)        SD over the classes, not differentiated: no saturation at any scale
    logit           −z_y                            as in Encouraging Loss's published FGSM

If attacks on the first succeed much less often than on the others, gradients are masked and the model is not robust.
Carlini & Wagner (S&P 2017); Croce & Hein, "Reliable evaluation of adversarial robustness" (ICML 2020), eq. 6.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as plain_cross_entropy

TINY = 1e-12

AttackLoss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """torch's cross-entropy, which saturates: the most common choice."""
    return plain_cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The largest other logit minus the label's (N,)."""
    index = labels.unsqueeze(1)
    return logits.scatter(1, index, -torch.inf).amax(1) - logits.gather(1, index).squeeze(1)


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """Difference of logits ratio (N,); needs three classes."""
    if logits.shape[1] < 3:
        raise ValueError(f'the attack loss "dlr" needs at least 3 classes, got {logits.shape[1]}: use "margin"')
    top = logits.topk(3, 1).values
    return margin(logits, labels) / (top[:, 0] - top[:, 2] + TINY)


def scaled(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits brought to standard deviation 1 in each row (N,)."""
    return cross_entropy(logits / (logits.detach().std(1, keepdim=True) + TINY), labels)


def logit(logits: Tensor, labels: Tensor) -> Tensor:
    """Minus the label's logit (N,)."""
    return -logits.gather(1, labels.unsqueeze(1)).squeeze(1)


ATTACK_LOSSES: dict[str, AttackLoss] = {
    "cross_entropy": cross_entropy,
    "margin": margin,
    "dlr": dlr,
    "scaled": scaled,
    "logit": logit,
}
