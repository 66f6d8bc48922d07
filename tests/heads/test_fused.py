"""A fused head is the head followed by the loss: values, gradients, statistics; in one chunk or many."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import mohs
from mohs.heads import _chunked

N, D, K = 37, 8, 11
HEADS = {
    "linear": lambda: nn.Linear(D, K),
    "normface": lambda: mohs.NormFaceHead(D, K),
    "cosface": lambda: mohs.CosFaceHead(D, K),
    "arcface": lambda: mohs.ArcFaceHead(D, K, margin=0.5),
    "avh": lambda: mohs.AVHHead(D, K),
}
CURVES = [name for name, loss in mohs.LOSSES.items() if hasattr(loss, "curve")]


@pytest.fixture(params=[1 << 26, 1])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk of rows, and chunks of 16."""
    monkeypatch.setattr(_chunked, "SMALLEST", request.param)


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(K, (N,), generator=generator)
    labels[[3, 20]] = -100
    return torch.randn(N, D, generator=generator).requires_grad_(), labels


def plain(head: nn.Module, loss: nn.Module, features: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    logits = head(features) if isinstance(head, nn.Linear) else head(features, labels)
    return loss(logits, labels, sample_weight=weight)


def same(fused: Tensor, reference: Tensor, features: Tensor, head: nn.Module, seed: int = 1) -> None:
    inputs = [features, *head.parameters()]
    g = torch.randn(fused.shape, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(fused, reference)
    for a, b in zip(torch.autograd.grad(fused, inputs, g), torch.autograd.grad(reference, inputs, g), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", HEADS)
def test_equals_head_and_loss(kind: str, reduction: str, weighted: bool) -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS[kind](), batch()
    weight = torch.rand(K) + 0.5 if weighted else None
    each = torch.rand(N) if weighted else None
    loss = mohs.GeneralizedCrossEntropyLoss(reduction=reduction, weight=weight)
    same(
        mohs.FusedHead(head, loss)(features, labels, sample_weight=each),
        plain(head, loss, features, labels, each),
        features,
        head,
    )


@pytest.mark.parametrize("name", CURVES)
def test_every_curve(name: str) -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS["linear"](), batch()
    twin = mohs.create_loss(name)
    same(
        mohs.FusedHead(head, name)(features, labels),
        plain(head, twin, features, labels, None),
        features,
        head,
    )


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kind", HEADS)
def test_float64_keeps_its_digits(kind: str, reduction: str) -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS[kind]().double(), batch()
    features = features.detach().double().requires_grad_()
    loss = mohs.GeneralizedCrossEntropyLoss(reduction=reduction, weight=torch.rand(K, dtype=torch.float64) + 0.5)
    fused, reference = mohs.FusedHead(head, loss)(features, labels), plain(head, loss, features, labels, None)
    inputs, g = [features, *head.parameters()], torch.rand_like(reference)
    torch.testing.assert_close(fused, reference, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fused, inputs, g), torch.autograd.grad(reference, inputs, g), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kind", HEADS)
def test_statistics_are_those_of_the_label_free_logits(kind: str) -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS[kind](), batch()
    fused = mohs.FusedHead(head, "cross_entropy")
    value, seen = fused(features, labels, return_stats=True)
    torch.testing.assert_close(value, fused(features, labels))
    logits, kept = fused.logits(features).detach(), labels != -100
    log_p = logits.log_softmax(1)
    torch.testing.assert_close(seen.margin[kept], mohs.margin(logits[kept], labels[kept]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen.confidence[kept], log_p.exp()[kept, labels[kept]], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(seen.entropy[kept], -(log_p.exp() * log_p).sum(1)[kept], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen.angle[kept], mohs.angle(features[kept], head.weight[labels[kept]]).detach())
    assert torch.equal(seen.predicted[kept], logits.argmax(1)[kept])
    others = logits.scatter(1, labels.clamp(min=0)[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(seen.gap[kept], logits[kept, labels[kept]] - others[kept], rtol=1e-4, atol=1e-5)
    assert all(part[~kept].isnan().all() for part in seen[:5])
    assert not any(part.requires_grad for part in seen)


def test_a_bias_of_another_length_is_named() -> None:
    with pytest.raises(ValueError, match=r"bias must have shape \(3,\), one per row of weight, got \(2,\)"):
        mohs.linear_loss(torch.zeros(4, D), torch.zeros(3, D), torch.zeros(4, dtype=torch.long), torch.zeros(2))


def test_linear_loss_of_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 5, D, generator=generator).requires_grad_()
    weight, bias = torch.randn(K, D, generator=generator), torch.randn(K, generator=generator)
    labels = torch.randint(K, (2, 5), generator=generator)
    value = mohs.linear_loss(features, weight, labels, bias, loss="focal:gamma=1", reduction="none")
    expected = mohs.FocalLoss(gamma=1, reduction="none")(linear(features, weight, bias).movedim(-1, 1), labels)
    torch.testing.assert_close(value, expected)
    _, seen = mohs.linear_loss(features, weight, labels, bias, return_stats=True)
    assert seen.margin.shape == labels.shape
    ignored = mohs.linear_loss(features, weight, labels, bias, ignore_index=int(labels[0, 0]), reduction="sum")
    kept = labels != labels[0, 0]
    torch.testing.assert_close(ignored, mohs.linear_loss(features[kept], weight, labels[kept], bias, reduction="sum"))


def test_weights_of_examples_may_be_learned() -> None:
    features, labels = batch()
    weight, each = torch.randn(K, D), torch.rand(N, requires_grad=True)
    (a,) = torch.autograd.grad(mohs.linear_loss(features, weight, labels, sample_weight=each, loss="cross_entropy"), each)
    (b,) = torch.autograd.grad(mohs.CrossEntropyLoss()(features @ weight.T, labels, sample_weight=each), each)
    torch.testing.assert_close(a, b)


def test_under_autocast_and_in_bfloat16() -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS["linear"](), batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = mohs.FusedHead(head, "gce")(features, labels)
    value.backward()
    assert head.weight.grad.dtype == torch.float32
    short = mohs.linear_loss(features.bfloat16(), head.weight.bfloat16(), labels, head.bias.bfloat16(), loss="gce")
    torch.testing.assert_close(value, short)
    torch.testing.assert_close(value, mohs.FusedHead(head, "gce")(features, labels), rtol=2e-2, atol=1e-2)


def test_backward_twice_and_nothing_to_average() -> None:
    torch.manual_seed(0)
    head, (features, labels) = HEADS["linear"](), batch()
    value = mohs.FusedHead(head, "cross_entropy")(features, labels)
    first = torch.autograd.grad(value, features, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(value, features)[0])
    none = torch.full_like(labels, -100)
    assert mohs.FusedHead(head, "cross_entropy")(features, none).isnan()
    assert mohs.linear_loss(features, head.weight, none, reduction="sum") == 0
    assert mohs.linear_loss(features[:0], head.weight, labels[:0], reduction="sum") == 0


def test_what_cannot_be_fused() -> None:
    with pytest.raises(ValueError, match="SphereFaceHead cannot be fused"):
        mohs.FusedHead(mohs.SphereFaceHead(D, K))
    with pytest.raises(ValueError, match="MeanSquaredErrorLoss cannot be fused"):
        mohs.FusedHead(nn.Linear(D, K), "mse")
    with pytest.raises(ValueError, match="label_smoothing cannot be fused"):
        mohs.FusedHead(nn.Linear(D, K), mohs.CrossEntropyLoss(label_smoothing=0.1))
    features, labels = batch()
    with pytest.raises(ValueError, match=r"labels\[0\] is 99"):
        mohs.linear_loss(features, torch.randn(K, D), labels.clone().fill_(99))
    with pytest.raises(ValueError, match="probability targets cannot be fused"):
        mohs.linear_loss(features, torch.randn(K, D), torch.full((len(features), K), 1 / K))


@pytest.mark.parametrize("alpha", [0.25, torch.tensor([0.2, 0.3, 0.5])])
def test_focal_loss_with_alpha_is_not_a_curve_of_the_margin(alpha: Any) -> None:
    loss = mohs.FocalLoss(alpha=alpha)
    with pytest.raises(ValueError, match="FocalLoss cannot be fused: it is not a curve of the margin"):
        mohs.linear_loss(torch.randn(4, 8), torch.randn(3, 8), torch.tensor([0, 1, 2, 0]), loss=loss)
    with pytest.raises(ValueError, match="FocalLoss does not take probability targets"):
        loss(torch.randn(4, 3), torch.full((4, 3), 1 / 3))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_without_gradients_only_the_logits_are_computed(kind: str, off: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    fused, (features, labels) = mohs.FusedHead(HEADS[kind](), "gce"), batch()
    expected, seen = fused(features, labels, return_stats=True)
    monkeypatch.setattr(_chunked._Gradients, "add", lambda *_: pytest.fail("a gradient was computed"))
    with off():
        value, observed = fused(features, labels, return_stats=True)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(tuple(observed), tuple(seen), equal_nan=True)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # by torch, of what enters the break
@pytest.mark.parametrize("kind", HEADS)
def test_runs_between_two_graphs_when_compiled(kind: str) -> None:
    torch.manual_seed(0)
    fused, (features, labels) = mohs.FusedHead(HEADS[kind](), "gce"), batch()
    torch.compiler.reset()
    compiled = torch.compile(lambda x: fused(2 * x, labels), backend="eager")
    same(compiled(features), fused(2 * features, labels), features, fused.head)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compile without fullgraph=True"):
        torch.compile(lambda x: fused(x, labels), backend="eager", fullgraph=True)(features)


def test_a_loss_by_name_works_when_compiled() -> None:
    head, (features, labels) = HEADS["linear"](), batch()
    torch.compiler.reset()

    def value(x: Tensor) -> Tensor:
        return mohs.linear_loss(x, head.weight, labels, head.bias, loss="gce:q=0.5", ignore_index=-100, reduction="sum")

    same(torch.compile(value, backend="eager")(features), value(features), features, head)


def test_a_loss_that_keeps_a_state_needs_a_module() -> None:
    features, labels = batch()
    with pytest.raises(ValueError, match="loss='self_paced' keeps a state from batch to batch: create it once"):
        mohs.linear_loss(features, torch.randn(K, D), labels, loss="self_paced")
    loss = mohs.SelfPacedLoss()
    mohs.linear_loss(features, torch.randn(K, D), labels, loss=loss)
    assert loss.threshold < torch.inf


def test_transforms_are_refused() -> None:
    features, labels = batch()
    with pytest.raises(ValueError, match=r"torch\.func transforms do not work with linear_loss and FusedHead"):
        torch.func.grad(lambda w: mohs.linear_loss(features, w, labels))(torch.randn(K, D))


def test_labels_have_the_shape_of_the_features() -> None:
    features, weight = torch.randn(2, 4, D), torch.randn(K, D)
    with pytest.raises(ValueError, match=r"labels must have shape \(2, 4\) for features of shape \(2, 4, 8\), got \(4, 2\)"):
        mohs.linear_loss(features, weight, torch.zeros(4, 2, dtype=torch.long))


def test_options_and_inputs_are_named() -> None:
    features, labels = batch()
    loss = mohs.CrossEntropyLoss()
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none, got 'average'"):
        mohs.linear_loss(features, torch.randn(K, D), labels, loss=loss, reduction="average")
    with pytest.raises(ValueError, match="ignore_index must be an integer"):
        mohs.linear_loss(features, torch.randn(K, D), labels, loss=loss, ignore_index="pad")
    with pytest.raises(ValueError, match="weight must be a tensor, got Linear"):
        mohs.linear_loss(features, nn.Linear(D, K), labels)
    with pytest.raises(ValueError, match="labels must be a tensor, got list"):
        mohs.linear_loss(features, torch.randn(K, D), labels.tolist())


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_any_integer_labels_are_taken(dtype: torch.dtype, reduction: str) -> None:
    features, labels = batch()
    labels = labels.clamp(min=0)
    weight = torch.randn(K, D)
    value, seen = mohs.linear_loss(features, weight, labels.to(dtype), reduction=reduction, return_stats=True)
    expected, observed = mohs.linear_loss(features, weight, labels, reduction=reduction, return_stats=True)
    assert torch.equal(value, expected)
    assert all(torch.equal(a, b) for a, b in zip(seen, observed, strict=True))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", CURVES)
def test_without_another_class_the_loss_is_that_of_certainty(name: str, reduction: str) -> None:
    features = torch.randn(5, D, requires_grad=True)
    weight, bias, labels = torch.randn(3, D), torch.tensor([0.0, -torch.inf, -torch.inf]), torch.zeros(5, dtype=torch.long)
    fused = mohs.linear_loss(features, weight, labels, bias, loss=mohs.create_loss(name, reduction=reduction))
    expected = mohs.create_loss(name, reduction=reduction)(linear(features, weight, bias), labels)
    torch.testing.assert_close(fused, expected)
    (gradient,) = torch.autograd.grad(fused.sum(), features)
    torch.testing.assert_close(gradient, torch.zeros_like(features))


@pytest.mark.parametrize("kind", HEADS)
def test_wrong_labels_are_named(kind: str) -> None:
    fused, (features, labels) = mohs.FusedHead(HEADS[kind]()), batch()
    for wrong, message in (
        (labels[:3], r"labels must have shape \(37,\) for features of shape \(37, 8\), got \(3,\)"),
        (torch.rand(N, K), "probability targets cannot be fused"),
        (labels.tolist(), "labels must be a tensor, got list"),
        (labels.clamp(min=99), r"labels\[0\] is 99, but logits have 11 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            fused(features, wrong)
