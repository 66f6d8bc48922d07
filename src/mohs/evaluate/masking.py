"""Gradient masking: five checks of whether a model only appears robust because attacks get no useful gradient.

    loss       PGD on cross-entropy leaves much more accuracy than PGD on margin, DLR or rescaled logits
    iteration  one step is more successful than many
    zero       the gradient of cross-entropy is exactly 0 at many correctly classified inputs
    range      with the whole pixel range allowed, accuracy stays above chance
    growth     a larger budget leaves much more accuracy than a smaller one

"Much" is `tolerance`, 0.05 by default. Passing all checks is not a proof of robustness.
Athalye, Carlini & Wagner, "Obfuscated gradients give a false sense of security" (ICML 2018), section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs._core.eval_mode import eval_mode
from mohs._core.validation import check_between, check_choice
from mohs.evaluate.attack import FGSM, PGD, Attack, checked_pixels, input_gradient, robust_accuracy
from mohs.evaluate.attack_loss import ATTACK_LOSSES
from mohs.evaluate.outputs import Model, input_batches, logits_over
from mohs.evaluate.validate_inputs import class_labels


@dataclass(frozen=True, eq=False)
class Masking:
    """Result of the checks.

    Attributes:
        suspected: Whether any check failed.
        reasons: One sentence per failed check.
        accuracies: Accuracies from 0 to 1 under each attack.
        zero_gradients: Share of correctly classified inputs whose gradient is exactly 0.
    """

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
    """Check a model for gradient masking.

    Args:
        model: Any callable that returns logits.
        images: (N, ...), floats from 0 to 1 or uint8; a few hundred are enough.
        labels: (N,), class indices.
        eps: Radius of the ball.
        norm: "linf" or "l2".
        steps: Number of PGD steps.
        tolerance: Differences of accuracy below this are ignored.
        batch_size: Images attacked at once.
        seed: Random seed of the attacks.
    """
    check_between("eps", eps, 0, ends="(]")
    check_between("tolerance", tolerance, 0, 1)
    if not isinstance(images, Tensor):
        raise ValueError(f"images must be one tensor (N, ...), got {type(images).__name__}: load a few hundred into memory")
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
    """The share of correctly classified examples whose input gradient is exactly 0; NaN if none is correct."""
    check_choice("loss", loss, tuple(ATTACK_LOSSES))
    images = checked_pixels(images)
    right = logits_over(model, images, batch_size=batch_size)
    y = class_labels(labels, count=len(right), classes=right.shape[1], device=right.device)
    right, zeros = right.argmax(1) == y, []
    with eval_mode(model, freeze=True) as device:
        for rows, x in input_batches(images, batch_size, device):
            gradient, _ = input_gradient(model, x, y[rows], loss)
            zeros.append((gradient == 0).flatten(1).all(1))
    return float((torch.cat(zeros) & right).sum() / right.sum())


def _reasons(found: dict[str, float], zero: float, classes: int, tolerance: float) -> list[str]:
    iterated = found["pgd cross_entropy"]
    others = {name: accuracy for name, accuracy in found.items() if name in ("pgd margin", "pgd dlr", "pgd scaled")}
    name, lowest = min(others.items(), key=lambda item: item[1])
    reasons = []
    if iterated - lowest > tolerance:
        reasons.append(f"loss: {iterated:.1%} survive PGD on cross-entropy but {lowest:.1%} survive {name}")
    if iterated - found["fgsm"] > tolerance:
        reasons.append(f"iteration: one step leaves {found['fgsm']:.1%}, many leave {iterated:.1%}")
    if zero > tolerance:
        reasons.append(f"zero: the gradient is exactly 0 at {zero:.1%} of the correctly classified")
    if found["pgd at full range"] > 1 / classes + tolerance:
        reasons.append(
            f"range: with all pixel values allowed {found['pgd at full range']:.1%} survive, chance is {1 / classes:.1%}"
        )
    if iterated - found["pgd at ε/2"] > tolerance:
        reasons.append(f"growth: {iterated:.1%} survive ε but {found['pgd at ε/2']:.1%} survive ε/2")
    return reasons
