"""A softmax head on features, fitted with any loss on the full batch; deterministic.

    min over W, b of  mean of ℓ(W φ(x) + b, y) + ½ l2 |W|²                φ: see `feature_map`

Cross-entropy is convex: L-BFGS to convergence. Other losses may have many minima, and their value may not be an objective
(Gradient Rescaling): full-batch Adam with a cosine schedule, started from a few steps of L-BFGS on cross-entropy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from mohs._core.forward import row_slices
from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_between
from mohs.losses import LOSSES
from mohs.losses.cross_entropy import CrossEntropyLoss
from mohs.train.feature_map import CHUNK_ENTRIES, FeatureMap, feature_map, rows
from mohs.train.learning_rate import cosine
from mohs.train.sparse_rows import SparseInputs, SparseRows

WARM_STEPS = 3  # steps of L-BFGS on cross-entropy before another loss: with more, wrong labels are learned and kept
RATE = 0.05  # Adam's peak learning rate
BLOCK = 8192  # rows mapped and multiplied at a time
Loss = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Head:
    """weight (K, W) and bias (K,) on mapped features: `head.logits(features)`."""

    weight: Tensor
    bias: Tensor
    map: FeatureMap

    def logits(self, features: Any) -> Tensor:
        """features (N, D), an array or tensor -> (N, K)."""
        made = [self.map(rows(features, part)) @ self.weight.T + self.bias for part in blocks(features)]
        return torch.cat(made) if made else self.bias.new_empty(0, len(self.bias))


def blocks(features: Any) -> Iterator[slice]:
    """Slices of rows to map at a time."""
    return row_slices(len(features), max(1, min(BLOCK, CHUNK_ENTRIES // max(1, features.shape[1]))))


class HeadOptions(TypedDict, total=False):
    """Options of the objective: the number of classes (default: by the labels), the L2 penalty, weights of the examples (N,), and
    the number of landmarks and the seed of the feature map.
    """

    num_classes: int | None
    l2: float
    sample_weight: Tensor | None
    landmarks: int
    seed: int


def as_loss(loss: str | Mapping[str, Any] | Loss) -> Loss:
    """A loss from its spec ("gce", "gce:q=0.5", {"name": "gce", "q": 0.5}), or the loss itself."""
    if isinstance(loss, str | Mapping):
        return create_spec(LOSSES, "loss", as_spec(loss))
    if not callable(loss):
        raise ValueError(f"loss must be a name, a mapping with a name, or a loss, got {loss!r}; names: {', '.join(LOSSES)}")
    return loss


def fit_head(
    features: Any,
    labels: Tensor,
    *,
    loss: str | Mapping[str, Any] | Loss = "cross_entropy",
    steps: int = 300,
    **options: Unpack[HeadOptions],
) -> Head:
    """features (N, D), labels (N,) in 0..K−1 -> the head; steps: maximum for L-BFGS, number for Adam."""
    problem = _Problem.of(features, labels, **options)
    chosen = as_loss(loss)
    if is_cross_entropy(chosen):
        return problem.head(minimize(problem, chosen, steps))
    start = minimize(problem, CrossEntropyLoss(), WARM_STEPS)
    *_, last = descend(problem, chosen, start, steps)
    return problem.head(last)


def is_cross_entropy(loss: Loss) -> bool:
    """Whether this is plain cross-entropy, ours or torch's: a convex objective."""
    return isinstance(loss, CrossEntropyLoss | nn.CrossEntropyLoss)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Mapped features (N, W), labels and the objective's settings; θ (K, W + 1) holds weights and, in the last column, biases."""

    inputs: Tensor | SparseInputs
    labels: Tensor
    classes: int
    l2: float
    weight: Tensor | None
    map: FeatureMap

    @staticmethod
    def of(
        features: Any,
        labels: Tensor,
        *,
        num_classes: int | None = None,
        l2: float = 1e-2,
        sample_weight: Tensor | None = None,
        landmarks: int = 0,
        seed: int = 0,
    ) -> _Problem:
        check_between("l2", l2, 0)
        check_rows(features, labels, sample_weight)
        mapped = feature_map(features, landmarks=landmarks, seed=seed, sample_weight=sample_weight)
        classes = int(labels.max()) + 1 if num_classes is None else num_classes
        if classes < 2 or int(labels.max()) >= classes or int(labels.min()) < 0:
            raise ValueError(f"labels must lie in 0..{classes - 1}, with at least 2 classes; the largest is {int(labels.max())}")
        inputs: Tensor | SparseInputs
        if isinstance(features, SparseRows) and not landmarks:
            inputs = SparseInputs(features, mapped)
        else:
            inputs = torch.cat([mapped(rows(features, part)) for part in blocks(features)])
        weight = None if sample_weight is None else sample_weight.to(inputs.dtype)
        return _Problem(inputs, labels, classes, l2, weight, mapped)

    def value(self, loss: Loss, theta: Tensor) -> Tensor:
        """The objective at θ."""
        logits = self.inputs @ theta[:, :-1].T + theta[:, -1]
        extra = {} if self.weight is None else {"sample_weight": self.weight}
        return loss(logits, self.labels, **extra) + self.l2 / 2 * theta[:, :-1].square().sum()

    def head(self, theta: Tensor) -> Head:
        return Head(theta[:, :-1].contiguous(), theta[:, -1].clone(), self.map)


def minimize(problem: _Problem, loss: Loss, steps: int) -> Tensor:
    """θ by L-BFGS from 0, until the gradient vanishes or the maximum number of steps."""
    from scipy.optimize import minimize

    shape = (problem.classes, problem.inputs.shape[1] + 1)

    def value_and_gradient(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        theta = torch.from_numpy(flat.copy()).view(shape).to(problem.inputs.dtype).requires_grad_()
        value = problem.value(loss, theta)
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient.double().flatten().numpy()

    precise = problem.inputs.dtype == torch.float64
    options = {"maxiter": steps, "maxfun": 2 * steps, "gtol": 1e-7 if precise else 1e-5, "ftol": 1e-14 if precise else 1e-9}
    found = minimize(value_and_gradient, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x).view(shape).to(problem.inputs.dtype)


def descend(problem: _Problem, loss: Loss, start: Tensor, steps: int) -> Iterator[Tensor]:
    """θ after each full-batch Adam step; the loss is copied, since it may have state."""
    loss = copy.deepcopy(loss)
    theta = start.clone().requires_grad_()
    optimizer, schedule = torch.optim.Adam([theta], lr=RATE), cosine()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * schedule(step, steps)
        (theta.grad,) = torch.autograd.grad(problem.value(loss, theta), theta)
        optimizer.step()
        yield theta.detach()


def check_rows(features: Any, labels: Tensor, weight: Tensor | None = None) -> None:
    """Raise unless there is one label, and one weight if any are given, per row of features."""
    for name, given in (("labels", labels), ("sample_weight", weight)):
        if given is not None and tuple(given.shape) != (len(features),):
            raise ValueError(f"{name} must have shape ({len(features)},), one per row of features, got {tuple(given.shape)}")
    if weight is not None and not (weight.isfinite().all() and (weight >= 0).all() and (weight > 0).any()):
        raise ValueError("sample_weight must be finite, at least 0, and not all 0")
