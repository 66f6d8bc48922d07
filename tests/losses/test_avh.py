"""The AVH loss: one call is head and cross-entropy in one, with all the options."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from mohs.heads.avh import AVHHead
from mohs.losses.avh import AVHLoss, avh_loss

CLASS_WEIGHT = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
OPTIONS = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"label_smoothing": 0.1},
    {"class_weight": CLASS_WEIGHT},
    {"class_weight": CLASS_WEIGHT, "label_smoothing": 0.2, "reduction": "none"},
    {"ignore_index": 1},
]


def batch(n: int = 12) -> tuple[AVHHead, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    features = torch.randn(n, 6, dtype=torch.float64, requires_grad=True)
    return AVHHead(6, 4, scale=7.0).double(), features, torch.randint(4, (n,))


@pytest.mark.parametrize("options", OPTIONS)
def test_function_equals_head_module_and_torch_cross_entropy(options: dict) -> None:
    head, features, labels = batch()
    value = avh_loss(features, head.weight, labels, scale=7.0, **options)
    weight = options.get("class_weight")
    named = {"weight": weight, **{k: v for k, v in options.items() if k != "class_weight"}}
    torch.testing.assert_close(value, AVHLoss(**named)(head(features), labels))
    unit = torch.nn.functional.normalize
    theta = torch.arccos(unit(features, dim=1) @ unit(head.weight, dim=1).T)
    torch.testing.assert_close(value, cross_entropy(-7.0 * theta, labels, **named))


def test_sample_weight_and_gradient() -> None:
    head, features, labels = batch()
    w = torch.arange(12, dtype=torch.float64)
    terms = avh_loss(features, head.weight, labels, scale=7.0, reduction="none")
    torch.testing.assert_close(avh_loss(features, head.weight, labels, scale=7.0, sample_weight=w), (terms * w).sum() / w.sum())
    assert torch.autograd.gradcheck(lambda x, v: avh_loss(x, v, labels, scale=7.0), (features, head.weight))


def test_scale_is_required_and_class_weights_are_separate() -> None:
    head, features, labels = batch()
    with pytest.raises(TypeError, match="scale"):
        avh_loss(features, head.weight, labels)
    with pytest.raises(ValueError, match="weight must have one entry for each of the 4 classes"):
        avh_loss(features, head.weight, labels, scale=7.0, class_weight=head.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_where_features_are_weights_their_opposites_or_zero(dtype: torch.dtype) -> None:
    head = AVHHead(6, 4)
    own = head.weight.detach()
    features = torch.cat([own, -own, 0 * own, 1e4 * own]).to(dtype).requires_grad_()
    value = avh_loss(features, head.weight, torch.arange(4).repeat(4), scale=20.0)
    assert value.dtype == torch.float32
    for grad in (value, *torch.autograd.grad(value, (features, head.weight))):
        assert grad.isfinite().all()


def test_repr_rebuilds() -> None:
    loss = AVHLoss(weight=[1.0, 2.0], reduction="sum", label_smoothing=0.1)
    assert repr(eval(repr(loss))) == repr(loss)
    assert "scale" not in repr(loss)
