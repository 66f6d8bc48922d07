"""Forward and backward correction, their transition matrices, and bootstrapping."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.losses.bootstrap import BootstrapHardLoss, BootstrapSoftLoss, bootstrap_hard_loss, bootstrap_soft_loss
from mohs.losses.correction import BackwardLoss, ForwardLoss, backward_loss, forward_loss
from mohs.losses.transition import inverse_transition, pair_transition, symmetric_transition

CORRECTIONS = [ForwardLoss, BackwardLoss]
EYE = torch.eye(4)
UNEVEN = [[0.75, 0.25, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.125, 0.125, 0.5, 0.25], [0.0, 0.0, 0.0, 1.0]]
OWN, OTHER, NEXT = 0.58, 0.03, 0.36  # in bfloat16 they sum to 1.004
ROUNDED = [[OWN, NEXT, OTHER, OTHER], [OTHER, OWN, NEXT, OTHER], [OTHER, OTHER, OWN, NEXT], [NEXT, OTHER, OTHER, OWN]]


def batch(n: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = (2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)).to(dtype)
    return logits.requires_grad_(), torch.randint(4, (n,), generator=generator)


def same_as_cross_entropy(value: Tensor, logits: Tensor, labels: Tensor) -> None:
    expected = cross_entropy(logits, labels)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(v, logits)[0] for v in (value, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [forward_loss, backward_loss])
@pytest.mark.parametrize("eye", [EYE, EYE.long(), EYE.tolist()])
def test_no_noise_is_cross_entropy(loss, eye) -> None:
    logits, labels = batch()
    same_as_cross_entropy(loss(logits, labels, transition=eye), logits, labels)


def test_full_trust_is_cross_entropy() -> None:
    logits, labels = batch()
    same_as_cross_entropy(bootstrap_soft_loss(logits, labels, trust=1.0), logits, labels)
    same_as_cross_entropy(bootstrap_hard_loss(logits, labels, trust=1.0), logits, labels)


def test_relabeling_the_classes_relabels_the_matrix() -> None:
    logits, labels = batch()
    transition = torch.tensor(UNEVEN, dtype=torch.float64)
    names = torch.tensor([2, 0, 3, 1])
    for loss in (forward_loss, backward_loss):
        renamed = loss(logits[:, names], names.argsort()[labels], transition=transition[names][:, names])
        torch.testing.assert_close(renamed, loss(logits, labels, transition=transition), rtol=1e-12, atol=1e-12)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(loss(logits[:, names], names.argsort()[labels], transition=transition), renamed)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_rows_of_the_built_matrices_sum_to_one(classes: int) -> None:
    for build in (symmetric_transition, pair_transition):
        transition = build(classes, 0.4)
        assert transition.dtype == torch.get_default_dtype()
        torch.testing.assert_close(transition.sum(1), torch.ones(classes))
        torch.testing.assert_close(transition.diagonal(), torch.full((classes,), 0.6))


def test_function_equals_module_and_the_inverse_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = batch()
    loss = BackwardLoss(transition=UNEVEN)
    expected = backward_loss(logits, labels, transition=torch.tensor(UNEVEN))
    monkeypatch.setattr("mohs.losses.correction.inverse_transition", lambda _: pytest.fail("inverted again"))
    assert torch.equal(loss(logits, labels), expected)


@pytest.mark.parametrize("kind", CORRECTIONS)
def test_the_matrix_is_in_the_repr_moves_with_the_module_and_is_not_saved(kind) -> None:
    loss = kind(transition=UNEVEN)
    assert f"transition={UNEVEN}, weight=None" in repr(loss)
    assert "inverse" not in repr(loss)
    assert loss.state_dict() == {}
    assert not list(loss.parameters())
    assert kind(transition=torch.tensor(UNEVEN, dtype=torch.float64)).transition.dtype == torch.get_default_dtype()
    moved = loss.to("meta")
    assert {buffer.device.type for buffer in moved.buffers()} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", CORRECTIONS)
def test_a_module_cast_to_half_precision_still_runs(kind, dtype: torch.dtype) -> None:
    logits, labels = batch(dtype=dtype)
    full, half = kind(transition=ROUNDED), kind(transition=ROUNDED).to(dtype)
    torch.testing.assert_close(half(logits, labels), full(logits, labels), rtol=0.02, atol=0.02)


def test_backward_can_be_negative() -> None:
    logits = torch.tensor([[0.0, -9.0, 0.0, 0.0]])
    assert backward_loss(logits, torch.tensor([0]), transition=symmetric_transition(4, 0.5)) < -1


def test_a_label_with_transition_probability_0() -> None:
    never = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    values = forward_loss(torch.zeros(2, 2), torch.tensor([0, 1]), transition=never, reduction="none")
    assert values.tolist() == [0.0, float("inf")]


def test_a_learned_matrix_gets_a_gradient() -> None:
    logits, labels = batch()
    transition = symmetric_transition(4, 0.3, dtype=torch.float64).requires_grad_()
    for loss in (forward_loss, backward_loss):
        assert torch.autograd.gradcheck(  # rows that no longer sum to exactly 1 pass, within the tolerance
            lambda t, loss=loss: loss(logits.detach(), labels, transition=t), transition, eps=1e-6
        )


MASKED_OUT = [
    (lambda z, y: forward_loss(z, y, transition=EYE), True),
    (lambda z, y: backward_loss(z, y, transition=EYE), True),
    (lambda z, y: bootstrap_soft_loss(z, y, trust=0.5, detach=True), False),
    (lambda z, y: bootstrap_soft_loss(z, y, trust=0.5), False),
    (lambda z, y: bootstrap_hard_loss(z, y, trust=0.5), False),
]


@pytest.mark.parametrize(("loss", "is_cross_entropy"), MASKED_OUT)
def test_minus_infinity_masks_a_class_out(loss, is_cross_entropy: bool) -> None:
    logits, _ = batch()
    labels = torch.arange(12) % 3
    masked = logits.detach().clone().index_fill_(1, torch.tensor([3]), -torch.inf).requires_grad_()
    value = loss(masked, labels)
    (grad,) = torch.autograd.grad(value, masked)
    assert value.isfinite()
    assert grad.isfinite().all()
    assert (grad[:, 3] == 0).all()
    if is_cross_entropy:
        torch.testing.assert_close(value, cross_entropy(masked, labels))
    else:
        torch.testing.assert_close(value, loss(masked[:, :3], labels))


def test_detaching_the_target_does_not_change_the_value() -> None:
    logits, labels = batch()
    values = [bootstrap_soft_loss(logits, labels, detach=detach) for detach in (False, True)]
    assert torch.equal(*values)
    gradients = [torch.autograd.grad(value, logits)[0] for value in values]
    assert (gradients[0] - gradients[1]).abs().max() > 1e-4


@pytest.mark.parametrize("kind", CORRECTIONS)
def test_function_compiles(kind) -> None:
    torch._dynamo.reset()
    logits, labels = batch()
    function = {ForwardLoss: forward_loss, BackwardLoss: backward_loss}[kind]
    transition = torch.tensor(UNEVEN)
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(logits, labels, transition=transition), kind(transition=transition)(logits, labels))


WRONG = [
    ([[0.5, 0.5]], r"transition must be a square matrix \(K, K\), got shape \(1, 2\)"),
    ([0.5, 0.5], r"transition must be a square matrix \(K, K\), got shape \(2,\)"),
    ([[1.0, 0.0], [1.5, -0.5]], r"transition\[1, 1\] is -0.5: entries are probabilities, at least 0"),
    ([[1.0, 0.0], [torch.nan, 0.5]], r"transition\[1, 0\] is nan"),
    ([[1.0, 0.0], [0.5, 0.4]], r"row 1 of transition sums to 0.9, .* must sum to 1: divide each row by its sum"),
    ([[1, 0], [1, 1]], r"row 1 of transition sums to 2"),
]


@pytest.mark.parametrize("kind", CORRECTIONS)
@pytest.mark.parametrize(("transition", "message"), WRONG)
def test_wrong_matrices(kind, transition, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(transition=transition)


@pytest.mark.parametrize("function", [forward_loss, backward_loss])
def test_functions_check_their_matrix(function) -> None:
    logits, labels = batch()
    with pytest.raises(ValueError, match=r"transition must have shape \(4, 4\) for logits with 4 classes, got shape \(3, 3\)"):
        function(logits, labels, transition=torch.eye(3))
    with pytest.raises(ValueError, match="row 0 of transition sums to 2"):
        function(logits, labels, transition=2 * EYE)
    with pytest.raises(ValueError, match=r"label_smoothing=0.1 is not defined"):
        function(logits, labels, transition=EYE, label_smoothing=0.1)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_singular_matrices(classes: int) -> None:
    for dtype in (torch.float32, torch.float64):
        singular = symmetric_transition(classes, (classes - 1) / classes, dtype=dtype)
        with pytest.raises(ValueError, match="transition is singular or nearly so"):
            BackwardLoss(transition=singular)
        with pytest.raises(ValueError, match="forward correction"):
            inverse_transition(singular)
        assert ForwardLoss(transition=singular)(torch.zeros(2, classes), torch.tensor([0, 1])).isfinite()
    with pytest.raises(ValueError, match="singular"):
        backward_loss(torch.zeros(1, 2), torch.tensor([0]), transition=pair_transition(2, 0.5))


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"rate must be between 0 and 1, got 1.2"):
        symmetric_transition(4, 1.2)
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        pair_transition(1, 0.1)
    for kind in (BootstrapSoftLoss, BootstrapHardLoss):
        with pytest.raises(ValueError, match=r"trust must be between 0 and 1, got 1.5"):
            kind(trust=1.5)
    for kind in (BootstrapSoftLoss, BootstrapHardLoss):
        with pytest.raises(ValueError, match="label_smoothing is not defined for Bootstrap"):
            kind(label_smoothing=0.1)
    for kind in CORRECTIONS:
        with pytest.raises(ValueError, match="label_smoothing is not defined for"):
            kind(transition=EYE, label_smoothing=0.1)
