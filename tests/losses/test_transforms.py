"""Every loss, regularizer and head under torch's transforms: forward-mode and second derivatives, vmap, compile, export.

What does not work is listed by name with the reason, here and in docs/losses.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mohs

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning"),  # torch calls it
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
CLASSES, SIZE = 4, 3
EVEN = (0.6 * torch.eye(CLASSES) + 0.1).tolist()
FIELDS: dict[str, list[dict[str, Any]]] = {
    "cross_entropy": [{}, {"label_smoothing": 0.1}],
    "encouraging": [{}, {"label_smoothing": 0.1}],
    "focal": [{}, {"alpha": 0.25}],
    "mse": [{}, {"mirror": True}, {"activation": "sigmoid"}],
    "gradient_rescaling": [{}, {"normalize": "mean"}],
    "forward": [{"transition": EVEN}],
    "backward": [{"transition": EVEN}],
    "online_smoothing": [{"num_classes": CLASSES, "first": "uniform"}],
    "ldam": [{"counts": [9, 5, 2, 1]}],
    "logit_adjusted": [{"counts": [9, 5, 2, 1]}],
}
HELD_CONSTANT = {
    "gradient_rescaling": "its weight is not differentiated",
    "self_paced": "its weight is not differentiated",
}
HEADS = ("normface", "cosface", "arcface", "sphereface", "lsoftmax", "avh")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LABELS = torch.tensor([0, 1, 2, 3, 0, 2])
Case = tuple[Callable[[Tensor], Tensor], Tensor]


def of_loss(name: str, fields: dict[str, Any]) -> Case:
    loss = mohs.create_loss(name, **fields).eval()
    return lambda z: loss(z, LABELS), drawn(6, CLASSES)


def of_shares(name: str, fields: dict[str, Any]) -> Case:
    loss, target = mohs.create_loss(name, **fields), torch.softmax(drawn(6, CLASSES, seed=1), 1)
    return lambda z: loss(z, target), drawn(6, CLASSES)


def of_regularizer(name: str, fields: dict[str, Any]) -> Case:
    if name == "early_learning":
        module = mohs.create_regularizer(name, num_examples=6, num_classes=CLASSES).eval()
        module.targets.copy_(torch.softmax(drawn(6, CLASSES, seed=2), 1))
        return lambda z: module(z, torch.arange(6)), drawn(6, CLASSES)
    if name == "d2l":
        module = mohs.create_regularizer(name, epochs=3).eval()
        module.alpha.fill_(0.3)
        features = drawn(6, SIZE)
        return lambda z: module(z, LABELS, features), drawn(6, CLASSES)
    if name == "center":
        module = mohs.create_regularizer(name, num_classes=CLASSES, in_features=SIZE)
        return lambda x: module(x, LABELS), drawn(6, SIZE)
    module = mohs.create_regularizer(name, **fields)
    if module.takes == ("logits",):
        return module, drawn(6, CLASSES)
    return lambda x: module(x, LABELS), drawn(6, SIZE)


def of_head(name: str, fields: dict[str, Any]) -> Case:
    torch.manual_seed(0)
    head = mohs.HEADS[name](SIZE, CLASSES, **fields).double()
    return lambda x: head(x, LABELS).square().sum(), drawn(6, SIZE)


def every_case() -> list[Any]:
    made = [(f"{name}-{i}", of_loss, name, f) for name in mohs.LOSSES for i, f in enumerate(FIELDS.get(name, [{}]))]
    shares = {"cross_entropy": {"label_smoothing": 0.1}, "gce": {}, "encouraging": {}}
    made += [(f"shares-{name}", of_shares, name, fields) for name, fields in shares.items()]
    regularizers = {"adr": [{}, {"phi": "variance"}, {"scope": "batch"}]}
    made += [(f"{n}-{i}", of_regularizer, n, f) for n in mohs.REGULARIZERS for i, f in enumerate(regularizers.get(n, [{}]))]
    made += [(name, of_head, name, {}) for name in HEADS]
    return [pytest.param(make, name, fields, id=label) for label, make, name, fields in made]


CASES = pytest.mark.parametrize(("make", "name", "fields"), every_case())
Make = Callable[[str, dict[str, Any]], Case]


def test_every_head_is_here() -> None:
    assert set(HEADS) == set(mohs.HEADS) - {"linear"}


@CASES
def test_forward_mode_is_reverse_mode(make: Make, name: str, fields: dict[str, Any]) -> None:
    function, x = make(name, fields)
    tangent = drawn(*x.shape, seed=5)
    value, forward = torch.func.jvp(function, (x,), (tangent,))
    leaf = x.clone().requires_grad_()
    exact = function(leaf)
    (gradient,) = torch.autograd.grad(exact, leaf)
    torch.testing.assert_close(value, exact.detach())
    torch.testing.assert_close(forward, (gradient * tangent).sum())
    with torch.autograd.forward_ad.dual_level():
        dual = function(torch.autograd.forward_ad.make_dual(x, tangent))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, forward)
    torch.testing.assert_close(torch.func.grad(function)(x), gradient)


@CASES
def test_hessians_agree(make: Make, name: str, fields: dict[str, Any]) -> None:
    function, x = make(name, fields)
    forward = torch.func.hessian(function)(x)  # forward over reverse mode
    twice = torch.autograd.functional.hessian(function, x)  # reverse over reverse mode, by double backward
    torch.testing.assert_close(forward, twice, atol=1e-8, rtol=1e-6)
    if name not in HELD_CONSTANT:
        step = drawn(*x.shape, seed=7) * 1e-4
        ahead, behind = (torch.func.grad(function)(x + sign * step) for sign in (1, -1))
        along = torch.tensordot(twice, 2 * step, dims=x.dim())
        torch.testing.assert_close(ahead - behind, along, atol=1e-8, rtol=1e-4)


@CASES
def test_vmap_is_a_loop(make: Make, name: str, fields: dict[str, Any]) -> None:
    function, x = make(name, fields)
    stack = torch.stack([x, 2 * x, -x])
    for transformed in (function, torch.func.grad(function)):
        torch.testing.assert_close(torch.func.vmap(transformed)(stack), torch.stack([transformed(one) for one in stack]))
    leaf = x.clone().requires_grad_()
    value = function(leaf).expand(2)
    (rows,) = torch.autograd.grad(value, leaf, torch.eye(2, dtype=x.dtype), is_grads_batched=True)
    torch.testing.assert_close(rows, torch.func.grad(function)(x).expand_as(rows))


class Whole(nn.Module):
    """A function as the Module that torch.export takes."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@CASES
def test_compiles_and_exports_in_one_graph(make: Make, name: str, fields: dict[str, Any]) -> None:
    function, x = make(name, fields)
    expected = function(x)
    if make is not of_loss:  # losses are compiled in test_all.py
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="eager")(x), expected)
    torch.testing.assert_close(torch.export.export(Whole(function), (x,)).module()(x), expected)
