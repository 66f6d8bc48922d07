"""The formulas and gradients of the losses mohs is compared with, against closed forms written out in plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mohs.losses.bootstrap import bootstrap_hard_loss, bootstrap_soft_loss
from mohs.losses.class_weights import class_weights, deferred_weights
from mohs.losses.correction import backward_loss, forward_loss
from mohs.losses.curriculum import self_paced_loss
from mohs.losses.ldam import ldam_loss, ldam_margins
from mohs.losses.logit_adjusted import logit_adjusted_loss
from mohs.losses.smoothing import OnlineSmoothingLoss, online_smoothing_loss
from mohs.losses.softmax_alternatives import spherical_loss, taylor_loss
from mohs.losses.transition import inverse_transition, pair_transition, symmetric_transition

Row = list[float]
K = 3
EXACT = {"rtol": 1e-12, "atol": 1e-12}
HAND = torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.5, 0.5], [0.1, 0.0, 0.9]], dtype=torch.float64)
COFACTORS = [[0.45, -0.18, 0.10], [0.05, 0.72, -0.40], [-0.05, 0.02, 0.40]]  # transposed; the determinant is .37
HAND_INVERSE = [[c / 0.37 for c in row] for row in COFACTORS]


def batch(n: int = 9, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    logits = scale * torch.randn(n, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logits, torch.arange(n) % K


def softmax(z: Row) -> Row:
    return [math.exp(x) / sum(math.exp(x) for x in z) for x in z]


def is_label(y: int) -> Row:
    return [float(k == y) for k in range(K)]


def check(loss: Callable[[Tensor, Tensor], Tensor], value: Callable[[Row, int], float], slope: Callable[[Row, int], Row]) -> None:
    """loss(logits, labels) with reduction="none" has these values and gradients, example by example."""
    logits, labels = batch()
    z = logits.clone().requires_grad_()
    values = loss(z, labels)
    (grad,) = torch.autograd.grad(values.sum(), z)
    for i in range(len(labels)):
        row, y = logits[i].tolist(), int(labels[i])
        torch.testing.assert_close(float(values[i].detach()), value(row, y), **EXACT)
        torch.testing.assert_close(grad[i].tolist(), slope(row, y), **EXACT)


@pytest.mark.parametrize("transition", [HAND, symmetric_transition(K, 0.4, dtype=torch.float64)])
def test_forward(transition: Tensor) -> None:
    t = transition.tolist()

    def seen(z: Row, y: int) -> float:
        return sum(t[k][y] * softmax(z)[k] for k in range(K))

    check(
        lambda z, y: forward_loss(z, y, transition=transition, reduction="none"),
        lambda z, y: -math.log(seen(z, y)),
        lambda z, y: [softmax(z)[j] * (1 - t[j][y] / seen(z, y)) for j in range(K)],
    )


def test_backward_with_the_inverse_worked_out_by_hand() -> None:
    check(
        lambda z, y: backward_loss(z, y, transition=HAND, reduction="none"),
        lambda z, y: sum(-HAND_INVERSE[y][k] * math.log(softmax(z)[k]) for k in range(K)),
        lambda z, y: [softmax(z)[j] * sum(HAND_INVERSE[y]) - HAND_INVERSE[y][j] for j in range(K)],
    )


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_symmetric_transition_and_its_inverse(rate: float) -> None:
    classes = 5
    t = symmetric_transition(classes, rate, dtype=torch.float64)
    off = rate / (classes - 1)
    own = 1 - rate - off  # T = own I + off J, so T⁻¹ = (I − off J)/own
    for i in range(classes):
        for j in range(classes):
            assert t[i, j].item() == pytest.approx(1 - rate if i == j else off, abs=1e-15)
            assert inverse_transition(t)[i, j].item() == pytest.approx(((i == j) - off) / own, abs=1e-12)


def test_pair_transition() -> None:
    expected = [[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]]
    torch.testing.assert_close(pair_transition(3, 0.3, dtype=torch.float64).tolist(), expected, **EXACT)


def test_backward_is_unbiased() -> None:
    """Theorem 1: over the labels that T gives for true class i, the expected loss is cross-entropy with i."""
    logits, _ = batch(4)
    each = torch.stack([backward_loss(logits, torch.full((4,), j), transition=HAND, reduction="none") for j in range(K)], 1)
    torch.testing.assert_close(each @ HAND.t(), -logits.log_softmax(1), **EXACT)


def test_forward_is_stationary_at_the_clean_posterior() -> None:
    """Theorem 2: with labels drawn from Tᵀp, the expected gradient at p is 0."""
    logits, _ = batch(4)
    z = logits.clone().requires_grad_()
    each = torch.stack([forward_loss(z, torch.full((4,), j), transition=HAND, reduction="none") for j in range(K)], 1)
    noisy = logits.softmax(1) @ HAND
    (grad,) = torch.autograd.grad((noisy * each).sum(), z)
    torch.testing.assert_close(grad, torch.zeros_like(grad), **EXACT)
    assert (logits.softmax(1) - noisy).abs().max() > 0.01  # cross-entropy's expected gradient there is not 0


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("b", [0.95, 0.5])
def test_bootstrap_soft(b: float, detach: bool) -> None:
    def entropy(p: Row) -> float:
        return -sum(x * math.log(x) for x in p)

    def slope(z: Row, y: int) -> Row:
        p, e = softmax(z), is_label(y)
        pull = [b * (p[j] - e[j]) for j in range(K)]
        return pull if detach else [pull[j] - (1 - b) * p[j] * (math.log(p[j]) + entropy(p)) for j in range(K)]

    check(
        lambda z, y: bootstrap_soft_loss(z, y, trust=b, detach=detach, reduction="none"),
        lambda z, y: -sum((b * is_label(y)[k] + (1 - b) * softmax(z)[k]) * math.log(softmax(z)[k]) for k in range(K)),
        slope,
    )


@pytest.mark.parametrize("b", [0.8, 0.3])
def test_bootstrap_hard(b: float) -> None:
    def target(z: Row, y: int) -> Row:
        top = z.index(max(z))
        return [b * (k == y) + (1 - b) * (k == top) for k in range(K)]

    check(
        lambda z, y: bootstrap_hard_loss(z, y, trust=b, reduction="none"),
        lambda z, y: -sum(target(z, y)[k] * math.log(softmax(z)[k]) for k in range(K)),
        lambda z, y: [softmax(z)[j] - target(z, y)[j] for j in range(K)],
    )


@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_spherical(eps: float) -> None:
    def total(z: Row) -> float:
        return sum(x * x + eps for x in z)

    check(
        lambda z, y: spherical_loss(z, y, eps=eps, reduction="none"),
        lambda z, y: -math.log((z[y] ** 2 + eps) / total(z)),
        lambda z, y: [2 * z[j] / total(z) - is_label(y)[j] * 2 * z[y] / (z[y] ** 2 + eps) for j in range(K)],
    )


def test_spherical_without_eps_is_the_singular_form() -> None:
    check(
        lambda z, y: spherical_loss(z, y, eps=1e-30, reduction="none"),
        lambda z, y: -math.log(z[y] ** 2 / sum(x * x for x in z)),
        lambda z, y: [2 * z[j] / sum(x * x for x in z) - is_label(y)[j] * 2 / z[y] for j in range(K)],
    )


def test_taylor() -> None:
    def f(x: float) -> float:
        return 1 + x + x * x / 2

    check(
        lambda z, y: taylor_loss(z, y, reduction="none"),
        lambda z, y: -math.log(f(z[y]) / sum(f(x) for x in z)),
        lambda z, y: [(1 + z[j]) * (1 / sum(f(x) for x in z) - is_label(y)[j] / f(z[y])) for j in range(K)],
    )


def test_ldam() -> None:
    counts, s = [625, 81, 16], 30.0
    delta = [0.5 * (1 / 5) / (1 / 2), 0.5 * (1 / 3) / (1 / 2), 0.5]  # n^(−1/4): 1/5, 1/3, 1/2
    torch.testing.assert_close(ldam_margins(torch.tensor(counts, dtype=torch.float64)).tolist(), delta, **EXACT)

    def moved(z: Row, y: int) -> Row:
        """The authors' way: the margin taken from the cosine, the scale after it."""
        return [s * (x / s - (delta[y] if k == y else 0.0)) for k, x in enumerate(z)]

    check(
        lambda z, y: ldam_loss(z, y, counts=torch.tensor(counts), scale=s, reduction="none"),
        lambda z, y: -math.log(softmax(moved(z, y))[y]),
        lambda z, y: [softmax(moved(z, y))[j] - is_label(y)[j] for j in range(K)],
    )


@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_logit_adjusted(tau: float) -> None:
    counts = [60, 30, 10]

    def moved(z: Row) -> Row:
        return [x + tau * math.log(n / 100) for x, n in zip(z, counts, strict=True)]

    check(
        lambda z, y: logit_adjusted_loss(z, y, counts=torch.tensor(counts), tau=tau, reduction="none"),
        lambda z, y: -math.log(softmax(moved(z))[y]),
        lambda z, y: [softmax(moved(z))[j] - is_label(y)[j] for j in range(K)],
    )


def test_deferred_reweighting() -> None:
    """(1 − b)/(1 − b^n), normalized to sum C; b = 0, all equal, before the start."""
    counts, b = [5000, 500, 50], 0.9999
    raw = [(1 - b) / (1 - b**n) for n in counts]
    expected = [3 * w / sum(raw) for w in raw]
    torch.testing.assert_close(class_weights(torch.tensor(counts), "auto").tolist(), expected, rtol=1e-6, atol=0)
    assert deferred_weights(torch.tensor(counts), epoch=159, start=160).tolist() == [1.0, 1.0, 1.0]
    torch.testing.assert_close(deferred_weights(torch.tensor(counts), epoch=160, start=160).tolist(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(class_weights(torch.tensor(counts), "auto", beta=0.0).tolist(), [1.0, 1.0, 1.0])


@pytest.mark.parametrize("kind", ["hard", "linear"])
def test_self_paced(kind: str) -> None:
    threshold = 1.3

    def v(z: Row, y: int) -> float:
        ce = -math.log(softmax(z)[y])
        return float(ce < threshold) if kind == "hard" else max(0.0, 1 - ce / threshold)

    check(
        lambda z, y: self_paced_loss(z, y, threshold=threshold, kind=kind, reduction="none"),
        lambda z, y: -v(z, y) * math.log(softmax(z)[y]),
        lambda z, y: [v(z, y) * (softmax(z)[j] - is_label(y)[j]) for j in range(K)],
    )
    logits, labels = batch()
    left = [v(z, y) for z, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    assert 0 < sum(x > 0 for x in left) < len(left)  # some counted, some did not


SOFT = [[0.6, 0.25, 0.15], [0.2, 0.6, 0.2], [1 / 3, 1 / 3, 1 / 3]]


def test_online_smoothing() -> None:
    soft = torch.tensor(SOFT, dtype=torch.float64)
    check(
        lambda z, y: online_smoothing_loss(z, y, soft_labels=soft, reduction="none"),
        lambda z, y: -sum((0.5 * is_label(y)[k] + 0.5 * SOFT[y][k]) * math.log(softmax(z)[k]) for k in range(K)),
        lambda z, y: [softmax(z)[j] - 0.5 * is_label(y)[j] - 0.5 * SOFT[y][j] for j in range(K)],
    )


def test_online_smoothing_over_two_epochs_by_hand() -> None:
    probs = [
        ([0.7, 0.2, 0.1], 0),
        ([0.5, 0.3, 0.2], 0),
        ([0.1, 0.8, 0.1], 0),  # wrong: not counted
        ([0.2, 0.6, 0.2], 1),
        ([0.3, 0.5, 0.2], 2),  # wrong, and class 2 has no other: uniform
    ]
    logits = torch.tensor([p for p, _ in probs], dtype=torch.float64).log()
    labels = torch.tensor([y for _, y in probs])
    loss = OnlineSmoothingLoss(num_classes=3).double()
    first = sum(-0.5 * math.log(p[y]) for p, y in probs) / 5  # S = 0: half of cross-entropy
    assert loss(logits[:2], labels[:2]) * 2 + loss(logits[2:], labels[2:]) * 3 == pytest.approx(5 * first, abs=1e-12)
    loss.end_epoch()
    torch.testing.assert_close(loss.soft_labels.tolist(), SOFT, **EXACT)
    second = sum(-0.5 * math.log(p[y]) - 0.5 * sum(SOFT[y][k] * math.log(p[k]) for k in range(3)) for p, y in probs) / 5
    assert loss(logits, labels).item() == pytest.approx(second, abs=1e-12)
    loss.end_epoch()  # what the first epoch collected is gone: the same batch gives the same means
    torch.testing.assert_close(loss.soft_labels.tolist(), SOFT, **EXACT)
