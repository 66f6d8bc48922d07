"""Probability targets: one-hot ones are the loss of the label, cross-entropy's are torch's, and other losses say why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import mohs
from mohs.losses import create_loss
from mohs.losses.encouraging import encouraging_loss
from mohs.losses.objective import Objective
from mohs.margin import margin

LOGITS = 3 * torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(12) % 5
SHARES = torch.softmax(torch.randn(12, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1], dtype=torch.float64)
CURVES: list[tuple[str, dict[str, Any]]] = [
    ("cross_entropy", {}),
    ("avh", {}),
    ("mae", {}),
    ("gce", {"q": 0.7}),
    ("truncated_gce", {}),
    ("focal", {"gamma": 2.0}),
    ("symmetric", {}),
    ("encouraging", {}),
    ("gradient_rescaling", {"normalize": "mean"}),
]
NOT_CURVES = {
    "mse": {},
    "forward": {"transition": torch.eye(5)},
    "backward": {"transition": torch.eye(5)},
    "bootstrap_soft": {},
    "bootstrap_hard": {},
    "online_smoothing": {"num_classes": 5},
    "ldam": {"counts": [1, 2, 3, 4, 5]},
    "logit_adjusted": {"counts": [1, 2, 3, 4, 5]},
    "spherical": {},
    "taylor": {},
    "focal": {"alpha": 0.25},
}
OVER_BATCH = {"gradient_rescaling": {}, "self_paced": {}}


def value_and_gradient(loss: Any, target: torch.Tensor, logits: torch.Tensor = LOGITS) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def test_every_loss_takes_them_or_says_why_not() -> None:
    assert {name for name, _ in CURVES} | set(NOT_CURVES) | set(OVER_BATCH) == set(mohs.LOSSES)
    for cases, reason in ((NOT_CURVES, "is not a function of the margin alone"), (OVER_BATCH, "depends on the batch")):
        for name, fields in cases.items():
            with pytest.raises(ValueError, match=f"does not take probability targets: .*{reason}"):
                create_loss(name, **fields)(LOGITS, SHARES)


@pytest.mark.parametrize(("name", "fields"), CURVES)
def test_one_hot_targets_give_the_loss_of_the_label(name: str, fields: dict[str, Any]) -> None:
    for reduction in ("mean", "sum", "none"):
        loss = create_loss(name, reduction=reduction, **fields)
        for soft, plain in zip(
            value_and_gradient(loss, one_hot(LABELS, 5).double()), value_and_gradient(loss, LABELS), strict=True
        ):
            torch.testing.assert_close(soft, plain)


@pytest.mark.parametrize(("name", "fields"), CURVES)
def test_the_loss_is_the_mean_over_classes_by_their_shares(name: str, fields: dict[str, Any]) -> None:
    loss = create_loss(name, reduction="none", weight=WEIGHT, **fields)
    expected = torch.zeros(12, dtype=torch.float64)
    for k in range(5):  # the definition, one class at a time
        expected += WEIGHT[k] * SHARES[:, k] * loss.curve(margin(LOGITS, torch.full((12,), k)))
    torch.testing.assert_close(loss(LOGITS, SHARES), expected)
    each = torch.arange(12.0)
    mean = create_loss(name, weight=WEIGHT, **fields)
    torch.testing.assert_close(mean(LOGITS, SHARES), expected.mean())
    torch.testing.assert_close(mean(LOGITS, SHARES, sample_weight=each), (each * expected).sum() / each.sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_torch(reduction: str, weight: torch.Tensor | None, smoothing: float) -> None:
    options: dict[str, Any] = {"reduction": reduction, "weight": weight, "label_smoothing": smoothing}
    ours = value_and_gradient(mohs.CrossEntropyLoss(**options), SHARES)
    theirs = value_and_gradient(lambda z, q: cross_entropy(z, q, **options), SHARES)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    target = SHARES.clone().requires_grad_()  # distillation differentiates the target
    ours, theirs = (
        torch.autograd.grad(loss(LOGITS, target).sum(), target)
        for loss in (mohs.CrossEntropyLoss(**options), lambda z, q: cross_entropy(z, q, **options))
    )
    torch.testing.assert_close(*ours, *theirs)


@pytest.mark.parametrize(("name", "fields"), CURVES)
def test_blocks_of_rows_give_the_same(name: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    loss = create_loss(name, **fields)
    whole = value_and_gradient(loss, SHARES)
    monkeypatch.setattr("mohs.losses._numerics.row_blocks.ENTRIES", 20)
    for found, expected in zip(value_and_gradient(loss, SHARES), whole, strict=True):
        torch.testing.assert_close(found, expected)
    half = LOGITS.bfloat16()
    for found, expected in zip(
        value_and_gradient(loss, SHARES, half), value_and_gradient(loss, SHARES, half.float()), strict=True
    ):
        torch.testing.assert_close(found, expected.to(found.dtype))
    leaf = LOGITS.clone().requires_grad_()
    value = loss(leaf, SHARES)
    (once,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (graph,) = torch.autograd.grad(value, leaf, create_graph=True)
    assert graph.requires_grad
    torch.testing.assert_close(graph, once)
    assert torch.equal(torch.autograd.grad(value, leaf)[0], once)


def test_a_masked_class_without_share_does_not_count() -> None:
    logits, target = LOGITS.clone(), SHARES.clone()
    logits[:, 2], target[:, 2] = -torch.inf, 0.0
    rest = [0, 1, 3, 4]
    for name, fields in CURVES:
        loss = create_loss(name, **fields)
        value, gradient = value_and_gradient(loss, target, logits)
        few, part = value_and_gradient(loss, target[:, rest], logits[:, rest])
        torch.testing.assert_close(value, few)
        torch.testing.assert_close(gradient[:, rest], part)
        assert not gradient[:, 2].any()


def test_an_objective_takes_them_and_mrkld_has_the_printed_gradient() -> None:
    objective = Objective(create_loss("cross_entropy"))
    torch.testing.assert_close(objective(LOGITS, LABELS, soft=SHARES), cross_entropy(LOGITS, SHARES))
    p, whole = torch.softmax(LOGITS, 1), one_hot(LABELS, 5).double()
    _, gradient = value_and_gradient(create_loss("cross_entropy"), whole + 0.1 / 5)
    torch.testing.assert_close(12 * gradient, (p - whole) + 0.1 * (p - 1 / 5))


@pytest.mark.parametrize("name", ["cross_entropy", "gce"])
def test_no_examples(name: str) -> None:
    assert create_loss(name)(LOGITS[:0], SHARES[:0]).isnan()
    assert create_loss(name, reduction="sum")(LOGITS[:0], SHARES[:0]) == 0


def test_smoothing_passes_the_gradient_to_the_class_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []
    for entries in (20, 1000):  # with and without blocks
        monkeypatch.setattr("mohs.losses._numerics.row_blocks.ENTRIES", entries)
        weight = WEIGHT.clone().requires_grad_()
        encouraging_loss(LOGITS.clone().requires_grad_(), LABELS, weight=weight, label_smoothing=0.1).backward()
        gradients.append(weight.grad)
    assert gradients[0].any()
    torch.testing.assert_close(*gradients)


def test_bad_targets() -> None:
    with pytest.raises(ValueError, match=r"must have the shape of the logits, \(12, 5\), got \(12, 3\)"):
        create_loss("gce")(LOGITS, SHARES[:, :3])
    with pytest.raises(ValueError, match="ignore_index=2 does not work with probability targets"):
        create_loss("gce", ignore_index=2)(LOGITS, SHARES)


@pytest.mark.parametrize("name", ["cross_entropy", "gce", "focal"])
def test_targets_of_torchvision_and_timm(name: str) -> None:
    images, labels = torch.rand(8, 3, 8, 8), torch.arange(8) % 5
    layer, loss = torch.nn.Linear(192, 5), create_loss(name)
    mixers = []
    transforms = pytest.importorskip("torchvision.transforms.v2")
    mixers += [transforms.MixUp(num_classes=5), transforms.CutMix(num_classes=5)]
    mixers.append(pytest.importorskip("timm.data").Mixup(num_classes=5, label_smoothing=0.1))
    for mix in mixers:
        mixed, target = mix(images, labels) if not hasattr(mix, "label_smoothing") else _on_cpu(mix, images, labels)
        logits = layer(mixed.flatten(1))
        value = loss(logits, target)
        if name == "cross_entropy":
            torch.testing.assert_close(value, cross_entropy(logits, target))
        value.backward()
        assert layer.weight.grad.isfinite().all()


def _on_cpu(mix: Any, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """timm's Mixup, which changes the images in place."""
    return mix(images.clone(), labels)
