"""The loss of a linear or angular head from its features, without the (N, K) logits in memory.

    loss = mohs.linear_loss(features, weight, labels, loss="gce:q=0.7")
    loss = mohs.FusedHead(mohs.ArcFaceHead(512, 1_000_000, scale=64.0, margin=0.5), "cross_entropy")(features, labels)

Values and gradients are those of the head followed by the loss. Any loss that is a curve of the margin can be fused, since a
row then enters the loss through two numbers: its label's logit and log Σ exp of the others. A margin head changes the first
alone: CosFace subtracts s m from it, ArcFace replaces it by s cos(θ_y + m). Logits exist for a chunk of rows at a time
(`_chunked.py`). The mean or sum of a curve takes three matrix products, as the plain head does; reduction="none", float16
and losses normalized over the batch take four, since their logits are computed again in the backward pass.
Inside `torch.compile` they run between two graphs: traced, the chunks would be unrolled and could all be in memory at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from mohs._core.specs import create_spec, parse_spec
from mohs._core.validation import check_type
from mohs.angle import angle, check_vectors, common_dtype, unit
from mohs.heads._chunked import Scores, head_loss, head_margin
from mohs.heads.arcface import ArcFaceHead, margin_cosine
from mohs.heads.avh import AVHHead
from mohs.heads.cosface import CosFaceHead
from mohs.heads.normface import NormFaceHead
from mohs.losses import LOSSES
from mohs.losses._drop_in import LossModule
from mohs.losses._reduction import check_reduction, row_weight, spread_sample_weight
from mohs.margin import check_tensors, checked_labels, is_transformed

F = TypeVar("F", bound=Callable[..., Any])
ANGLE_ENTRIES = 1 << 21  # of the features whose angles are taken at a time
eagerly: Callable[[F], F] = torch.compiler.disable(  # type: ignore[no-untyped-call]
    reason="mohs.linear_loss and mohs.FusedHead compute in chunks, outside of the graph: compile without fullgraph=True"
)


class RowStatistics(NamedTuple):
    """Statistics of each example's logits, (N,) each and without gradients; NaN (for `predicted`: any class) if ignored."""

    margin: Tensor  # log-odds of the label
    confidence: Tensor  # probability of the label
    entropy: Tensor  # of the predicted distribution, in nats
    angle: Tensor  # between the features and the weights of the label, in radians
    gap: Tensor  # the label's logit minus the largest other
    predicted: Tensor  # the most likely class


class _Plan(NamedTuple):
    """A head as matrix products: logits = scores(features · weightᵀ + bias), and what it does to the label's logit."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None = None
    target: Tensor | None = None
    shift: float = 0.0
    scores: Scores = Scores()


@eagerly
def linear_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    *,
    loss: str | nn.Module = "gce:q=0.7",
    sample_weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str | None = None,
    return_stats: bool = False,
) -> Any:
    """The loss of `F.linear(features, weight, bias)` without those logits in memory.

    Args:
        features: (N, D) or (..., D), the inputs of the head.
        weight: (K, D), the class weights.
        labels: (N,) or (...), integer class indices.
        bias: (K,), optional.
        loss: A loss of the package that is a curve of the margin: a Module, or its name as in "gce:q=0.7".
        sample_weight: (N,) or (...), weights of the examples.
        ignore_index: Label of examples to ignore; the loss's own (−100) unless given.
        reduction: "mean", "sum" or "none"; the loss's own ("mean") unless given.
        return_stats: Also return `RowStatistics`, at no extra pass.

    Returns:
        The loss, a scalar or the shape of the labels; with `return_stats` a pair (loss, statistics).

    Example:
        >>> loss, seen = linear_loss(hidden, lm_head.weight, tokens, loss="gce:q=0.7", return_stats=True)
    """
    module = _loss(loss, ignore_index, reduction)
    if isinstance(loss, str) and any(name != "weight" for name, _ in module.named_buffers()):
        raise ValueError(
            f"loss={loss!r} keeps a state from batch to batch: create it once and pass the Module, create_loss({loss!r})"
        )
    check_vectors("features", features)
    _check_labels(labels, features)
    x, y = features.reshape(-1, features.shape[-1]), labels.reshape(-1)
    common_dtype(x, weight)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape {tuple(weight.shape[:1])}, one per row of weight, got {tuple(bias.shape)}")
    if sample_weight is not None:
        sample_weight = spread_sample_weight(sample_weight, labels).reshape(-1)
    value, seen = _apply(_linear(x, weight, bias), x, weight, y, module, sample_weight, return_stats)
    value = value.view(labels.shape) if value.dim() else value
    return (value, RowStatistics(*(part.view(labels.shape) for part in seen))) if seen is not None else value


class FusedHead(nn.Module):
    """A head and its loss in one Module, which computes the loss without the (N, K) logits in memory.

    Args:
        head: An `nn.Linear`, or a `NormFaceHead`, `CosFaceHead`, `ArcFaceHead` or `AVHHead`. Its parameters stay its own.
        loss: A loss of the package that is a curve of the margin: a Module, or its name as in "gce:q=0.7".

    Example:
        >>> fused = FusedHead(mohs.CosFaceHead(512, 100_000), "cross_entropy")
        >>> fused(features, labels).backward()
    """

    def __init__(self, head: nn.Module, loss: str | nn.Module = "gce:q=0.7") -> None:
        super().__init__()
        if not isinstance(head, nn.Linear | NormFaceHead | CosFaceHead | ArcFaceHead | AVHHead):
            raise ValueError(f"{type(head).__name__} cannot be fused: use nn.Linear, NormFace, CosFace, ArcFace or AVH heads")
        self.head, self.loss = head, _loss(loss, None, None)

    def forward(
        self, features: Tensor, labels: Tensor, *, sample_weight: Tensor | None = None, return_stats: bool = False
    ) -> Any:
        """features (N, D), labels (N,) -> the loss, or with `return_stats` a pair (loss, `RowStatistics`).

        The statistics are those of the label-free logits, as `head.logits(features)` has them.
        """
        head, weight = self.head, self.head.weight
        if isinstance(head, nn.Linear):
            return linear_loss(
                features, weight, labels, head.bias, loss=self.loss, sample_weight=sample_weight, return_stats=return_stats
            )
        common_dtype(features, weight)
        _check_labels(labels, features)
        plan = _angular(head, features, labels, self.loss.ignore_index)
        value, seen = _apply(plan, features, weight, labels, self.loss, sample_weight, return_stats)
        return value if seen is None else (value, seen)

    def logits(self, features: Tensor) -> Tensor:
        """features (N, D) -> the label-free logits (N, K), for prediction."""
        plain = self.head if isinstance(self.head, nn.Linear) else self.head.logits
        return plain(features)


def _check_labels(labels: Tensor, features: Tensor) -> None:
    check_tensors(labels=labels)
    if labels.is_floating_point():
        raise ValueError(f"labels must be class indices, got {labels.dtype}: probability targets cannot be fused")
    if labels.shape != features.shape[:-1]:
        raise ValueError(
            f"labels must have shape {tuple(features.shape[:-1])} for features of shape {tuple(features.shape)}, "
            f"got {tuple(labels.shape)}"
        )


def _linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> _Plan:
    kind = features.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    else:
        dtype = torch.promote_types(features.dtype, weight.dtype)
    return _Plan(features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def _angular(head: nn.Module, features: Tensor, labels: Tensor, ignore_index: int) -> _Plan:
    weight: Tensor = head.weight  # type: ignore[assignment]
    scale: float = head.scale  # type: ignore[assignment]
    if isinstance(head, AVHHead):
        exact = torch.float32 if features.device.type == "mps" else torch.float64
        return _Plan(unit(features.to(exact)), unit(weight.to(exact)), scores=Scores(scale, common_dtype(features, weight)))
    plan = _Plan(scale * unit(features), unit(weight))
    if isinstance(head, CosFaceHead):
        return plan._replace(shift=scale * head.strength * head.margin)
    if isinstance(head, ArcFaceHead):
        own = embedding(_index(features, weight, labels, ignore_index), weight)
        return plan._replace(target=scale * margin_cosine(angle(features, own), margin=head.strength * head.margin))
    return plan


@eagerly
def _apply(
    plan: _Plan,
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    loss: LossModule,
    sample_weight: Tensor | None,
    return_stats: bool,
) -> tuple[Tensor, RowStatistics | None]:
    if is_transformed(plan.features) or is_transformed(plan.weight):
        raise ValueError(
            "torch.func transforms do not work with linear_loss and FusedHead: apply the loss to the logits, "
            "loss(head(features, labels), labels)"
        )
    ignore_index, reduction = loss.ignore_index, loss.reduction
    classes, index = weight.shape[0], _index(features, weight, labels, ignore_index)
    labels = labels.long().contiguous()
    each = row_weight(labels, index, classes, loss.weight, sample_weight)
    each = None if each is None else each.contiguous()
    at_once = (
        reduction != "none"
        and not loss.over_batch
        and plan.features.dtype != torch.float16
        and not (each is not None and each.requires_grad)
        and features.shape[0] > 0
    )
    shared = {"ignore_index": ignore_index, "scores": plan.scores, "stats": return_stats}
    inputs = (plan.features, plan.weight, plan.bias, labels)
    if at_once:
        value, rows = head_loss(
            *inputs,
            loss.curve,  # type: ignore[arg-type]
            row_weight=each,
            target=plan.target,
            shift=plan.shift,
            mean=reduction == "mean",
            **shared,  # type: ignore[arg-type]
        )
    else:
        m, others, rows = head_margin(*inputs, **shared)  # type: ignore[arg-type]
        m = m - plan.shift if plan.target is None else plan.target.to(m) - others
        twin = _without_weight(loss)
        m = m.clamp(max=torch.finfo(m.dtype).max / 4)  # +inf, if there is no other class, would make inf − inf
        two = torch.stack([m, torch.zeros_like(m)], 1)  # two classes with the same margin: all that the loss depends on
        value = twin(two, torch.where(labels == ignore_index, ignore_index, 0), sample_weight=each)
    if rows is None:
        return value, None
    theta = _label_angle(features, weight, index).masked_fill_(labels == ignore_index, torch.nan)
    return value, RowStatistics(rows.margin, rows.margin.sigmoid(), rows.entropy, theta, rows.gap, rows.predicted)


def _index(features: Tensor, weight: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """Validated labels (N,) for indexing the rows of the weights; ignored ones become 0."""
    return checked_labels(features.new_empty(1, weight.shape[0]).expand(len(features), -1), labels, ignore_index=ignore_index)


@torch.no_grad()
def _label_angle(features: Tensor, weight: Tensor, index: Tensor) -> Tensor:
    """The angle between each row of features (N, D) and the weights of its class (N,), in chunks of rows."""
    step = max(1, ANGLE_ENTRIES // features.shape[1])
    starts = range(0, max(1, len(index)), step)
    return torch.cat([angle(features[i : i + step], weight[index[i : i + step]]) for i in starts])


def _without_weight(loss: LossModule) -> LossModule:
    """The loss without class weights; it shares everything else with the original."""
    if loss.weight is None:
        return loss
    twin = copy.copy(loss)
    twin._buffers = {**loss._buffers, "weight": None}
    return twin


def _loss(given: str | nn.Module, ignore_index: int | None, reduction: str | None) -> LossModule:
    """A loss that can be fused, with these options."""
    changes = {"ignore_index": ignore_index, "reduction": reduction}
    changes = {name: value for name, value in changes.items() if value is not None}
    if isinstance(given, str):
        name, fields = parse_spec(given)
        loss = create_spec(LOSSES, "loss", {"name": name, **fields, **changes})
    else:
        check_type("ignore_index", ignore_index, int | None)
        if reduction is not None:
            check_reduction(reduction)
        loss = copy.copy(given) if changes else given
        for name, value in changes.items():
            setattr(loss, name, value)
    if not isinstance(loss, LossModule) or not hasattr(loss, "curve"):
        raise ValueError(f"{type(loss).__name__} cannot be fused: it is not a curve of the margin; apply it to the logits")
    if loss.label_smoothing:
        raise ValueError("label_smoothing cannot be fused: it is not a function of the margin; apply the loss to the logits")
    return loss
