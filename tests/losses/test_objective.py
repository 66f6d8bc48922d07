from __future__ import annotations

import pytest
import torch
from torch import nn

import mohs
from mohs.losses.objective import Objective, create_objective

LOGITS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
FEATURES = torch.randn(12, 7, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 1, 2, 3, 4, 0, 0, 1, 2, 4, 4, 1])  # some pairs k, k + 6 agree


def test_total_is_the_weighted_sum_of_the_parts() -> None:
    terms = [(0.05, mohs.ADR(tau=3)), (mohs.ramp_up(epochs=80, peak=0.1), mohs.AMC(margin=0.5))]
    objective = Objective(mohs.EncouragingLoss(), terms)
    predicted = LOGITS.argmax(1)
    for epoch, weight in ((0, 0.0), (40, 0.1 * torch.tensor(-1.25).exp().item()), (80, 0.1)):
        total = objective(LOGITS, LABELS, features=FEATURES, epoch=epoch)
        loss, adr, amc = (
            mohs.EncouragingLoss()(LOGITS, LABELS),
            mohs.ADR(tau=3)(LOGITS),
            mohs.AMC(margin=0.5)(FEATURES, predicted),
        )
        torch.testing.assert_close(total, loss + 0.05 * adr + weight * amc)
        parts = objective.parts
        assert list(parts) == ["loss", "adr", "adr_weight", "amc", "amc_weight", "total"]
        assert parts["amc_weight"] == pytest.approx(weight)
        assert (parts["loss"], parts["adr"], parts["amc"], parts["total"]) == (loss, adr, amc, total)


def test_pair_labels_true_or_predicted() -> None:
    predicted, true = (Objective(mohs.CrossEntropyLoss(), [(1, mohs.AMC())], pair_labels=p) for p in ("predicted", "true"))
    right = nn.functional.one_hot(LABELS, 5) * 10.0  # every prediction right: the two agree
    assert predicted(right, LABELS, features=FEATURES) == true(right, LABELS, features=FEATURES)
    assert predicted(LOGITS, LABELS, features=FEATURES) != true(LOGITS, LABELS, features=FEATURES)
    true(LOGITS, LABELS, features=FEATURES)
    assert true.parts["amc"] == mohs.AMC()(FEATURES, LABELS)


def test_without_regularizers_it_is_the_loss_and_any_callable_works() -> None:
    plain = Objective(nn.CrossEntropyLoss())
    assert plain(LOGITS, LABELS) == nn.CrossEntropyLoss()(LOGITS, LABELS)
    weighted = Objective(mohs.FocalLoss())(LOGITS, LABELS, sample_weight=torch.arange(12.0))
    assert weighted == mohs.FocalLoss()(LOGITS, LABELS, sample_weight=torch.arange(12.0))


def test_the_same_regularizer_twice_has_two_names() -> None:
    objective = Objective(mohs.CrossEntropyLoss(), [(1, mohs.ADR(tau=1)), (1, mohs.ADR(tau=3)), (2, mohs.EntropyPenalty())])
    objective(LOGITS, LABELS)
    assert {"adr", "adr_2", "entropy_penalty", "adr_2_weight"} <= set(objective.parts)
    assert objective.parts["adr_2"] == mohs.ADR(tau=3)(LOGITS)


def test_parameters_of_a_regularizer_are_the_objectives() -> None:
    objective = Objective(mohs.CrossEntropyLoss(), [(0.1, mohs.CenterLoss(5, 7))])
    objective(LOGITS, LABELS, features=FEATURES).backward()
    (centers,) = objective.parameters()
    assert centers.grad.abs().sum() > 0


@pytest.mark.parametrize("name", list(mohs.LOSSES))
@pytest.mark.parametrize("head", list(mohs.HEADS))
def test_any_loss_on_any_head_with_any_regularizers(name: str, head: str, loss_cases: dict) -> None:
    model = mohs.create_head(head, 7, 4)
    features = FEATURES.clone().requires_grad_()
    labels = LABELS % 4
    regularizers = [(0.1, create) for create in (mohs.ADR(), mohs.EntropyPenalty(), mohs.AMC(), mohs.EuclideanContrastive())]
    objective = Objective(mohs.create_loss(name, **loss_cases[name][0]), [*regularizers, (0.1, mohs.CenterLoss(4, 7))])
    objective(model(features, labels), labels, features=features, epoch=3).backward()
    assert features.grad.isfinite().all()
    assert features.grad.abs().sum() > 0
    assert model.weight.grad.isfinite().all()


def test_from_a_recipe() -> None:
    objective = create_objective(
        {"name": "gradient_rescaling", "beta": 8},
        [
            {"name": "adr", "weight": 0.05, "tau": 3},
            {"name": "amc", "weight": {"name": "ramp_up", "epochs": 80, "peak": 0.1}, "margin": 0.5},
        ],
        pair_labels="true",
    )
    terms = [(0.05, mohs.ADR(tau=3)), (mohs.ramp_up(epochs=80, peak=0.1), mohs.AMC(margin=0.5))]
    assert repr(objective) == repr(Objective(mohs.GradientRescalingLoss(beta=8), terms, pair_labels="true"))
    rebuilt = eval(repr(objective), {name: getattr(mohs, name) for name in mohs.__all__})
    assert repr(rebuilt) == repr(objective)


def test_a_recipe_may_be_written_as_on_the_command_line() -> None:
    written = create_objective("gce:q=0.5", ["adr:weight=0.05,tau=3"])
    assert repr(written) == repr(create_objective({"name": "gce", "q": 0.5}, [{"name": "adr", "weight": 0.05, "tau": 3}]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_objective({"beta": 8}), "a loss needs a name; got the keys beta"),
        (lambda: create_objective({"name": "ember"}), "unknown loss 'ember'"),
        (lambda: create_objective({"name": "mae"}, [{"name": "adr"}]), "the regularizer 'adr' needs a weight"),
        (lambda: create_objective({"name": "mae"}, [{"name": "x", "weight": 1}]), "unknown regularizer 'x'; known: adr"),
        (lambda: create_objective({"name": "mae"}, [{"name": "adr", "weight": {"name": "jump"}}]), "unknown schedule 'jump'"),
        (
            lambda: create_objective({"name": "mae"}, [{"name": "adr", "weight": {"name": "ramp_up"}}]),
            "ramp_up: missing 1 required",
        ),
        (lambda: Objective(nn.CrossEntropyLoss(), [("x", mohs.ADR())]), "a weight must be a number or a schedule"),
        (lambda: Objective(nn.CrossEntropyLoss(), [(1, nn.Linear(1, 1))]), "is not a regularizer"),
        (lambda: Objective(nn.CrossEntropyLoss(), pair_labels="best"), "pair_labels must be one of predicted, true, got 'best'"),
        (lambda: Objective(mohs.MeanAbsoluteErrorLoss(reduction="none"), [(1, mohs.ADR())]), 'loss has reduction="none"'),
        (lambda: Objective(nn.CrossEntropyLoss(), [(1, mohs.AMC())])(LOGITS, LABELS), "AMC needs features"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_compiles_without_a_graph_break() -> None:
    torch._dynamo.reset()
    objective = Objective(mohs.EncouragingLoss(), [(0.05, mohs.ADR()), (0.1, mohs.AMC())])
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(LOGITS, LABELS, features=FEATURES), objective(LOGITS, LABELS, features=FEATURES))


def test_the_terms_are_named() -> None:
    with pytest.raises(ValueError, match="loss must be callable, got 'gce'; create_objective takes names"):
        Objective("gce")
    with pytest.raises(ValueError, match=r"regularizers must be pairs \(weight, regularizer\), got ADR"):
        Objective(mohs.CrossEntropyLoss(), [mohs.ADR()])
    with pytest.raises(ValueError, match="regularizers must be a list, got 'adr:weight=1'; put it in brackets"):
        create_objective("gce", "adr:weight=1")


@pytest.mark.parametrize("takes", ["logits", ("logits", "weights")])
def test_a_regularizer_takes_what_the_objective_has(takes: object) -> None:
    class Own(nn.Module):
        def __repr__(self) -> str:
            return "Own()"

    regularizer = Own()
    regularizer.takes = takes  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"Own\(\) takes .*: it must be a tuple of some of logits, labels, features"):
        Objective(mohs.CrossEntropyLoss(), [(0.1, regularizer)])
