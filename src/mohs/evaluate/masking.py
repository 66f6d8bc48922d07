"""Whether a model that looks robust only hides its gradients: five checks, each of which a sound evaluation passes.

    loss       PGD on cross-entropy leaves much more accuracy than PGD on margin, DLR or rescaled logits
    iteration  one step does more harm than many
    zero       the gradient of cross-entropy is exactly 0 at many correctly classified inputs
    range      with the whole pixel range to choose from accuracy stays above chance
    growth     a larger budget leaves much more accuracy than a smaller one

"Much" is `tolerance`, .05 by default. Passing is no proof: it says that these five did not find masking.
Athalye, Carlini & Wagner, "Obfuscated gradients give a false sense of security" (ICML 2018), section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.validation import check_between, check_choice
from mohs.evaluate.attack import FGSM, PGD, Attack, checked_pixels, input_gradient, robust_accuracy
from mohs.evaluate.attack_loss import ATTACK_LOSSES
from mohs.evaluate.outputs import Model, evaluating, input_batches, logits_over
from mohs.evaluate.validate_inputs import class_labels


@dataclass(frozen=True, eq=False)
class Masking:
    """What was found: whether masking is suspected, a sentence for each check that failed, and the accuracies behind them."""

    suspected: bool
    reasons: tuple[str, ...]
    accuracies: dict[str, float]
    zero_gradients: float


def masking_report(
    model: Model,
    images: Tensor,
    labels: Any,
    *,
    eps: float,
    norm: str = "linf",
    steps: int = 20,
    tolerance: float = 0.05,
    batch_size: int = 256,
    seed: int = 0,
) -> Masking:
    """images (N, ...) as floats 0..1 or uint8, labels (N,) -> the report at this ε."""
    check_between("eps", eps, 0, ends="(]")
    check_between("tolerance", tolerance, 0, 1)
    if not isinstance(images, Tensor):
        raise ValueError(f"images must be one tensor (N, ...), got {type(images).__name__}: take a few hundred into memory")
    options: dict[str, Any] = {"norm": norm, "batch_size": batch_size, "seed": seed}
    attacks: dict[str, Attack] = {"fgsm": FGSM()}
    classes = logits_over(model, checked_pixels(images[:1])).shape[1]
    losses = ("cross_entropy", "margin", "dlr", "scaled") if classes > 2 else ("cross_entropy", "margin", "scaled")
    attacks |= {f"pgd {loss}": PGD(loss=loss, steps=steps) for loss in losses}
    at_eps = robust_accuracy(model, images, labels, eps=eps, attacks=attacks, **options)
    whole = 1.0 if norm == "linf" else math.sqrt(images[0].numel())
    plain = {"pgd": attacks["pgd cross_entropy"]}
    half = robust_accuracy(model, images, labels, eps=eps / 2, attacks=plain, **options)
    free = robust_accuracy(model, images, labels, eps=whole, attacks=plain, **options)
    found = {"clean": at_eps.clean, **at_eps.attacks, "pgd at ε/2": half.attacks["pgd"], "pgd at full range": free.attacks["pgd"]}
    found["worst"] = at_eps.worst
    zero = zero_gradient_share(model, images, labels, batch_size=batch_size)
    reasons = tuple(_reasons(found, zero, classes, tolerance))
    return Masking(bool(reasons), reasons, found, zero)


def zero_gradient_share(
    model: Model, images: Tensor, labels: Any, *, loss: str = "cross_entropy", batch_size: int = 256
) -> float:
    """Of the correctly classified, the share whose input gradient is exactly 0; NaN where none is correct."""
    check_choice("loss", loss, tuple(ATTACK_LOSSES))
    images = checked_pixels(images)
    right = logits_over(model, images, batch_size=batch_size)
    y = class_labels(labels, count=len(right), classes=right.shape[1], device=right.device)
    right, zeros, start = right.argmax(1) == y, [], 0
    with evaluating(model) as device:
        for x in input_batches(images, batch_size, device):
            gradient, _ = input_gradient(model, x, y[start : start + len(x)], loss)
            zeros.append((gradient == 0).flatten(1).all(1))
            start += len(x)
    return float((torch.cat(zeros) & right).sum() / right.sum())


def _reasons(found: dict[str, float], zero: float, classes: int, tolerance: float) -> list[str]:
    iterated = found["pgd cross_entropy"]
    others = {name: accuracy for name, accuracy in found.items() if name in ("pgd margin", "pgd dlr", "pgd scaled")}
    name, lowest = min(others.items(), key=lambda item: item[1])
    told = []
    if iterated - lowest > tolerance:
        told.append(f"loss: {iterated:.1%} survive PGD on cross-entropy but {lowest:.1%} survive {name}")
    if iterated - found["fgsm"] > tolerance:
        told.append(f"iteration: one step leaves {found['fgsm']:.1%}, many leave {iterated:.1%}")
    if zero > tolerance:
        told.append(f"zero: the gradient is exactly 0 at {zero:.1%} of the correctly classified")
    if found["pgd at full range"] > 1 / classes + tolerance:
        told.append(f"range: with all pixel values allowed {found['pgd at full range']:.1%} survive, chance is {1 / classes:.1%}")
    if iterated - found["pgd at ε/2"] > tolerance:
        told.append(f"growth: {iterated:.1%} survive ε but {found['pgd at ε/2']:.1%} survive ε/2")
    return told
