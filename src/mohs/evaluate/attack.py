"""Accuracy under white-box adversarial attacks: FGSM and PGD, worst case per example.

    x ← Π(x + α · sign ∇ℓ)            L∞: Π keeps |δ| ≤ ε              FGSM: one step of α = ε from x itself
    x ← Π(x + α · ∇ℓ/‖∇ℓ‖₂)           L2: Π keeps ‖δ‖₂ ≤ ε             PGD: many, from a random start, with restarts

All in the inputs' own units, with pixels kept in 0..1. An example is broken once any iterate of any restart is misclassified,
the clean input included: robust accuracy never exceeds the clean one, and equals it for ε = 0. The result is an upper bound
of robustness; `masking` checks whether it is a loose one.
Goodfellow et al. (ICLR 2015); Madry et al., "Towards deep learning models resistant to adversarial attacks" (ICLR 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.eval_mode import eval_mode
from mohs._core.specs import create_spec
from mohs._core.validation import check_between, check_choice
from mohs.evaluate.attack_ball import BOX, NORMS, direction, noise, wide, within
from mohs.evaluate.attack_loss import ATTACK_LOSSES
from mohs.evaluate.outputs import Model, input_batches, logits_of, logits_over
from mohs.evaluate.validate_inputs import class_labels, same_length


@dataclass(frozen=True, kw_only=True)
class FGSM:
    """One step of size ε from the clean input."""

    loss: str = "cross_entropy"
    steps: ClassVar[int] = 1
    restarts: ClassVar[int] = 1
    random_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, tuple(ATTACK_LOSSES))

    def step_size(self, eps: float) -> float:
        return eps


@dataclass(frozen=True, kw_only=True)
class PGD:
    """Many steps (α = `step`, default 2.5 ε/steps), each followed by a projection onto the ball."""

    loss: str = "cross_entropy"
    steps: int = 40
    step: float | None = None
    restarts: int = 1
    random_start: bool = True

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, tuple(ATTACK_LOSSES))
        check_between("steps", self.steps, 1)
        check_between("restarts", self.restarts, 1)
        if self.step is not None:
            check_between("step", self.step, 0, ends="(]")

    def step_size(self, eps: float) -> float:
        return 2.5 * eps / self.steps if self.step is None else self.step


Attack = FGSM | PGD
ATTACKS: dict[str, type[Attack]] = {"fgsm": FGSM, "pgd": PGD}


@dataclass(frozen=True, eq=False)
class Robustness:
    """Accuracies from 0 to 1 at one ε.

    Attributes:
        eps: Radius of the ball.
        norm: "linf" or "l2".
        clean: Accuracy without an attack.
        attacks: Accuracy under each attack.
        worst: Accuracy under the worst attack of each example.
        survived: Whether each example (N,) survived all attacks.
    """

    eps: float
    norm: str
    clean: float
    attacks: dict[str, float]
    worst: float
    survived: Tensor


def robust_accuracy(
    model: Model,
    images: Any,
    labels: Any,
    *,
    eps: float,
    norm: str = "linf",
    attacks: Sequence[str | Mapping[str, Any] | Attack] | Mapping[str, Attack] | None = None,
    batch_size: int = 256,
    seed: int = 0,
) -> Robustness:
    """Accuracy of a model under adversarial attacks.

    Args:
        model: Any callable that returns logits.
        images: (N, ...), floats from 0 to 1 or uint8; the model does its own normalization.
        labels: (N,), class indices.
        eps: Radius of the ball.
        norm: "linf" or "l2".
        attacks: Names, specs such as {"name": "pgd", "loss": "margin"}, attacks, or {label: attack}; default: FGSM and
            40-step PGD on cross-entropy, margin and (from 3 classes) DLR.
        batch_size: Images attacked at once.
        seed: Random seed of the starting points.

    Returns:
        Clean accuracy, accuracy under each attack and under the worst of them.

    Example:
        >>> mohs.robust_accuracy(model, images, labels, eps=8 / 255).worst  # doctest: +SKIP
    """
    check_between("eps", eps, 0)
    check_choice("norm", norm, NORMS)
    clean = logits_over(model, checked_pixels(images), batch_size=batch_size)
    y = class_labels(labels, count=len(clean), classes=clean.shape[1], device=clean.device)
    named = _named(standard_attacks(clean.shape[1]) if attacks is None else attacks)
    right = clean.argmax(1) == y
    survived = {}
    for number, (name, attack) in enumerate(named.items()):
        _, broken = perturb(model, images, y, attack, eps=eps, norm=norm, batch_size=batch_size, seed=seed + number)
        survived[name] = right & ~broken
    worst = torch.stack([right, *survived.values()]).all(0).cpu()
    accuracies = {name: float(kept.double().mean()) for name, kept in survived.items()}
    return Robustness(eps, norm, float(right.double().mean()), accuracies, float(worst.double().mean()), worst)


def perturb(
    model: Model,
    images: Any,
    labels: Tensor,
    attack: Attack,
    *,
    eps: float,
    norm: str = "linf",
    batch_size: int = 256,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """The attacked images (N, ...), each the first misclassified iterate or else the last, and which are misclassified (N,)."""
    check_between("eps", eps, 0)
    check_choice("norm", norm, NORMS)
    same_length(images=images, labels=labels)
    parts = []
    with eval_mode(model, freeze=True) as device:
        for rows, batch in input_batches(images, batch_size, device):
            generator = torch.Generator(batch.device).manual_seed(seed + rows.start)
            y = labels[rows].to(batch.device)
            parts.append(_search(model, checked_pixels(batch), y, attack, eps, norm, generator))
    return torch.cat([x for x, _ in parts]), torch.cat([broken for _, broken in parts])


def input_gradient(model: Model, x: Tensor, labels: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    """Gradient of the loss with respect to the inputs (n, ...), and the logits (n, K)."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = logits_of(model(x))
        value = ATTACK_LOSSES[loss](logits, labels).sum()
        if not value.requires_grad:
            raise ValueError(
                "the loss has no gradient with respect to the inputs (does the model use no_grad, or round?): attacks need one"
            )
        (gradient,) = torch.autograd.grad(value, x)
    return gradient, logits.detach()


def standard_attacks(classes: int) -> list[Attack]:
    """FGSM and PGD on cross-entropy, margin and, from three classes, DLR."""
    losses = ("cross_entropy", "margin", "dlr") if classes > 2 else ("cross_entropy", "margin")
    return [FGSM(), *(PGD(loss=loss) for loss in losses)]


def _search(
    model: Model, x: Tensor, y: Tensor, attack: Attack, eps: float, norm: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Attack one batch: the images found, and whether each is misclassified."""
    found, broken, size = x, torch.zeros_like(y, dtype=torch.bool), attack.step_size(eps)
    for _ in range(attack.restarts):
        tried = within(x + noise(x, eps, norm, generator), x, eps, norm) if attack.random_start else x
        for _ in range(attack.steps):
            gradient, logits = input_gradient(model, tried, y, attack.loss)
            found, broken = _keep(found, broken, tried, logits, y)
            tried = within(tried + size * direction(gradient, norm), x, eps, norm)
        with torch.no_grad():
            found, broken = _keep(found, broken, tried, logits_of(model(tried)), y)
    return found, broken


def _keep(found: Tensor, broken: Tensor, tried: Tensor, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Keep broken examples as they are; replace the others by the new candidates."""
    return torch.where(wide(broken, tried), found, tried), broken | (logits.argmax(1) != y)


def checked_pixels(images: Any) -> Any:
    """The images, validated: floats must lie in 0..1."""
    if not isinstance(images, Tensor) or images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise ValueError(f"images must be uint8 or floats from 0 to 1, got {images.dtype}")
    if images.numel() and not bool(((images >= BOX[0]) & (images <= BOX[1])).all()):
        low, high = images.aminmax()
        raise DataError(
            f"images must lie in 0..1, got {float(low):.3g} to {float(high):.3g}: "
            "attack images before normalization, and put the normalization into the model"
        )
    return images


def _named(attacks: Sequence[str | Mapping[str, Any] | Attack] | Mapping[str, Attack]) -> dict[str, Attack]:
    if isinstance(attacks, Mapping):
        return dict(attacks)
    named: dict[str, Attack] = {}
    for given in attacks:
        spec = {"name": given} if isinstance(given, str) else given
        attack: Attack = create_spec(ATTACKS, "attack", spec) if isinstance(spec, Mapping) else spec
        name = f"{type(attack).__name__.lower()} {attack.loss}"
        if name in named:
            raise ValueError(f"attacks contains {name} twice: pass them as {{label: attack}}")
        named[name] = attack
    return named
