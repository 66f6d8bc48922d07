"""The objective: one loss and any number of regularizers, each with a weight that may change with the epoch.

    L(t) = loss(logits, labels) + Σ_r weight_r(t) · r(...)

A regularizer names its inputs in `takes`: "logits", "features", "labels", "ids", "pair_labels", "guess" or "second".
pair_labels are the labels to pair examples by: the network's own predictions (AMC's eq. 3, the default) or the given labels.
With two views of each example, guess is the prediction (N, K) of the first, and second are the logits of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from mohs._core.specs import as_spec, create_spec, snake
from mohs._core.validation import check_choice, check_type
from mohs.losses.weight_schedule import SCHEDULES, Schedule

Weight = float | Schedule
INPUTS = ("logits", "labels", "features", "pair_labels", "ids", "guess", "second")


def weight_at(weight: Weight, epoch: float) -> float:
    """The value of a weight, a number or a schedule, at this epoch."""
    return weight(epoch) if callable(weight) else weight


class Objective(nn.Module):
    """A loss plus weighted regularizers.

    After a call `.parts` holds, detached for logging, each term before weighting, each weight, and the total.

    Args:
        loss: Any callable (logits, labels) -> scalar.
        regularizers: Pairs (weight, Module); a weight is a number or a schedule of the epoch.
        pair_labels: Labels to pair examples by: "predicted" or "true".

    Example:
        >>> objective = Objective(FocalLoss(), [(0.05, ADR(tau=3)), (ramp_up(epochs=80, peak=0.1), AMC())])
        >>> objective(logits, labels, features=features, epoch=3).backward()
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        regularizers: Sequence[tuple[Weight, nn.Module]] = (),
        *,
        pair_labels: str = "predicted",
    ) -> None:
        super().__init__()
        check_choice("pair_labels", pair_labels, ("predicted", "true"))
        if not callable(loss):
            raise ValueError(f"loss must be callable, got {loss!r}; create_objective takes names")
        if getattr(loss, "reduction", "mean") == "none" and regularizers:
            raise ValueError('loss has reduction="none": an objective adds scalars, use reduction="mean" or "sum"')
        for term in regularizers:
            if not (isinstance(term, tuple | list) and len(term) == 2):
                raise ValueError(f"regularizers must be pairs (weight, regularizer), got {term!r}")
            weight, regularizer = term
            if not callable(weight) and not isinstance(weight, int | float):
                raise ValueError(f"a weight must be a number or a schedule of the epoch, got {weight!r}")
            if not hasattr(regularizer, "takes"):
                raise ValueError(f"{regularizer!r} is not a regularizer: it has no attribute `takes` that names its inputs")
            takes = regularizer.takes
            if isinstance(takes, str) or not set(takes) <= set(INPUTS):  # type: ignore[arg-type]
                raise ValueError(f"{regularizer!r} takes {takes!r}: it must be a tuple of some of {', '.join(INPUTS)}")
        self.loss = loss
        self.regularizers = nn.ModuleList(regularizer for _, regularizer in regularizers)
        self.weights: list[Weight] = [weight for weight, _ in regularizers]
        self.pair_labels = pair_labels
        self.parts: dict[str, Tensor | float] = {}

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        features: Tensor | None = None,
        epoch: float = 0,
        sample_weight: Tensor | None = None,
        weights: Sequence[float | Tensor] | None = None,
        soft: Tensor | None = None,
        ids: Tensor | None = None,
        guess: Tensor | None = None,
        second: Tensor | None = None,
    ) -> Tensor:
        weights = self.weights_at(epoch) if weights is None else weights
        target = labels if soft is None else soft
        total = self.loss(logits, target) if sample_weight is None else self.loss(logits, target, sample_weight=sample_weight)
        parts: dict[str, Tensor | float] = {"loss": total.detach()}
        paired = logits.detach().argmax(1) if self.regularizers and self.pair_labels == "predicted" else labels
        inputs = {"logits": logits, "labels": labels, "features": features, "pair_labels": paired, "ids": ids}
        inputs |= {"guess": guess, "second": second}
        for weight, regularizer in zip(weights, self.regularizers, strict=True):
            value = regularizer(*_inputs(regularizer, inputs))
            total = total + weight * value
            name = _unused(snake(type(regularizer).__name__), parts)
            parts |= {name: value.detach(), f"{name}_weight": weight}
        self.parts = parts | {"total": total.detach()}
        return total

    def add(self, weight: Weight, regularizer: nn.Module) -> None:
        """Add a term."""
        self.weights.append(weight)
        self.regularizers.append(regularizer)

    def takes(self, name: str) -> bool:
        """Whether a regularizer takes this input."""
        return any(name in regularizer.takes for regularizer in self.regularizers)  # type: ignore[operator]

    def weights_at(self, epoch: float) -> list[float]:
        """The weights of the regularizers at this epoch; a captured graph passes tensors as `weights=` instead."""
        return [weight_at(weight, epoch) for weight in self.weights]

    def end_epoch(self) -> None:
        """Call `end_epoch` of every part that has one (online label smoothing)."""
        for part in self.modules():
            if part is not self and hasattr(part, "end_epoch"):
                part.end_epoch()  # type: ignore[operator]

    def __repr__(self) -> str:
        terms = ", ".join(f"({w!r}, {r!r})" for w, r in zip(self.weights, self.regularizers, strict=True))
        return f"Objective({self.loss!r}, [{terms}], pair_labels={self.pair_labels!r})"


def _inputs(regularizer: nn.Module, given: Mapping[str, Tensor | None]) -> list[Tensor]:
    names: tuple[str, ...] = regularizer.takes  # type: ignore[assignment]
    for name in names:
        if given[name] is None:
            raise ValueError(f"{type(regularizer).__name__} needs {name}: call objective(logits, labels, {name}=...)")
    return [value for name in names if (value := given[name]) is not None]


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or name_2, name_3, ... if the same regularizer occurs more than once."""
    count = 1
    while (numbered := name if count == 1 else f"{name}_{count}") in taken:
        count += 1
    return numbered


def create_objective(
    loss: str | Mapping[str, Any], regularizers: Sequence[str | Mapping[str, Any]] = (), *, pair_labels: str = "predicted"
) -> Objective:
    """Create an objective from a recipe.

    Args:
        loss: The loss's `name` and fields, or "name:field=value" as on the command line.
        regularizers: For each its `name`, its fields, and a `weight`: a number, or a schedule's `name` and fields.
        pair_labels: As for `Objective`.

    Example:
        >>> create_objective({"name": "gce", "q": 0.5}, [{"name": "adr", "weight": 0.05}])
    """
    from mohs.losses import LOSSES, REGULARIZERS

    if isinstance(regularizers, str | Mapping):
        raise ValueError(f"regularizers must be a list, got {regularizers!r}; put it in brackets")
    terms: list[tuple[Weight, nn.Module]] = []
    for spec in map(as_spec, regularizers):
        weight = check_weight(spec)
        fields = {key: value for key, value in spec.items() if key != "weight"}
        terms.append((weight, create_spec(REGULARIZERS, "regularizer", fields)))
    return Objective(create_spec(LOSSES, "loss", as_spec(loss)), terms, pair_labels=pair_labels)


def check_weight(spec: Mapping[str, Any]) -> Weight:
    """The weight of a regularizer's spec: a number, or the schedule that it describes."""
    if "weight" not in spec:
        raise ValueError(
            f'the regularizer {spec.get("name")!r} needs a weight: a number, or a schedule such as {{name = "ramp_up"}}'
        )
    weight = spec["weight"]
    if isinstance(weight, Mapping):
        return create_spec(SCHEDULES, "schedule", weight)
    if callable(weight):
        made: Schedule = weight
        return made
    check_type(f"{spec.get('name')}: weight", weight, float)
    return float(weight)
