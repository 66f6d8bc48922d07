"""Counts and weights by class, LDAM and the logit-adjusted loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.losses.class_weights import class_counts, class_weights, deferred_weights
from mohs.losses.ldam import LDAMLoss, ldam_loss, ldam_margins
from mohs.losses.logit_adjusted import LogitAdjustedLoss, log_prior, logit_adjusted_loss

COUNTS = [1000, 100, 10, 1]


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(4, (n,), generator=generator)


def test_class_counts() -> None:
    assert class_counts(torch.tensor([[0, 2], [2, -100]]), 4).tolist() == [1, 0, 2, 0]
    assert class_counts(torch.tensor([0, 9], dtype=torch.uint8), 2, ignore_index=9).tolist() == [1, 0]
    assert class_counts([], 3).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"labels hold 3, but num_classes=3: they must lie in 0\.\.2"):
        class_counts(torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match=r"labels hold -1, but num_classes=3"):
        class_counts(torch.tensor([0, -1]), 3)
    with pytest.raises(ValueError, match=r"labels must be integer class indices, got torch.float32"):
        class_counts(torch.tensor([0.0, 1.0]), 3)


def test_weights_go_from_equal_to_inverse_frequency() -> None:
    counts = torch.tensor(COUNTS)
    assert class_weights(counts) is None
    torch.testing.assert_close(class_weights(counts, "auto", beta=0.0), torch.ones(4))
    inverse = 1 / counts
    nearly = class_weights(counts, "auto", beta=1 - 1e-12)
    torch.testing.assert_close(nearly, 4 * inverse / inverse.sum(), rtol=1e-4, atol=0)
    middle = class_weights(counts, "auto")
    assert middle.dtype == torch.get_default_dtype()
    assert middle.sum().item() == pytest.approx(4)
    assert (middle.diff() > 0).all()  # rarer, heavier


def test_a_class_without_examples_has_weight_one_and_does_not_affect_others() -> None:
    present = class_weights([1000, 10, 1], "auto")
    weights = class_weights([1000, 0, 10, 1], "auto")
    assert weights[1] == 1
    torch.testing.assert_close(weights[[0, 2, 3]], present)
    assert weights.sum().item() == pytest.approx(4)
    assert class_weights([0, 5], "auto", beta=0.0).tolist() == [1.0, 1.0]


def test_weights_from_a_dict() -> None:
    assert class_weights(torch.tensor(COUNTS), {3: 5, 0: 0.5}).tolist() == [0.5, 1.0, 1.0, 5.0]
    assert class_weights(torch.tensor(COUNTS), {}).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_deferred_weights_start_on_time() -> None:
    assert deferred_weights(COUNTS, epoch=0, start=2).tolist() == [1.0] * 4
    assert deferred_weights(COUNTS, epoch=1, start=2).tolist() == [1.0] * 4
    for epoch in (2, 3):
        assert torch.equal(deferred_weights(COUNTS, epoch=epoch, start=2), class_weights(COUNTS, "auto"))
    with pytest.raises(ValueError, match="beta must be at least 0 and under 1, got 2"):
        deferred_weights(COUNTS, epoch=0, start=2, beta=2)
    with pytest.raises(ValueError, match=r"counts\[1\] is -1"):
        deferred_weights([3, -1], epoch=0, start=2)


WRONG_WEIGHTS = [
    (COUNTS, "balanced", "class_weight must be None, 'auto' or a dict from class to weight, got 'balanced'"),
    (COUNTS, [1.0, 1.0, 1.0, 1.0], "class_weight must be None, 'auto' or a dict"),
    (COUNTS, {4: 1.0}, r"class_weight has an entry for 4, but the classes are the integers 0\.\.3"),
    (COUNTS, {"cat": 1.0}, "class_weight has an entry for 'cat'"),
    (COUNTS, {1: -1.0}, r"class_weight\[1\] is -1.0, but a weight must be finite and at least 0"),
    (COUNTS, {1: float("nan")}, r"class_weight\[1\] is nan"),
    ([0, 0], "auto", "counts are all 0"),
    ([3, -1], "auto", r"counts\[1\] is -1, but must be at least 0"),
    ([3.0, float("inf")], None, r"counts\[1\] is inf"),
    ([[1, 2]], "auto", r"counts must hold one number for each of at least 2 classes, got shape \(1, 2\)"),
]


@pytest.mark.parametrize(("counts", "class_weight", "message"), WRONG_WEIGHTS)
def test_wrong_weights(counts, class_weight, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_weights(counts, class_weight)


def test_auto_needs_beta_under_one() -> None:
    with pytest.raises(ValueError, match="beta must be at least 0 and under 1, got 1"):
        class_weights(COUNTS, "auto", beta=1.0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: ldam_loss(z, y, counts=COUNTS, max_margin=0.0),
        lambda z, y: logit_adjusted_loss(z, y, counts=COUNTS, tau=0.0),
        lambda z, y: logit_adjusted_loss(z, y, counts=[7, 7, 7, 7]),
    ],
)
def test_neutral_settings_are_cross_entropy(loss) -> None:
    logits, labels = batch()
    ours, theirs = loss(logits, labels), cross_entropy(logits, labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(ours, logits)[0], torch.autograd.grad(theirs, logits)[0], rtol=1e-12, atol=1e-12
    )


def test_the_rarest_class_gets_the_largest_margin() -> None:
    margins = ldam_margins(torch.tensor(COUNTS), max_margin=0.4)
    assert margins[3].item() == pytest.approx(0.4)
    assert (margins.diff() > 0).all()
    torch.testing.assert_close(ldam_margins(torch.tensor([5, 5])), torch.tensor([0.5, 0.5]))


def test_scale_turns_the_margin_into_logits() -> None:
    """On a head z = s cos, cross-entropy of s (cos − Δ); on a plain one scale=1 takes Δ off the logit itself."""
    logits, labels = batch()
    delta = ldam_margins(torch.tensor(COUNTS, dtype=torch.float64))
    for scale in (1.0, 30.0):
        moved = logits - scale * delta[labels].unsqueeze(1) * torch.eye(4, dtype=torch.float64)[labels]
        torch.testing.assert_close(ldam_loss(logits, labels, counts=COUNTS, scale=scale), cross_entropy(moved, labels))


def test_adjusted_logits_of_images() -> None:
    logits = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(4, (2, 3, 5), generator=torch.Generator().manual_seed(1))
    shift = log_prior(torch.tensor(COUNTS)).view(1, 4, 1, 1)
    torch.testing.assert_close(logit_adjusted_loss(logits, labels, counts=COUNTS), cross_entropy(logits + shift, labels))


LOSSES = [LDAMLoss, LogitAdjustedLoss]


@pytest.mark.parametrize("kind", LOSSES)
def test_counts_stay_integers_move_with_the_module_and_are_not_saved(kind) -> None:
    loss = kind(counts=COUNTS)
    assert f"counts={COUNTS}, " in repr(loss)
    assert "counts=[2.5, 1.0]" in repr(kind(counts=[2.5, 1.0]))
    assert loss.half().counts.tolist() == COUNTS  # float16 could not hold 100,000
    assert loss.state_dict() == {}
    assert loss.to("meta").counts.device.type == "meta"


@pytest.mark.parametrize("kind", LOSSES)
def test_classes_differ(kind) -> None:
    logits, labels = batch()
    names = torch.tensor([1, 0, 2, 3])
    renamed = (logits[:, names], names.argsort()[labels])
    torch.testing.assert_close(
        kind(counts=torch.tensor(COUNTS)[names])(*renamed), kind(counts=COUNTS)(logits, labels), rtol=1e-12, atol=1e-12
    )
    assert not torch.allclose(kind(counts=COUNTS)(*renamed), kind(counts=COUNTS)(logits, labels))


@pytest.mark.parametrize("kind", LOSSES)
def test_wrong_counts(kind) -> None:
    logits, labels = batch()
    function = {LDAMLoss: ldam_loss, LogitAdjustedLoss: logit_adjusted_loss}[kind]
    for make in (lambda c: kind(counts=c), lambda c: function(logits, labels, counts=c)):
        with pytest.raises(ValueError, match=r"counts\[2\] is 0, but must be at least 1: leave out a class without examples"):
            make([3, 2, 0, 1])
        with pytest.raises(ValueError, match=r"counts\[0\] is nan"):
            make([float("nan"), 2.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"counts must have shape \(4,\) for logits with 4 classes, got shape \(3,\)"):
        kind(counts=[3, 2, 1])(logits, labels)
    with pytest.raises(ValueError, match=r"counts must hold one number for each of at least 2 classes, got shape \(1,\)"):
        kind(counts=[3])


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="max_margin must be at least 0, got -1"):
        LDAMLoss(counts=COUNTS, max_margin=-1)
    with pytest.raises(ValueError, match="scale must be over 0, got 0; use the head's scale"):
        LDAMLoss(counts=COUNTS, scale=0)
    with pytest.raises(ValueError, match="tau must be at least 0, got -1"):
        LogitAdjustedLoss(counts=COUNTS, tau=-1)
    for kind in LOSSES:
        with pytest.raises(ValueError, match="label_smoothing is not defined for"):
            kind(counts=COUNTS, label_smoothing=0.1)


@pytest.mark.parametrize("wrong", ["abc", None, [1, "a"]])
def test_counts_are_numbers(wrong: object) -> None:
    for function in (class_weights, lambda counts: LDAMLoss(counts=counts)):
        with pytest.raises(ValueError, match="counts must be a tensor, an array or nested lists of numbers"):
            function(wrong)
