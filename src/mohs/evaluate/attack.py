"""Accuracy when every input may be changed a little by somebody who knows the model: FGSM and PGD, the worst case an example.

    x ← Π(x + α · sign ∇ℓ)            L∞: Π keeps |δ| ≤ ε              FGSM: one step of α = ε from x itself
    x ← Π(x + α · ∇ℓ/‖∇ℓ‖₂)           L2: Π keeps ‖δ‖₂ ≤ ε             PGD: many, from a random start, some times over

All in the inputs' own units with pixels kept in 0..1. An example is broken once any iterate of any restart is misclassified,
the untouched input included: accuracy never exceeds the clean one and ε = 0 gives it exactly. What is reported is an upper
bound of robustness; `masking.py` says whether it is a loose one.
Goodfellow et al. (ICLR 2015); Madry et al., "Towards deep learning models resistant to adversarial attacks" (ICLR 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.specs import create_spec
from mohs._core.validation import check_between, check_choice
from mohs.evaluate.attack_ball import BOX, NORMS, direction, noise, wide, within
from mohs.evaluate.attack_loss import ATTACK_LOSSES
from mohs.evaluate.outputs import Model, evaluating, input_batches, logits_of, logits_over
from mohs.evaluate.validate_inputs import class_labels, same_length


@dataclass(frozen=True, kw_only=True)
class FGSM:
    """One step of the whole budget from the input itself."""

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
    """Many steps (α = `step`, by default 2.5 ε/steps), each followed by the projection onto the ball."""

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
    """Accuracies from 0 to 1 at one ε: clean, under each attack, under the worst for each example; who survived all (N,)."""

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
    """images (N, ...) as floats 0..1 or uint8, labels (N,) -> accuracy under attack.

    attacks: names, `{name = "pgd", loss = "margin"}`, attacks, or {label: attack}; by default FGSM and 40-step PGD on
    cross-entropy, margin and (from 3 classes) DLR.
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


def robustness_curve(model: Model, images: Any, labels: Any, *, eps: Sequence[float], **options: Any) -> list[Robustness]:
    """`robust_accuracy` at each ε, options as there."""
    return [robust_accuracy(model, images, labels, eps=one, **options) for one in eps]


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
    """The attacked images (N, ...), each the first that was misclassified or else the last tried, and whether it was (N,)."""
    check_between("eps", eps, 0)
    check_choice("norm", norm, NORMS)
    same_length(images=images, labels=labels)
    parts, start = [], 0
    with evaluating(model) as device:
        for batch in input_batches(images, batch_size, device):
            generator = torch.Generator(batch.device).manual_seed(seed + start)
            y = labels[start : start + len(batch)].to(batch.device)
            parts.append(_search(model, checked_pixels(batch), y, attack, eps, norm, generator))
            start += len(batch)
    return torch.cat([x for x, _ in parts]), torch.cat([broken for _, broken in parts])


def input_gradient(model: Model, x: Tensor, labels: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    """Gradient of the loss by the inputs (n, ...), and the logits (n, K) there."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = logits_of(model(x))
        value = ATTACK_LOSSES[loss](logits, labels).sum()
        if not value.requires_grad:
            raise ValueError(
                "the model gives its inputs no gradient (is it run under no_grad, or does it round?): no attack runs"
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
    """One batch: the images found and whether each is misclassified."""
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
    """The broken stay as they are; the others move on to what was tried."""
    return torch.where(wide(broken, tried), found, tried), broken | (logits.argmax(1) != y)


def checked_pixels(images: Any) -> Any:
    """The images again; a tensor of floats is looked at, and refused where it leaves the box."""
    if not isinstance(images, Tensor) or images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise ValueError(f"images must be uint8 or floats from 0 to 1, got {images.dtype}")
    if images.numel() and not bool(((images >= BOX[0]) & (images <= BOX[1])).all()):
        low, high = images.aminmax()
        raise DataError(
            f"images must lie in 0..1, got {float(low):.3g} to {float(high):.3g}: "
            "attack before normalizing, with the scale in the model"
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
            raise ValueError(f"attacks holds {name} twice: pass them as {{label: attack}}")
        named[name] = attack
    return named
