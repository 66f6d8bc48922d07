"""Curves of degradation: what a level means is the caller's; noise makes digits harder."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mohs.evaluate.degrade_curve import degrade_curve, trend
from mohs.evaluate.outputs import outputs_over
from mohs.hardness.angular import avh

CONTRAST_LEVELS, NOISE_LEVELS = (0.1, 0.2, 0.3, 0.6, 1.0), (0.0, 0.1, 0.2, 0.3, 0.4)


def noisy(images: Tensor, level: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (images + level * (2 * torch.rand(images.shape, generator=generator) - 1)).clamp(0, 1)


def paler(images: Tensor, level: float) -> Tensor:
    return images * level + 0.5 * (1 - level)


def test_noise_and_low_contrast_make_digits_harder(trained, digits) -> None:
    images, labels = digits[0][1200:], digits[1][1200:]
    curve = degrade_curve(trained, images, labels, noisy, NOISE_LEVELS, batch_size=200)
    assert [row.level for row in curve] == list(NOISE_LEVELS)
    assert trend(curve) > 0.8
    assert trend(curve, "accuracy") < -0.8
    assert trend(degrade_curve(trained, images, labels, paler, CONTRAST_LEVELS)) < -0.8
    out = outputs_over(trained, images)
    assert curve[0].accuracy == pytest.approx(float((out.logits.argmax(1) == labels).double().mean()))
    assert curve[0].avh == pytest.approx(float(avh(out.features, out.weight, labels).mean()), rel=1e-4)
    assert curve[0].norm == pytest.approx(float(out.features.norm(dim=1).mean()), rel=1e-4)
    p = out.logits.softmax(1).gather(1, labels.unsqueeze(1)).mean()
    assert curve[0].confidence == pytest.approx(float(p), rel=1e-4)


def test_what_is_refused(trained, digits) -> None:
    x, y = digits[0][:20], digits[1][:20]
    with pytest.raises(ValueError, match="levels is empty"):
        degrade_curve(trained, x, y, noisy, [])
    with pytest.raises(ValueError, match=r"degrade must keep the shape \(20, 1, 8, 8\), got \(20, 1, 8\) at level 0.5"):
        degrade_curve(trained, x, y, lambda images, level: images[..., 0], [0.5])
    with pytest.raises(ValueError, match=r"labels must have shape \(20,\)"):
        degrade_curve(trained, x, y[:5], noisy, [0.5])
    curve = degrade_curve(trained, x, y, noisy, [0.0, 0.1])
    assert math.isnan(trend(curve))
    with pytest.raises(ValueError, match="measure must be one of avh, avc, norm, confidence, accuracy, got 'loss'"):
        trend(curve, "loss")
