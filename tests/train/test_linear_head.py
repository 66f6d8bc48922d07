from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression

import mohs
from mohs.train.linear_head import as_loss, fit_head

IRIS, SPECIES = (torch.tensor(a) for a in load_iris(return_X_y=True))


def test_cross_entropy_agrees_with_scikit_learn() -> None:
    l2 = 1e-2
    head = fit_head(IRIS, SPECIES, l2=l2)
    x = head.map(IRIS)
    peer = LogisticRegression(C=1 / (l2 * len(x)), tol=1e-10, max_iter=5000).fit(x, SPECIES)
    ours, theirs = torch.softmax(head.logits(IRIS), 1), torch.tensor(peer.predict_proba(x))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_weights_are_repetitions_and_zero_is_absence() -> None:
    weight = torch.arange(150) % 3
    weighted = fit_head(IRIS, SPECIES, sample_weight=weight.double())
    repeated = fit_head(IRIS.repeat_interleave(weight, 0), SPECIES.repeat_interleave(weight, 0))
    assert torch.allclose(weighted.logits(IRIS), repeated.logits(IRIS), atol=1e-4)


@pytest.mark.parametrize(
    "loss",
    ["gce", "gradient_rescaling", "encouraging", "mae", {"name": "focal", "gamma": 1.0}, "bootstrap_hard", "gce:q=0.5"],
)
def test_other_losses_are_deterministic(loss: object) -> None:
    heads = [fit_head(IRIS, SPECIES, loss=loss) for _ in range(2)]  # type: ignore[arg-type]
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert (heads[0].logits(IRIS).argmax(1) == SPECIES).double().mean() > 0.93


def test_a_loss_with_state_is_deterministic() -> None:
    loss = mohs.SelfPacedLoss()
    heads = [fit_head(IRIS, SPECIES, loss=loss) for _ in range(2)]
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert loss.threshold == torch.inf  # a copy was trained with
    assert (heads[0].logits(IRIS).argmax(1) == SPECIES).double().mean() > 0.6


def test_descent_ends_where_the_gradient_vanishes() -> None:
    head = fit_head(IRIS, SPECIES, loss="gce", steps=2000)
    weight = head.weight.clone().requires_grad_()
    value = mohs.GeneralizedCrossEntropyLoss()(head.map(IRIS) @ weight.T + head.bias, SPECIES) + 1e-2 / 2 * weight.square().sum()
    (gradient,) = torch.autograd.grad(value, weight)
    assert gradient.abs().max() < 1e-4


def test_robust_loss_beats_cross_entropy_on_wrong_labels() -> None:
    x, clean = (torch.tensor(a) for a in load_digits(return_X_y=True))
    g = torch.Generator().manual_seed(0)
    moved = torch.rand(len(x), generator=g) < 0.3
    y = torch.where(moved, (clean + torch.randint(1, 10, clean.shape, generator=g)) % 10, clean)
    right = {}
    for loss in ("cross_entropy", "gce"):
        head = fit_head(x[:1200], y[:1200], loss=loss, landmarks=256)
        right[loss] = float((head.logits(x[1200:]).argmax(1) == clean[1200:]).double().mean())
    assert right["gce"] > right["cross_entropy"] + 0.05
    assert right["gce"] > 0.9


def test_empty_query_and_unseen_class() -> None:
    head = fit_head(IRIS, SPECIES, num_classes=5)
    assert head.logits(IRIS[:0]).shape == (0, 5)
    assert (head.logits(IRIS).argmax(1) < 3).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "ember"}, "unknown loss 'ember'; known: cross_entropy"),
        ({"loss": 3}, "loss must be a name, a mapping with a name, or a loss, got 3"),
        ({"l2": -1.0}, "l2 must be at least 0, got -1.0"),
        ({"num_classes": 2}, r"labels must lie in 0\.\.1, with at least 2 classes; the largest is 2"),
        ({"sample_weight": torch.ones(3)}, r"sample_weight must have shape \(150,\)"),
        ({"sample_weight": -torch.ones(150)}, "sample_weight must be finite, at least 0"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_head(IRIS, SPECIES, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"labels must have shape \(150,\)"):
        fit_head(IRIS, SPECIES[:3])


def test_losses_by_name_mapping_and_instance() -> None:
    assert repr(as_loss({"name": "gce", "q": 0.5})) == repr(mohs.GeneralizedCrossEntropyLoss(q=0.5))
    loss = torch.nn.CrossEntropyLoss()
    assert as_loss(loss) is loss
    assert torch.allclose(
        fit_head(IRIS, SPECIES, loss=loss).weight, fit_head(IRIS, SPECIES, loss="cross_entropy").weight, atol=1e-5
    )
