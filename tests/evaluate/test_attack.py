"""Attacks: exact on linear models, never above clean accuracy, inside ball and box; masked gradients are seen."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from mohs._core.errors import DataError
from mohs.evaluate.attack import ATTACKS, FGSM, PGD, perturb, robust_accuracy, standard_attacks
from mohs.evaluate.attack_loss import ATTACK_LOSSES
from mohs.evaluate.masking import masking_report, zero_gradient_share

LOSSES = tuple(ATTACK_LOSSES)


def linear(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Two classes in ten pixels, far from the box's walls, with labels that are mostly right."""
    torch.manual_seed(0)
    net = nn.Linear(10, 2, dtype=dtype)
    x = 0.5 + 0.2 * torch.rand(200, 10, dtype=dtype) - 0.1
    return net, x, net(x).argmax(1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in ("dlr", "logit")])
def test_on_a_linear_model_attacks_are_exact(norm: str, loss: str) -> None:
    net, x, y = linear()
    w = (net.weight[0] - net.weight[1]).detach()
    z = net(x).detach()
    gap = (z[:, 0] - z[:, 1]).abs()
    eps = 0.05 if norm == "linf" else 0.1
    reach = eps * (w.abs().sum() if norm == "linf" else w.norm())
    for attack in (FGSM(loss=loss), PGD(loss=loss, steps=10)):
        found = robust_accuracy(net, x, y, eps=eps, norm=norm, attacks=[attack])
        assert found.worst == pytest.approx(float((gap > reach).double().mean()), abs=0.011)
        assert 0 < found.worst < 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_zero_budget_is_clean_accuracy_and_accuracy_never_rises(trained, digits, norm: str) -> None:
    images, labels = digits[0][1200:1400], digits[1][1200:1400]
    curve = [robust_accuracy(trained, images, labels, eps=eps, norm=norm, attacks=["fgsm", "pgd"]) for eps in (0, 0.05, 0.2)]
    clean = float((trained(images).argmax(1) == labels).double().mean())
    assert curve[0].worst == curve[0].clean == clean
    assert set(curve[0].attacks.values()) == {clean}
    for less, more in pairwise(curve):
        assert more.worst <= less.worst
    for row in curve:
        assert row.worst <= min(row.attacks.values()) <= row.clean
        assert row.survived.double().mean() == row.worst


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.7)])
def test_attacked_images_stay_in_ball_and_box_and_are_misclassified_as_reported(trained, digits, norm: str, eps: float) -> None:
    images, labels = digits[0][1200:1300], digits[1][1200:1300]
    for attack in (FGSM(), PGD(steps=5, restarts=2)):
        moved, broken = perturb(trained, images, labels, attack, eps=eps, norm=norm, batch_size=33)
        change = (moved - images).flatten(1)
        length = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
        assert length.max() <= eps * (1 + 1e-5)
        assert moved.min() >= 0
        assert moved.max() <= 1
        assert torch.equal(broken, trained(moved).argmax(1) != labels)


def test_restarts_and_more_attacks_never_hurt_the_attacker(trained, digits) -> None:
    images, labels = digits[0][1200:1400], digits[1][1200:1400]
    one = perturb(trained, images, labels, PGD(steps=3), eps=0.1)[1]
    many = perturb(trained, images, labels, PGD(steps=3, restarts=4), eps=0.1)[1]
    assert (many >= one).all()
    again = perturb(trained, images, labels, PGD(steps=3), eps=0.1)[1]
    assert torch.equal(one, again)  # the seed decides
    found = robust_accuracy(trained, images, labels, eps=0.1)
    assert list(found.attacks) == ["fgsm cross_entropy", "pgd cross_entropy", "pgd margin", "pgd dlr"]
    assert found.attacks["pgd cross_entropy"] < found.attacks["fgsm cross_entropy"] < found.clean


def test_uint8_is_the_same_image(trained, digits) -> None:
    images, labels = (digits[0][1200:1260] * 255).round().byte(), digits[1][1200:1260]
    whole, part = (robust_accuracy(trained, x, labels, eps=0.1, attacks=["fgsm"]) for x in (images, images.float() / 255))
    assert whole.attacks == part.attacks


def test_model_and_caller_state_are_unchanged(trained, digits) -> None:
    trained.body[3].train()
    trained.head.bias.requires_grad_(False)
    try:
        with torch.no_grad():  # an attack needs gradients, whatever the caller has switched off
            found = robust_accuracy(trained, digits[0][:50], digits[1][:50], eps=0.2, attacks=["fgsm"])
        assert found.worst < found.clean
        assert trained.body[3].training
        assert not trained.training
        assert not trained.head.bias.requires_grad
        assert all(p.requires_grad and p.grad is not None for p in trained.body.parameters())  # of its training: as they were
    finally:
        trained.eval()
        trained.head.bias.requires_grad_(True)


def test_losses_match_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (6,), generator=generator)
    for i in range(6):
        row, own = z[i].tolist(), int(y[i])
        other = max(v for k, v in enumerate(row) if k != own)
        top = sorted(row, reverse=True)
        sd = float(torch.tensor(row, dtype=torch.float64).std())
        expected = {
            "cross_entropy": math.log(sum(math.exp(v) for v in row)) - row[own],
            "margin": other - row[own],
            "dlr": (other - row[own]) / (top[0] - top[2]),
            "scaled": math.log(sum(math.exp(v / sd) for v in row)) - row[own] / sd,
            "logit": -row[own],
        }
        for name, value in expected.items():
            assert float(ATTACK_LOSSES[name](z[i : i + 1], y[i : i + 1])) == pytest.approx(value)


def test_a_saturated_model_is_detected(trained, digits) -> None:
    images, labels = digits[0][1200:1400], digits[1][1200:1400]
    honest = masking_report(trained, images, labels, eps=0.1, steps=10)
    assert not honest.suspected
    assert honest.reasons == ()
    assert honest.zero_gradients < 0.01

    def loud(x: torch.Tensor) -> torch.Tensor:
        return 3000 * trained(x)

    for norm, eps in (("linf", 0.1), ("l2", 0.7)):
        masked = masking_report(loud, images, labels, eps=eps, norm=norm, steps=10)
        assert masked.suspected
        assert masked.zero_gradients > 0.5
        assert [reason.split(":")[0] for reason in masked.reasons][:2] == ["loss", "zero"]
        assert masked.accuracies["pgd cross_entropy"] > masked.accuracies["pgd margin"] + 0.2
    margin = masked.accuracies["worst"]
    assert margin == pytest.approx(
        masking_report(trained, images, labels, eps=0.7, norm="l2", steps=10).accuracies["worst"], abs=0.1
    )
    assert zero_gradient_share(loud, images, labels, loss="margin") < 0.01


def test_two_classes_have_no_dlr() -> None:
    net, x, y = linear(torch.float32)
    assert [attack.loss for attack in standard_attacks(2)] == ["cross_entropy", "cross_entropy", "margin"]
    assert robust_accuracy(net, x, y, eps=0.01).worst <= 1
    assert "pgd dlr" not in masking_report(net, x, y, eps=0.01, steps=3).accuracies
    with pytest.raises(ValueError, match='the attack loss "dlr" needs at least 3 classes, got 2: use "margin"'):
        robust_accuracy(net, x, y, eps=0.01, attacks=[{"name": "pgd", "loss": "dlr"}])


def test_what_is_refused(trained, digits) -> None:
    x, y = digits[0][:8], digits[1][:8]
    with pytest.raises(ValueError, match=r"unknown attack 'cw'; known: fgsm, pgd"):
        robust_accuracy(trained, x, y, eps=0.1, attacks=["cw"])
    with pytest.raises(ValueError, match=r"pgd has no field 'alpha'; its fields: loss, steps, step, restarts, random_start"):
        robust_accuracy(trained, x, y, eps=0.1, attacks=[{"name": "pgd", "alpha": 1}])
    with pytest.raises(ValueError, match=r"attacks contains pgd cross_entropy twice: pass them as \{label: attack\}"):
        robust_accuracy(trained, x, y, eps=0.1, attacks=["pgd", PGD(steps=3)])
    assert set(robust_accuracy(trained, x, y, eps=0.1, attacks={"a": PGD(steps=1), "b": PGD(steps=2)}).attacks) == {"a", "b"}
    with pytest.raises(ValueError, match=r"eps must be at least 0, got -1"):
        robust_accuracy(trained, x, y, eps=-1)
    with pytest.raises(ValueError, match=r"norm must be one of linf, l2, got 'l1'"):
        robust_accuracy(trained, x, y, eps=0.1, norm="l1")
    with pytest.raises(DataError, match=r"images must lie in 0..1, got 0 to 16: attack images before normalization"):
        robust_accuracy(trained, 16 * x, y, eps=0.1)
    with pytest.raises(ValueError, match=r"images must be uint8 or floats from 0 to 1, got torch.int64"):
        robust_accuracy(trained, x.long(), y, eps=0.1)
    with pytest.raises(DataError, match=r"labels\[0\] is 11, but there are 10 classes"):
        robust_accuracy(trained, x, y + 11, eps=0.1)
    with pytest.raises(ValueError, match="the loss has no gradient with respect to the inputs"):
        robust_accuracy(lambda x: trained(x).detach(), x, y, eps=0.1)
    with pytest.raises(ValueError, match=r"labels has 7 rows and images 8: both must describe the same examples"):
        perturb(trained, x, y[:7], FGSM(), eps=0.1)
    with pytest.raises(ValueError, match=r"eps must be over 0, got 0"):
        masking_report(trained, x, y, eps=0)
    with pytest.raises(ValueError, match=r"images must be one tensor \(N, ...\), got list"):
        masking_report(trained, [x], y, eps=0.1)
    with pytest.raises(DataError, match=r"images must lie in 0..1"):
        perturb(trained, 2 * x, y, FGSM(), eps=0.1)
    for kind in ATTACKS.values():
        with pytest.raises(ValueError, match=r"loss must be one of cross_entropy, margin"):
            kind(loss="hinge")
    with pytest.raises(ValueError, match=r"steps must be at least 1, got 0"):
        PGD(steps=0)
    with pytest.raises(ValueError, match=r"step must be over 0"):
        PGD(step=0.0)
