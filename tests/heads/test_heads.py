"""What holds for every head in HEADS, and what is special to margins. The formulas are in tests/papers/test_heads.py."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

import mohs.heads as heads
from mohs.heads import HEADS, create_head
from mohs.heads.lsoftmax import lsoftmax_strength

IN, CLASSES = 6, 4
CASES: dict[str, list[dict]] = {
    "normface": [{}],
    "cosface": [{}, {"scale": 64.0, "margin": 0.35}],
    "arcface": [{}, {"scale": 64.0, "margin": 0.5}],
    "sphereface": [{}, {"margin": 4}, {"margin": 3, "strength": 0.2}],
    "lsoftmax": [{}, {"margin": 4}, {"margin": 3, "strength": 0.2}],
    "avh": [{}, {"scale": 5.0}],
}
every_head = pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
every_margin = pytest.mark.parametrize("name", ["cosface", "arcface", "sphereface", "lsoftmax"])
FREE_OF_LENGTH = ("normface", "cosface", "arcface", "avh")


def make(name: str, case: dict, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return create_head(name, IN, CLASSES, **case).to(dtype)


def batch(n: int = 12, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, IN, generator=generator, dtype=torch.float64)
    return features.to(dtype).requires_grad_(), torch.randint(CLASSES, (n,), generator=generator)


def test_every_head_has_a_case() -> None:
    assert set(CASES) == set(HEADS)


@every_head
def test_weights_are_initialized_like_a_linear_layer(name: str, case: dict) -> None:
    head = make(name, case, torch.float32)
    torch.manual_seed(0)
    assert torch.equal(head.weight, nn.Linear(IN, CLASSES, bias=False).weight)
    assert dict(head.named_parameters()).keys() == {"weight"}


@every_head
def test_prediction_needs_no_labels_and_is_not_changed_by_the_margin(name: str, case: dict) -> None:
    head = make(name, case).eval()
    features, labels = batch()
    plain = head(features)
    assert plain.shape == (12, CLASSES)
    others = torch.ones(12, CLASSES, dtype=torch.bool).scatter(1, labels[:, None], False)
    trained = head(features, labels)
    torch.testing.assert_close(trained[others], plain[others])
    assert (trained[~others] <= plain[~others] + 1e-12).all()


@every_head
@given(seed=st.integers(0, 2**31))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_invariances(name: str, case: dict, seed: int) -> None:
    head = make(name, case)
    features, labels = batch(seed=seed)
    logits = head(features, labels)
    for row, x, y in zip(logits, features, labels, strict=True):
        torch.testing.assert_close(row, head(x[None], y[None])[0])
    names = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))
    renamed = copy.deepcopy(head)
    renamed.weight.data = head.weight.data[names]
    torch.testing.assert_close(renamed(features, names.argsort()[labels]), logits[:, names])
    if name in FREE_OF_LENGTH:
        head.weight.data *= torch.tensor([[0.1], [2.0], [30.0], [1.0]], dtype=torch.float64)
        torch.testing.assert_close(head(7 * features, labels), logits)


@every_head
def test_derivatives(name: str, case: dict) -> None:
    head = make(name, case)
    features, labels = batch(5)
    for y in (labels, None):
        head.train(y is not None)

        def call(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor | None = y) -> torch.Tensor:
            return torch.func.functional_call(head, {"weight": w}, (x, y))

        assert torch.autograd.gradcheck(call, (features, head.weight))
        assert torch.autograd.gradgradcheck(call, (features, head.weight))


@every_head
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_the_ends_at_zero_and_far_out(name: str, case: dict, dtype: torch.dtype) -> None:
    head = make(name, case, torch.float32)
    own = head.weight.detach()
    features = torch.cat([own, -own, torch.zeros(CLASSES, IN), 1e4 * own, -1e4 * own, 1e-3 * own]).to(dtype).requires_grad_()
    labels = torch.arange(CLASSES).repeat(6)
    logits = head(features, labels)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
    for grad in torch.autograd.grad(cross_entropy(logits, labels), (features, head.weight)):
        assert grad.isfinite().all()


@every_head
def test_under_autocast(name: str, case: dict) -> None:
    head = make(name, case, torch.float32)
    body = nn.Linear(3, IN)
    inputs, labels = torch.randn(12, 3), batch()[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = body(inputs)
        logits = head(features, labels)
    assert features.dtype == torch.bfloat16
    assert torch.equal(logits, head(features.float(), labels))
    cross_entropy(logits, labels).backward()
    assert body.weight.grad.isfinite().all()


@every_head
def test_repr_rebuilds_and_pickles(name: str, case: dict) -> None:
    head = make(name, case)
    features, labels = batch()
    rebuilt = eval(repr(head), vars(heads)).double()
    assert {f.name for f in fields(head)} == {f.name for f in fields(rebuilt)}
    rebuilt.load_state_dict(head.state_dict())
    for twin in (rebuilt, pickle.loads(pickle.dumps(head)), copy.deepcopy(head)):
        assert repr(twin) == repr(head)
        assert torch.equal(twin(features, labels), head(features, labels))


@every_head
def test_compiles_without_a_graph_break(name: str, case: dict) -> None:
    torch._dynamo.reset()
    head = make(name, case, torch.float32)
    features, labels = batch(dtype=torch.float32)
    compiled = torch.compile(head, fullgraph=True, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(features, labels), head(features, labels))
        if hasattr(head, "strength"):
            head.strength *= 0.9


@every_head
def test_trains(name: str, case: dict) -> None:
    head = make(name, case, torch.float32)
    features, labels = batch(64, dtype=torch.float32)
    features = features.detach() + 3 * torch.eye(IN)[labels]
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for step in range(60):
        if name == "lsoftmax":  # from scratch its full margin makes the weights shrink rather than turn
            head.strength = lsoftmax_strength(5 * step)
        optimizer.zero_grad()
        cross_entropy(head(features, labels), labels).backward()
        optimizer.step()
    assert (head.eval()(features).argmax(1) == labels).float().mean() > 0.9


@every_margin
def test_training_mode_needs_labels(name: str) -> None:
    head = create_head(name, IN, CLASSES)
    with pytest.raises(ValueError, match=rf"{type(head).__name__} in training mode needs labels.*head\.logits\(features\)"):
        head(torch.randn(2, IN))


@every_head
def test_label_free_logits_do_not_depend_on_labels_or_mode(name: str, case: dict) -> None:
    head = make(name, case)
    features, labels = batch()
    plain = head.logits(features)
    for other in (labels, (labels + 1) % CLASSES):
        head(features, other)
        assert torch.equal(head.logits(features), plain)
    others = torch.ones(12, CLASSES, dtype=torch.bool).scatter(1, labels[:, None], False)
    torch.testing.assert_close(head(features, labels)[others], plain[others])
    head.eval()
    assert torch.equal(head.logits(features), plain)
    assert torch.equal(head(features), plain)


@every_margin
def test_logits_with_a_margin_do_depend_on_labels(name: str) -> None:
    head = make(name, {})
    features, labels = batch()
    assert (head(features, labels) - head.logits(features)).abs().max() > 0.1


@every_margin
@pytest.mark.parametrize("strength", [0.0, 0.25, 0.5, 1.0])
def test_strength_interpolates_between_plain_logits_and_margin(name: str, strength: float) -> None:
    head = make(name, {})
    features, labels = batch()
    head.strength = 0.0
    plain = head(features, labels)
    torch.testing.assert_close(plain, head.eval()(features))
    head.strength = 1.0
    full = head(features, labels)
    head.strength = strength
    if name == "arcface":
        blend = create_head(name, IN, CLASSES, margin=0.2 * strength).double()
        blend.weight = head.weight
        torch.testing.assert_close(head(features, labels), blend(features, labels))
    else:
        torch.testing.assert_close(head(features, labels), (1 - strength) * plain + strength * full)


@every_margin
def test_ignored_rows_do_not_reach_the_loss(name: str) -> None:
    head = make(name, {})
    features, labels = batch()
    marked = labels.clone()
    marked[3] = -100
    kept = marked != -100
    loss = cross_entropy(head(features, marked), marked)
    torch.testing.assert_close(loss, cross_entropy(head(features[kept], labels[kept]), labels[kept]))
    assert (torch.autograd.grad(loss, features)[0][3] == 0).all()


def test_gradients_of_one_example_by_vmap() -> None:
    for name in HEADS:
        head = make(name, {})
        features, labels = batch(3)
        one = torch.func.grad(lambda x, y, head=head: cross_entropy(head(x[None], y[None]), y[None]))
        rows = torch.func.vmap(one)(features.detach(), labels)
        for row, x, y in zip(rows, features.detach(), labels, strict=True):
            torch.testing.assert_close(row, one(x, y))


@every_margin
@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.randn(2, IN), torch.tensor([0, CLASSES]), r"labels\[1\] is 4, but logits have 4 classes"),
        (torch.randn(2, IN), torch.tensor([0.0, 1.0]), "labels must be integer class indices, got torch.float32"),
        (torch.randn(2, IN), torch.tensor([0]), r"labels must have shape \(2,\)"),
        (torch.randn(2, IN + 1), torch.tensor([0, 1]), r"got features \(2, 7\) and weight \(4, 6\)"),
        (torch.randn(2, IN, 3), torch.tensor([0, 1]), r"features must have shape \(N, D\)"),
        (torch.ones(2, IN).long(), torch.tensor([0, 1]), "features must be floating point, got torch.int64"),
    ],
)
def test_bad_input(name: str, features: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_head(name, IN, CLASSES)(features, labels)


@pytest.mark.parametrize(
    ("name", "case", "message"),
    [
        ("ember", {}, "unknown head 'ember'; known: normface, cosface, arcface, sphereface, lsoftmax, avh"),
        ("cosface", {"s": 64}, "cosface has no field 's'; its fields: in_features, num_classes, scale, margin, strength"),
        ("avh", {"scale": 0.0}, "scale must be above 0 and finite, got 0.0"),
        ("normface", {"scale": float("inf")}, "scale must be a finite number, got inf"),
        ("arcface", {"margin": 4.0}, "margin must be between 0 and 3.14159, got 4.0"),
        ("cosface", {"margin": -0.1}, "margin must be between 0 and 2, got -0.1"),
        ("sphereface", {"margin": 1.5}, "margin must be an integer, got 1.5"),
        ("lsoftmax", {"margin": 0}, "margin multiplies the angle and must be an integer.* got 0"),
        ("lsoftmax", {"strength": 1.5}, "strength must be between 0 and 1, got 1.5"),
    ],
)
def test_bad_fields(name: str, case: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_head(name, IN, CLASSES, **case)


def test_bad_sizes_and_a_strength_set_wrongly() -> None:
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2, got 1"):
        create_head("avh", IN, 1)
    with pytest.raises(ValueError, match="in_features must be an integer of at least 1, got 0"):
        create_head("avh", 0, 3)
    head = create_head("arcface", IN, CLASSES)
    head.strength = -1.0
    with pytest.raises(ValueError, match=r"strength must be between 0 and 1, got -1\.0"):
        head(torch.randn(2, IN), torch.tensor([0, 1]))


def test_hyper_parameters_are_keywords() -> None:
    for head in HEADS.values():
        with pytest.raises(TypeError, match="positional"):
            head(IN, CLASSES, 2)


@pytest.mark.parametrize("name", HEADS)
def test_sizes_are_integers(name: str) -> None:
    with pytest.raises(ValueError, match=r"in_features must be an integer of at least 1, got 8\.0"):
        create_head(name, 8.0, 3)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2, got '3'"):
        create_head(name, 8, "3")
