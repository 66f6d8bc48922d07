"""Random calls of every loss: where F.cross_entropy is finite in value and gradient, so is the loss.

Logits of every precision and scale, with −inf for classes other than the label, class weights, ignored examples, one or more
further dimensions, and random settings of the loss.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.losses import LOSSES
from stress_outcome import Hang, Outcome, last_call, time_limit

LIMIT = 20.0  # seconds for one call
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SCALES = (0.0, 1e-30, 1e-8, 1e-3, 1.0, 5.0, 30.0, 90.0, 1e3, 6e4, 1e10, 1e30)
UNIT = (0.0, 1e-6, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)
LARGE = (1.5, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0, 30.0)
SHARED = ("weight", "ignore_index", "reduction", "label_smoothing")


def stress_losses(count: int, seed: int = 0) -> Outcome:
    """Try this many random calls."""
    outcome, rng = Outcome("random loss calls"), random.Random(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while outcome.tries < count:
            name = rng.choice(list(LOSSES))
            try:
                with time_limit(LIMIT):
                    attempt(outcome, rng, name)
            except Hang:
                outcome.fail("hang", name)
    return outcome


def attempt(outcome: Outcome, rng: random.Random, name: str) -> None:
    """One call; it counts where cross-entropy is finite."""
    logits, labels = random_batch(rng)
    classes = logits.shape[1]
    options: dict[str, Any] = {"reduction": rng.choice(("mean", "sum", "none")), "ignore_index": rng.choice((-100, 0, 1, 255))}
    if rng.random() < 0.3:
        options["weight"] = torch.rand(classes) * rng.choice((1.0, 100.0)) + rng.choice((0.0, 0.1))
    if rng.random() < 0.3:
        labels = torch.where(torch.rand(labels.shape) < 0.3, options["ignore_index"], labels)
    if not reference_is_finite(logits, labels, options):
        outcome.note("cross-entropy is not finite")
        return
    loss, settings = random_loss(rng, name, classes, options)
    outcome.tries += 1
    what = f"{name}({settings}) {logits.dtype} {tuple(logits.shape)} {shown(options)} logits {logits.flatten().tolist()[:24]}"
    what += f" labels {labels.flatten().tolist()[:8]}"
    z = logits.clone().requires_grad_()
    try:
        made = loss(z, labels)
        (grad,) = torch.autograd.grad(made.sum(), z)
    except Exception as error:
        outcome.fail("traceback", what, last_call(error))
        return
    if made.isfinite().all() and grad.isfinite().all():
        return
    if out_of_range(loss, logits, labels):
        outcome.note("beyond the range of the precision")
    elif not made.isfinite().all():
        outcome.fail("value", what, f"({name} {logits.dtype} value)")
    else:
        outcome.fail("gradient", what, f"({name} {logits.dtype} gradient)")


def out_of_range(loss: Any, logits: Tensor, labels: Tensor) -> bool:
    """Whether value or gradient, computed in float64, are finite but too large for the precision of the logits."""
    z = logits.double().requires_grad_()
    made = loss(z, labels)
    (grad,) = torch.autograd.grad(made.sum(), z)
    most = max(float(made.abs().max()), float(grad.abs().max()))
    return torch.finfo(logits.dtype).max < most < float("inf")


def random_batch(rng: random.Random) -> tuple[Tensor, Tensor]:
    """Logits (N, K, ...) and labels (N, ...)."""
    rows, classes = rng.randrange(1, 6), rng.choice((2, 2, 3, 3, 5, 10, 100))
    extra = rng.choice(((), (), (), (2,), (2, 3)))
    dtype = rng.choice(DTYPES)
    logits = torch.randn(rows, classes, *extra, dtype=torch.float64) * rng.choice(SCALES)
    if rng.random() < 0.3:  # rows of different lengths, as from a network that diverges
        logits = logits * torch.tensor([rng.choice(SCALES) for _ in range(rows)]).view(-1, *[1] * (logits.dim() - 1))
    if rng.random() < 0.3:
        logits = logits + rng.choice((-1e4, -50.0, 50.0, 1e4, 1e30))
    labels = torch.randint(classes, (rows, *extra))
    if rng.random() < 0.3:  # classes that are ruled out
        ruled = torch.rand_like(logits) < rng.choice((0.1, 0.5, 1.0))
        ruled.scatter_(1, labels.unsqueeze(1), value=False)
        logits = logits.masked_fill(ruled, -torch.inf)
    return logits.to(dtype), labels


def reference_is_finite(logits: Tensor, labels: Tensor, options: dict[str, Any]) -> bool:
    """Whether value and gradient of F.cross_entropy are finite in this precision."""
    z = logits.clone().requires_grad_()
    weight = options.get("weight")
    made = cross_entropy(z, labels, **{**options, "weight": None if weight is None else weight.to(logits.dtype)})
    (grad,) = torch.autograd.grad(made.sum(), z)
    return bool(made.isfinite().all() and grad.isfinite().all())


def random_loss(rng: random.Random, name: str, classes: int, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The loss with random settings of its own, or its defaults where these are refused."""
    cls: Any = LOSSES[name]
    needed: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for one in dataclasses.fields(cls):
        if one.name in SHARED:
            continue
        if one.name == "counts":
            needed["counts"] = torch.randint(1, 10 ** rng.randrange(1, 6), (classes,))
        elif one.name == "transition":
            matrix = torch.rand(classes, classes) * rng.choice((0.0, 0.1, 1.0)) + torch.eye(classes) * rng.choice((1.0, 3.0))
            needed["transition"] = matrix / matrix.sum(1, keepdim=True)
        elif one.name in ("num_classes", "classes"):
            needed[one.name] = classes
        elif isinstance(one.default, bool):
            own[one.name] = rng.random() < 0.5
        elif isinstance(one.default, float) and rng.random() < 0.7:
            own[one.name] = rng.choice(UNIT + LARGE)
    try:
        return cls(**needed, **own, **options), own
    except ValueError:
        return cls(**needed, **options), {}


def shown(options: dict[str, Any]) -> dict[str, Any]:
    """The options, of a weight its first entries."""
    return {key: value.tolist()[:5] if isinstance(value, Tensor) else value for key, value in options.items()}
