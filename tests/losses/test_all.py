"""What holds for every loss in LOSSES. Exceptions are listed by name, each with its reason."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

import mohs

CLASSES = 4
OTHER_FUNCTION = {
    "online_smoothing": "the function takes the soft labels that the Module learns",
    "self_paced": "the function takes the threshold that the Module follows",
    "avh": "the function starts from features and class weights",
}
NOT_SHIFT_INVARIANT = {
    "mse sigmoid": "every class has a sigmoid of its own",
    "spherical": "the exponential is replaced by a square",
    "taylor": "the exponential is replaced by a parabola",
}
TIED_TO_CLASSES = {
    "forward uneven": "its transition matrix names the classes",
    "backward uneven": "its transition matrix names the classes",
    "ldam": "its margins come from the classes' counts",
    "logit_adjusted": "its prior comes from the classes' counts",
}
NO_GRADCHECK = {
    "gradient_rescaling sum": "its weight is not differentiated; tests/papers/test_gr.py has the gradient's formula",
    "gradient_rescaling mean": "its weight is not differentiated; tests/papers/test_gr.py has the gradient's formula",
    "bootstrap_soft detached": "its target is not differentiated; tests/papers/test_related.py has the gradient's formula",
    "self_paced": "its weight is not differentiated, and its threshold moves at every call",
}
BATCH_NORMALIZED = {
    "gradient_rescaling sum": "an example's value depends on the batch through Σw",
    "self_paced": "an example's value depends on the batch through its percentile",
}


def kind(name: str, case: dict) -> str:
    """The name of the loss and its variant, as in the tables of exceptions."""
    loss = mohs.create_loss(name, **case)
    detached = "detached" if getattr(loss, "detach", False) else ""
    table = getattr(loss, "transition", None)
    uneven = "uneven" if table is not None and not torch.equal(table, table.T) else ""
    return " ".join(filter(None, [name, getattr(loss, "activation", ""), getattr(loss, "normalize", ""), detached, uneven]))


def batch(
    n: int = 12, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, CLASSES, generator=generator, dtype=torch.float64)
    return logits.to(dtype).requires_grad_(), torch.randint(CLASSES, (n,), generator=generator)


def gradient(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, logits)[0]


def test_every_loss_has_a_case(loss_cases: dict) -> None:
    assert set(loss_cases) == set(mohs.LOSSES)


def test_function_equals_module(name: str, case: dict) -> None:
    logits, labels = batch()
    if name in OTHER_FUNCTION:
        pytest.skip(OTHER_FUNCTION[name])
    function = getattr(import_module(mohs.LOSSES[name].__module__), f"{name}_loss")
    assert torch.equal(function(logits, labels, **case), mohs.create_loss(name, **case)(logits, labels))


@pytest.mark.parametrize("weighted", [False, True])
def test_reductions_agree(name: str, case: dict, weighted: bool) -> None:
    logits, labels = batch()
    labels[3] = -100
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64) if weighted else None
    loss = {r: mohs.create_loss(name, reduction=r, weight=weight, **case)(logits, labels) for r in ("none", "mean", "sum")}
    share = (labels != -100).sum() if weight is None else weight[labels.clamp(min=0)][labels != -100].sum()
    assert loss["none"].shape == labels.shape
    for reduced, terms in ((loss["sum"], loss["none"].sum()), (loss["mean"], loss["none"].sum() / share)):
        torch.testing.assert_close(reduced, terms)
        torch.testing.assert_close(gradient(reduced, logits), torch.autograd.grad(terms, logits, retain_graph=True)[0])


def test_none_keeps_each_gradient_in_its_row(name: str, case: dict) -> None:
    logits, labels = batch(5)
    jacobian = torch.autograd.functional.jacobian(lambda z: mohs.create_loss(name, reduction="none", **case)(z, labels), logits)
    rows = torch.einsum("iik->ik", jacobian)
    torch.testing.assert_close(gradient(mohs.create_loss(name, reduction="sum", **case)(logits, labels), logits), rows)
    assert (jacobian[~torch.eye(5, dtype=torch.bool)] == 0).all()


@given(seed=st.integers(0, 2**31), shift=st.floats(-50, 50))
@settings(deadline=None, derandomize=True, max_examples=15)
def test_invariances(name: str, case: dict, seed: int, shift: float) -> None:
    logits, labels = batch(seed=seed)
    loss = mohs.create_loss(name, reduction="none", **case)
    values = loss(logits, labels)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(loss(logits[order], labels[order]), values[order])
    names = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))
    if kind(name, case) not in TIED_TO_CLASSES:
        torch.testing.assert_close(loss(logits[:, names], names.argsort()[labels]), values)
    if kind(name, case) not in NOT_SHIFT_INVARIANT:
        torch.testing.assert_close(loss(logits + shift, labels), values, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("which", NOT_SHIFT_INVARIANT)
def test_exceptions_to_shift_invariance_are_real(which: str) -> None:
    logits, labels = batch()
    name, *activation = which.split()
    loss = mohs.create_loss(name, **({"activation": activation[0]} if activation else {}))
    assert not torch.allclose(loss(logits + 1, labels), loss(logits, labels))


def test_first_and_second_derivatives(name: str, case: dict) -> None:
    if kind(name, case) in NO_GRADCHECK:
        pytest.skip(NO_GRADCHECK[kind(name, case)])
    logits, labels = batch(4)
    loss = mohs.create_loss(name, **case)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_extreme_logits(name: str, case: dict, dtype: torch.dtype) -> None:
    top = 1e4
    logits = torch.tensor([[top, -top, 0, 0], [-top, top, 0, top], [0, 0, 0, 0], [top, top, top, top], [-top, 0, 0, 0]])
    logits = logits.repeat(2, 1).to(dtype).requires_grad_()
    labels = torch.tensor([0, 0, 1, 2, 0, 1, 1, 2, 3, 3])
    value = mohs.create_loss(name, **case)(logits, labels)
    assert value.dtype == torch.float32
    assert value.isfinite()
    grad = gradient(value, logits)
    assert grad.dtype == dtype
    assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_raised_to_float32(name: str, case: dict, dtype: torch.dtype) -> None:
    logits, labels = batch(dtype=dtype)
    loss = mohs.create_loss(name, **case)
    raised = logits.detach().float().requires_grad_()
    torch.testing.assert_close(loss(logits, labels), loss(raised, labels))
    torch.testing.assert_close(gradient(loss(logits, labels), logits), gradient(loss(raised, labels), raised).to(dtype))


def test_under_autocast(name: str, case: dict) -> None:
    layer = nn.Linear(8, CLASSES)
    inputs, labels = torch.randn(12, 8), batch()[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(inputs)
        value = mohs.create_loss(name, **case)(logits, labels)
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, mohs.create_loss(name, **case)(logits.float(), labels))
    value.backward()
    assert layer.weight.grad.isfinite().all()


def test_emphasis_is_half_the_l1_norm_of_the_logit_gradient(name: str, case: dict) -> None:
    loss = mohs.create_loss(name, reduction="sum", **({**case, "normalize": "mean"} if name == "gradient_rescaling" else case))
    if not hasattr(loss, "curve") or getattr(loss, "label_smoothing", 0):
        pytest.skip("not a curve of the margin, or smoothed over all classes: the identity is for curves")
    logits, labels = batch(200, scale=4.0)
    p = logits.detach().softmax(1).gather(1, labels[:, None]).squeeze(1)
    half = gradient(loss(logits, labels), logits).abs().sum(1) / 2
    torch.testing.assert_close(mohs.emphasis(loss, p), half, rtol=1e-7, atol=1e-9)


def test_sample_weight(name: str, case: dict) -> None:
    logits, labels = batch()
    loss, terms = mohs.create_loss(name, **case), mohs.create_loss(name, reduction="none", **case)
    w = torch.arange(12, dtype=torch.float64)
    torch.testing.assert_close(loss(logits, labels, sample_weight=torch.ones(12)), loss(logits, labels))
    torch.testing.assert_close(terms(logits, labels, sample_weight=w), terms(logits, labels) * w)
    torch.testing.assert_close(loss(logits, labels, sample_weight=w), (terms(logits, labels) * w).sum() / w.sum())
    if kind(name, case) not in BATCH_NORMALIZED:
        twice = torch.tensor([2.0] * 3 + [1.0] * 9)
        again = loss(torch.cat([logits, logits[:3]]), torch.cat([labels, labels[:3]]))
        torch.testing.assert_close(loss(logits, labels, sample_weight=twice), again)


def test_ignored_rows_are_as_if_absent(name: str, case: dict) -> None:
    logits, labels = batch()
    kept = torch.ones(12, dtype=torch.bool)
    kept[[2, 7]] = False
    marked = labels.clone()
    marked[~kept] = 9
    for reduction in ("mean", "sum"):
        loss = mohs.create_loss(name, reduction=reduction, ignore_index=9, **case)
        torch.testing.assert_close(loss(logits, marked), loss(logits[kept], labels[kept]))
        grad = gradient(loss(logits, marked), logits)
        torch.testing.assert_close(grad[kept], gradient(loss(logits[kept], labels[kept]), logits)[kept])
        assert (grad[~kept] == 0).all()
    none = mohs.create_loss(name, reduction="none", ignore_index=9, **case)(logits, marked)
    assert (none[~kept] == 0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_pixels_are_examples(name: str, case: dict, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, CLASSES, 3, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (2, 3, 5), generator=generator)
    labels[0, 1, 2] = -100
    case = {**case, "weight": [1.0, 2.0, 0.5, 1.5]} if weighted else case
    flat, flat_labels = logits.movedim(1, -1).reshape(-1, CLASSES), labels.flatten()
    torch.testing.assert_close(mohs.create_loss(name, **case)(logits, labels), mohs.create_loss(name, **case)(flat, flat_labels))
    none = mohs.create_loss(name, reduction="none", **case)
    torch.testing.assert_close(none(logits, labels).flatten(), none(flat, flat_labels))
    images, pixels = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 3.0]).repeat_interleave(15)
    torch.testing.assert_close(
        none(logits, labels, sample_weight=images).flatten(), none(flat, flat_labels, sample_weight=pixels)
    )


def test_repr_rebuilds_and_pickles(name: str, case: dict) -> None:
    logits, labels = batch()
    loss = mohs.create_loss(name, weight=[0.1, 0.2, 0.3, 0.4], **case)
    value = loss(logits, labels)
    rebuilt = eval(repr(loss), vars(mohs) | {type(loss).__name__: type(loss)})
    for twin in (rebuilt, pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert repr(twin) == repr(loss)
        torch.testing.assert_close(twin(logits, labels), value)
    assert [f.name for f in fields(loss)][-4:] == ["weight", "ignore_index", "reduction", "label_smoothing"]


WEIGHT_FIRST = ("cross_entropy", "avh", "mae", "taylor")  # without hyper-parameters of their own: as in nn.CrossEntropyLoss


@pytest.mark.parametrize("name", [name for name in mohs.LOSSES if name not in (*WEIGHT_FIRST, "focal")])
def test_arguments_are_keywords(name: str) -> None:
    with pytest.raises(TypeError, match="positional"):
        mohs.LOSSES[name](0.5)


@pytest.mark.parametrize("name", WEIGHT_FIRST)
def test_class_weights_by_position(name: str) -> None:
    assert mohs.LOSSES[name](torch.tensor([1.0, 2.0])).weight.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="positional"):
        mohs.LOSSES[name](torch.ones(2), -100)


def test_weight_is_a_buffer_that_moves_and_is_saved(name: str, case: dict) -> None:
    loss = mohs.create_loss(name, weight=torch.ones(CLASSES), **case)
    twin = mohs.create_loss(name, weight=torch.zeros(CLASSES), **case)
    twin.load_state_dict(loss.state_dict())
    assert twin.weight.tolist() == [1.0] * CLASSES
    assert "weight" not in mohs.create_loss(name, **case).state_dict()
    assert loss.to("meta").weight.device.type == "meta"
    assert not list(loss.parameters())


def test_float64_weights_stay_float64(name: str, case: dict) -> None:
    logits, labels = batch()
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    loss, rounded = (mohs.create_loss(name, weight=w, **case).eval() for w in (weight, weight.float()))
    assert loss.weight.dtype == torch.float64
    assert eval(repr(loss), vars(mohs) | {"torch": torch, type(loss).__name__: type(loss)}).weight.equal(weight)
    exact = mohs.create_loss(name, weight=10 * weight, **case).eval()(logits, labels)  # the mean does not depend on the scale
    torch.testing.assert_close(loss(logits, labels), exact, rtol=1e-14, atol=1e-14)
    assert (rounded(logits, labels) - exact).abs() > 1e-14


def test_one_example_without_a_batch(name: str, case: dict) -> None:
    logits, labels = batch(1)
    for reduction in ("mean", "sum", "none"):
        loss = mohs.create_loss(name, reduction=reduction, **case)
        one = loss(logits[0], labels[0])
        assert one.shape == ()
        torch.testing.assert_close(one, loss(logits, labels).squeeze())
        torch.testing.assert_close(gradient(one, logits), gradient(loss(logits, labels).sum(), logits))
        torch.testing.assert_close(loss(logits[0], labels[0], sample_weight=torch.tensor(1.0)), loss(logits, labels).squeeze())


def test_one_class(name: str, case: dict) -> None:
    if any(key in case for key in ("counts", "transition", "num_classes")):
        pytest.skip("its table needs at least 2 classes")
    logits, labels = torch.randn(3, 1, requires_grad=True), torch.zeros(3, dtype=torch.long)
    value = mohs.create_loss(name, **case)(logits, labels)
    assert value.isfinite()
    grad = gradient(value, logits)
    assert grad.isfinite().all()
    if name in ("cross_entropy", "avh", "gce", "mae", "focal", "symmetric", "spherical", "taylor"):
        assert value == 0
        assert not grad.any()


def test_input_and_target_by_name(name: str, case: dict) -> None:
    logits, labels = batch()
    loss = mohs.create_loss(name, **case).eval()
    assert torch.equal(loss(input=logits, target=labels), loss(logits, labels))


def test_compiles_without_a_graph_break(name: str, case: dict) -> None:
    torch._dynamo.reset()
    logits, labels = batch(dtype=torch.float32)
    loss = mohs.create_loss(name, weight=[1.0, 2.0, 3.0, 4.0], **case)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    value, w = compiled(logits, labels, sample_weight=torch.ones(12)), torch.ones(12)
    torch.testing.assert_close(value, loss(logits, labels, sample_weight=w))
    torch.testing.assert_close(gradient(value, logits), gradient(loss(logits, labels, sample_weight=w), logits))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_per_example_gradients_by_vmap(name: str, case: dict) -> None:
    logits, labels = batch(5)
    loss = mohs.create_loss(name, **case)
    one = torch.func.grad(lambda z, y: loss(z[None], y[None]))
    rows = torch.func.vmap(one)(logits.detach(), labels)
    for row, z, y in zip(rows, logits.detach(), labels, strict=True):
        torch.testing.assert_close(row, one(z, y))


def test_nothing_to_average(name: str, case: dict) -> None:
    logits, labels = batch()
    for z, y in ((logits[:0], labels[:0]), (logits, torch.full_like(labels, -100))):
        for reduction, like in (("mean", torch.isnan), ("sum", lambda v: v == 0)):
            ours = mohs.create_loss(name, reduction=reduction, **case)(z, y)
            assert like(ours)
            assert like(cross_entropy(z, y, reduction=reduction))
            assert (gradient(ours, logits) == 0).all()  # so that a step on padding alone changes nothing
        assert mohs.create_loss(name, reduction="none", **case)(z, y).shape == y.shape


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_row_is_nan_and_alone(name: str, case: dict, bad: float) -> None:
    if kind(name, case) in BATCH_NORMALIZED:
        pytest.skip("its batch normalizer makes every row NaN, as the mean of any loss would be")
    for column in range(2):
        logits, labels = batch(4)
        logits = logits.detach()
        labels[1] = 0
        logits[1, column] = bad
        values = mohs.create_loss(name, reduction="none", **case)(logits, labels)
        if kind(name, case) == "mse sigmoid" and bad == torch.inf:
            assert values.isfinite().all()  # sigmoid(∞) = 1 is a score like any other
        else:
            assert values.isnan().tolist() == [False, True, False, False]


BAD_INPUT = [
    (torch.randn(4, 3), torch.tensor([0, 1, 2, 3]), r"labels\[3\] is 3, but logits have 3 classes"),
    (torch.randn(4, 3), torch.tensor([0, -1, 2, 1]), r"labels\[1\] is -1"),
    (torch.randn(2, 3, 2), torch.tensor([[0, 1], [2, 7]]), r"labels\[\(1, 1\)\] is 7"),
    (torch.randn(4, 3), torch.tensor([0.0, 1.0, 2.0, 1.0]), r"labels must be integer class indices, got torch.float32"),
    (torch.randn(4, 3), torch.tensor([True, False, True, True]), r"labels must be integer class indices, got torch.bool"),
    (torch.randn(4, 3), torch.tensor([0, 1, 2]), r"labels must have shape \(4,\) for logits of shape \(4, 3\), got \(3,\)"),
    (torch.randn(4, 3, 2), torch.tensor([0, 1, 2, 0]), r"labels must have shape \(4, 2\)"),
    (torch.randn(4, 0), torch.zeros(4).long(), r"logits must have at least 1 class in dimension 1, got shape \(4, 0\)"),
    (torch.randn(()), torch.tensor(1), r"logits must have shape \(N, K\)"),
    (torch.randn(3), torch.tensor(3), r"labels\[0\] is 3, but logits have 3 classes"),
    (torch.ones(4, 3).long(), torch.zeros(4).long(), r"logits must be floating point, got torch.int64"),
]


@pytest.mark.parametrize(("logits", "labels", "message"), BAD_INPUT)
def test_bad_input(name: str, case: dict, logits: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mohs.create_loss(name, **case)(logits, labels)


def test_bad_options(name: str, case: dict) -> None:
    logits, labels = batch()
    with pytest.raises(ValueError, match="weight must have one entry for each of the 4 classes"):
        mohs.create_loss(name, weight=[1.0, 2.0], **case)(logits, labels)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(12,\)"):
        mohs.create_loss(name, **case)(logits, labels, sample_weight=torch.ones(3))
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none, got 'average'"):
        mohs.create_loss(name, reduction="average", **case)
    with pytest.raises(ValueError, match="label_smoothing"):
        mohs.create_loss(name, **{**case, "label_smoothing": 1.5})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_any_integer_labels_are_taken(dtype: torch.dtype, loss_cases: dict) -> None:
    logits, labels = batch()
    for name in mohs.LOSSES:
        loss = mohs.create_loss(name, **loss_cases[name][0])
        assert torch.equal(loss(logits, labels.to(dtype)), loss(logits, labels))


def test_a_loss_is_created_by_its_name_and_fields_in_one_word() -> None:
    assert mohs.create_loss("gce:q=0.5").q == 0.5
    assert mohs.create_loss("gce:q=0.5", q=0.25, reduction="sum").q == 0.25  # what is given by name counts
    with pytest.raises(ValueError, match="gce has no field 'z'"):
        mohs.create_loss("gce:z=1")


def test_unknown_names_list_known_names() -> None:
    with pytest.raises(ValueError, match="unknown loss 'ember'; known: cross_entropy, mae"):
        mohs.create_loss("ember")
    with pytest.raises(ValueError, match="gce has no field 'beta'; its fields: q, weight"):
        mohs.create_loss("gce", beta=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": np.zeros((12, 4))}, "input must be a tensor, got ndarray"),
        ({"target": [0] * 12}, "target must be a tensor, got list; convert it with torch.as_tensor"),
        ({"target": np.zeros(12, int)}, "target must be a tensor, got ndarray"),
        ({"sample_weight": [1.0] * 12}, "sample_weight must be a tensor, got list"),
        ({"sample_weight": np.ones(12)}, "sample_weight must be a tensor, got ndarray"),
    ],
)
def test_arrays_and_lists_are_named(change: dict, message: str, loss_cases: dict) -> None:
    logits, labels = batch()
    for name in mohs.LOSSES:
        with pytest.raises(ValueError, match=message):
            mohs.create_loss(name, **loss_cases[name][0])(**{"input": logits, "target": labels, **change})


@pytest.mark.parametrize("wrong", ["x", 1.0, None])
def test_ignore_index_is_an_integer(wrong: object) -> None:
    with pytest.raises(ValueError, match="ignore_index must be an integer"):
        mohs.CrossEntropyLoss(ignore_index=wrong)


def test_weights_are_numbers() -> None:
    with pytest.raises(ValueError, match="weight must be a tensor, an array or nested lists of numbers, got 'balanced'"):
        mohs.CrossEntropyLoss(weight="balanced")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda size: mohs.OnlineSmoothingLoss(num_classes=size), "num_classes"),
        (lambda size: mohs.EarlyLearning(size, 3), "num_examples"),
        (lambda size: mohs.CenterLoss(num_classes=size, in_features=4), "num_classes"),
        (lambda size: mohs.D2L(epochs=size), "epochs"),
    ],
)
@pytest.mark.parametrize("size", [3.0, "3", [3]])
def test_sizes_are_integers(make: object, name: str, size: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least [12], got"):
        make(size)
