"""Where F.cross_entropy is finite in value and gradient, every loss is: with masked classes, ignored rows and extreme logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.losses import LOSSES

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INF = float("inf")
ROWS = {
    "the label alone is not masked": ([[-INF, 3.0, -INF]], [1]),
    "an ignored row whose class 0 is masked": ([[-INF, 3.0, 1.0], [0.5, 0.1, 0.2]], [-100, 2]),
    "an ignored row with one class left": ([[-INF, -INF, -57.0], [0.5, 0.1, -INF]], [-100, 0]),
    "far apart": ([[400.0, -400.0, 0.0], [-400.0, 400.0, 0.0]], [0, 0]),
    "all alike": ([[0.0, 0.0, 0.0], [50.0, 50.0, 50.0]], [0, 2]),
}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "focal": [{"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 30.0}],
    "encouraging": [{"eps": 0.0, "log_end": 1.0}, {"eps": 0.0, "log_end": 1.0, "start": 0.1}],
    "gradient_rescaling": [{"eps": 0.0}, {"lam": 0.0}],
    "bootstrap_soft": [{"trust": 0.01}, {"detach": True}],
    "self_paced": [{"kind": "linear"}],
}


def needed(name: str) -> dict[str, Any]:
    """The fields that have no default."""
    if name in ("forward", "backward"):
        return {"transition": torch.tensor([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])}
    if name == "online_smoothing":
        return {"num_classes": 3}
    return {"counts": [5, 3, 1]} if name in ("ldam", "logit_adjusted") else {}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("loss_name", LOSSES)
def test_finite_where_cross_entropy_is(loss_name: str, rows: str, dtype: torch.dtype) -> None:
    logits, labels = torch.tensor(ROWS[rows][0], dtype=dtype), torch.tensor(ROWS[rows][1])
    for weight in (None, torch.tensor([60.0, 20.0, 0.1])):
        assert finite(cross_entropy, logits, labels, weight=None if weight is None else weight.to(dtype))
        for settings in ({}, *SETTINGS.get(loss_name, ())):
            loss = LOSSES[loss_name](**needed(loss_name), **settings, weight=weight)
            assert finite(loss, logits, labels), (settings, weight)


def finite(loss: Any, logits: Tensor, labels: Tensor, **options: Any) -> bool:
    z = logits.clone().requires_grad_()
    value = loss(z, labels, **options)
    (grad,) = torch.autograd.grad(value.sum(), z)
    return bool(value.isfinite().all() and grad.isfinite().all())


@pytest.mark.parametrize("loss_name", ["spherical", "taylor"])
def test_a_masked_class_is_as_if_it_were_not_there(loss_name: str) -> None:
    loss, labels = LOSSES[loss_name](reduction="none"), torch.tensor([0, 1])
    three = torch.tensor([[1.0, -INF, 2.0], [-INF, 0.5, -1.0]])
    two = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    assert torch.allclose(loss(three, labels), loss(two, torch.tensor([0, 0])))
