"""Robust training: its targets against the formula, its selection on made beliefs, and whole runs on noisy blobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise
from mohs.models import create_model
from mohs.models.network import head_weight
from mohs.models.twins import Twins, members
from mohs.train.augment import create_augment
from mohs.train.build import build
from mohs.train.consistency import Consistency
from mohs.train.feed import Feed
from mohs.train.fold_judge import trust_in_folds
from mohs.train.graph import can_graph
from mohs.train.label_trust import TRUST_RULES, Evidence, concentration, easy_component, right_labels
from mohs.train.loop import train
from mohs.train.resolve import resolve
from mohs.train.robust import RECIPES, UNLABELED, Refinement, Robust, RobustTwo, balanced, predicted, refined
from mohs.train.run import Run
from mohs.train.trained import load_run

RUN = {"data": "blobs", "model": "mlp:hidden=16", "recipe": "robust", "epochs": 6, "batch": 24, "validation": 0.0}


def bright_and_dark(n: int = 48) -> Data:
    """Images of two classes, large enough to be augmented."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    x = torch.randint(0, 100, (n, 3, 16, 16), dtype=torch.uint8, generator=generator)
    x[labels == 1] += 100
    return Data(Examples(x, labels, ["dark", "bright"]))


def made_beliefs(n: int = 1500, k: int = 5, wrong: float = 0.3, norm: float = 4) -> tuple[Evidence, Tensor, Tensor]:
    """What a good network says of n examples, their labels, of which a share is wrong, and the true classes."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.eye(k, max(8, k))
    true = torch.arange(n) % k
    features = norm * weight[true] + torch.randn(n, weight.shape[1], generator=generator)
    moved = (true + torch.randint(1, k, (n,), generator=generator)) % k
    labels = torch.where(torch.rand(n, generator=generator) < wrong, moved, true)
    return Evidence(torch.softmax(features @ weight.T, 1), features, weight), labels, true


@pytest.mark.parametrize("select", TRUST_RULES)
def test_selections_tell_right_from_wrong_labels(select: str) -> None:
    seen, labels, true = made_beliefs()
    right = right_labels(select, seen, labels)
    assert right.shape == labels.shape
    assert right.min() >= 0
    assert right.max() <= 1
    assert right[labels == true].mean() > 0.8
    assert right[labels != true].mean() < 0.3


@pytest.mark.parametrize(("n", "k", "norm"), [(1500, 5, 4), (4000, 40, 3)])
def test_the_noise_matrix_finds_the_share_of_wrong_labels(n: int, k: int, norm: float) -> None:
    for wrong in (0.0, 0.2, 0.5):
        seen, labels, true = made_beliefs(n, k, wrong, norm)
        assert float(1 - right_labels("noise", seen, labels).mean()) == pytest.approx(
            float((labels != true).float().mean()), abs=0.04
        )


def test_trust_by_both_lies_between_noise_matrix_and_belief_in_log_odds() -> None:
    seen, labels, _ = made_beliefs(norm=2)
    both, noise, belief = (right_labels(select, seen, labels).double().logit() for select in ("both", "noise", "belief"))
    torch.testing.assert_close(both, (noise + belief) / 2, atol=1e-3, rtol=1e-3)


def confused(seen: Evidence, true: Tensor, wrong: float) -> Tensor:
    """Labels of which a share is wrong, as people's are: mostly the class after the true one."""
    generator, n, k = torch.Generator().manual_seed(2), len(true), seen.probs.shape[1]
    moved = (true + torch.where(torch.rand(n, generator=generator) < 0.6, 1, torch.randint(2, k, (n,), generator=generator))) % k
    return torch.where(torch.rand(n, generator=generator) < wrong, moved, true)


@pytest.mark.parametrize("wrong", [0.1, 0.4])
def test_auto_trusts_by_the_noise_matrix_if_mistakes_are_spread_evenly_and_by_both_if_not(wrong: float) -> None:
    seen, labels, true = made_beliefs(wrong=wrong)
    people = confused(seen, true, wrong)
    assert concentration(seen.probs, labels) < 0.03
    assert torch.equal(
        right_labels("auto", seen, labels), right_labels("noise", seen, labels).clamp(1e-6, 1 - 1e-6).logit().sigmoid()
    )
    assert concentration(seen.probs, people) > 0.1
    assert torch.equal(right_labels("auto", seen, people), right_labels("both", seen, people))


@pytest.mark.parametrize(("wrong", "select"), [(0.1, "both"), (0.4, "margin")])
def test_labels_are_trusted_by_the_margin_if_the_network_contradicts_many(wrong: float, select: str) -> None:
    seen, labels, _ = made_beliefs(wrong=wrong)
    assert torch.equal(right_labels("both-or-margin", seen, labels), right_labels(select, seen, labels))


def test_the_concentration_of_mistakes_is_0_if_even_and_1_if_each_class_is_mistaken_for_one_other() -> None:
    true = torch.arange(600) % 6
    probs = torch.eye(6)[true]
    even = torch.where(torch.arange(600) < 300, true, (true + 1 + torch.arange(600) // 6 % 5) % 6)
    assert concentration(probs, even) == pytest.approx(0, abs=0.03)
    assert concentration(probs, torch.where(torch.arange(600) < 300, true, (true + 1) % 6)) == 1
    assert concentration(probs, true) == 1  # without mistakes
    assert concentration(probs[:, :2], true % 2) == 1  # two classes


def test_the_mixture_falls_as_hardness_rises_and_takes_equal_values() -> None:
    hardness = torch.cat([torch.randn(400), 8 + 3 * torch.randn(200)]).sort().values
    assert (easy_component(hardness).diff() <= 1e-9).all()
    assert easy_component(torch.ones(20)).isfinite().all()


def test_targets_give_the_label_its_probability_and_the_others_the_rest() -> None:
    belief = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    got = refined(belief, torch.tensor([0.25, 1.0]), torch.tensor([1, 2]))
    torch.testing.assert_close(got, torch.tensor([[0.75 * 6 / 7, 0.25, 0.75 / 7], [0.0, 0.0, 1.0]]), atol=1e-5, rtol=0)
    made, more = Refinement(Robust(confidence=0.9), torch.full((20,), 2), 3, epochs=4), got[[0] + [1] * 19]
    torch.testing.assert_close(made.taught(more)[1:], torch.eye(3)[[2] * 19], atol=1e-5, rtol=0)
    assert (made.taught(more)[0] == 0).all()
    assert (made.taught(got[[0] * 10 + [1] * 10]).sum(1) > 0).all()  # most of the examples teach, certain or not
    sharp = Refinement(Robust(temperature=0.5, confidence=0.0), torch.tensor([1, 2]), 3, epochs=4).taught(got)
    torch.testing.assert_close(sharp[0], got[0] ** 2 / (got[0] ** 2).sum(), atol=1e-5, rtol=0)


def test_balanced_beliefs_have_the_shares_of_the_labels() -> None:
    probs = torch.softmax(
        2 * torch.randn(4000, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([2.0, 0, 0, -2.0]), 1
    )
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    torch.testing.assert_close(balanced(probs, shares).mean(0), shares, atol=0.01, rtol=0)


def test_each_of_two_networks_is_taught_by_the_other() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    made = Refinement(RobustTwo(warmup=0.0, temperature=1.0, confidence=0.0), labels, 2, epochs=4)
    first, second = (create_model("linear", shape=(3,), num_classes=2, seed=seed) for seed in (0, 1))
    made.update(Twins(first, second), torch.randn(4, 3), precision="no")
    assert made.targets.shape == (4, 2, 2)
    rows = torch.arange(4)
    torch.testing.assert_close(made.targets[rows, 0, labels], made.right[:, 1])
    torch.testing.assert_close(made.targets[rows, 1, labels], made.right[:, 0])


def test_twins_are_the_mean_of_two_networks() -> None:
    first, second = (create_model("mlp:hidden=6", shape=(4,), num_classes=3, seed=seed) for seed in (0, 1))
    twins, x = Twins(first, second), torch.randn(5, 4)
    twins.eval()
    logits, features = twins.outputs(x)
    torch.testing.assert_close(logits, (first(x) + second(x)) / 2)
    torch.testing.assert_close(features @ head_weight(twins).T, logits - (first.head.bias + second.head.bias) / 2)
    twins.train()
    both, _ = twins.outputs(x)
    torch.testing.assert_close(both, torch.cat([first(x), second(x)]))
    twins.own_views, more = True, torch.randn(5, 4)
    own, _ = twins.outputs(torch.cat([x, more]))
    torch.testing.assert_close(own, torch.cat([first(x), second(more)]))
    assert [sum(p.numel() for p in one.parameters()) for one in members(twins)] == [
        sum(p.numel() for p in first.parameters())
    ] * 2


@pytest.mark.parametrize("recipe", [*RECIPES, "robust:select=both-or-margin"])
def test_wrong_labels_are_found_and_not_learned(recipe: str, blobs: Data, tmp_path: Path) -> None:
    noisy = add_noise(blobs.train, {"name": "symmetric", "rate": 0.3, "exact": True}, seed=0)
    run = Run(**{**RUN, "recipe": recipe, "epochs": 20, "optimizer": "sgd:lr=0.05"})
    done = train(run, Data(noisy, None, blobs.test), runs=tmp_path)
    assert done.metrics["test_accuracy"] >= 0.9
    assert done.targets is not None
    assert done.table is not None
    wrong = noisy.labels != blobs.train.labels
    own = done.targets[torch.arange(len(noisy)), noisy.labels]
    assert own[wrong].mean() < 0.4 < own[~wrong].mean()
    assert len(done.table) == len(noisy)
    assert isinstance(done.network, Twins) is (recipe == "robust-two")


def test_wide_features_get_a_second_view_and_a_lower_learning_rate(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    true, means = torch.arange(900) % 3, torch.randn(3, 256, generator=generator)
    inputs = 0.2 * means[true] + torch.randn(900, 256, generator=generator)
    examples = Examples(inputs, true, ["a", "b", "c"])
    noisy = add_noise(examples.take(torch.arange(600)), {"name": "symmetric", "rate": 0.4, "exact": True}, seed=0)
    data = Data(noisy, None, examples.take(torch.arange(600, 900)))
    run, _, _ = resolve(Run(data="x", recipe="robust"), data)
    assert run.recipe["select"] == "folds"
    assert run.recipe["view"] == []  # targets out of sample need no second view
    by_margin = resolve(Run(data="x", recipe="robust:select=margin"), data)[0].recipe
    assert by_margin["select"] == "margin"
    assert by_margin["view"] == [{"name": "corrupt"}]
    assert "select" not in resolve(Run(data="x", recipe="robust"), bright_and_dark())[0].recipe  # images: decided in training
    assert run.optimizer["lr"] == pytest.approx(4 / 256, rel=1e-3)
    assert resolve(Run(data="x", optimizer="sgd:lr=0.1"), data)[0].optimizer["lr"] == 0.1
    few = Data(Examples(inputs[:, :12], true, ["a", "b", "c"]))
    run, _, _ = resolve(Run(data="x", recipe="robust"), few)
    assert run.recipe["view"] == []  # each of few features may matter
    assert run.optimizer["lr"] == 0.1
    plain, robust = (
        train(Run(data="x", validation=0.0, epochs=20, recipe=recipe), data, runs=tmp_path).metrics["test_accuracy"]
        for recipe in (None, "robust")
    )
    assert robust > plain + 0.05


def test_features_are_judged_in_folds_before_training(blobs: Data) -> None:
    noisy = add_noise(blobs.train, {"name": "symmetric", "rate": 0.2, "exact": True}, seed=0)
    run, data, _ = resolve(Run(**{**RUN, "recipe": "robust-two"}), Data(noisy))
    made = build(run, data, device="cpu").refinement
    assert made is not None
    right, probs = trust_in_folds(noisy.inputs, noisy.labels, len(noisy.classes))
    wrong = noisy.labels != blobs.train.labels
    assert right[wrong].mean() < 0.3
    assert right[~wrong].mean() > 0.9
    assert made.refines
    expected = refined(probs, right, noisy.labels)
    for place in range(2):  # both networks have the same targets
        torch.testing.assert_close(made.targets[:, place], expected)
    made.update(
        Twins(*(create_model("linear", shape=noisy.shape, num_classes=3, seed=s) for s in (0, 1))), noisy.inputs, precision="no"
    )
    torch.testing.assert_close(made.belief.mean(1), expected)  # which stay as they are


def test_labels_that_nothing_can_judge_count_as_right() -> None:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([torch.zeros(20), torch.ones(19), torch.full((1,), 2)]).long()
    right, probs = trust_in_folds(x, labels, 3)
    assert right[39] == 1
    assert probs.isfinite().all()
    right, probs = trust_in_folds(x[:2], labels[[0, 20]], 3)
    assert right.tolist() == [1, 1]
    assert probs.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_images_cannot_be_judged_in_folds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set embed=auto"):
        train(Run(data="x", recipe="robust:select=folds"), bright_and_dark(), runs=tmp_path)


def interrupting(*, epoch: int, step: int) -> Callable[[dict[str, Any]], None]:
    """A watcher that interrupts a run at this step."""

    def watch(event: dict[str, Any]) -> None:
        if event["epoch"] == epoch and event.get("step") == step:
            raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize("recipe", [*RECIPES, "robust-two:select=both-or-margin"])
def test_an_interrupted_robust_run_resumes_to_the_same_result(recipe: str, blobs: Data, tmp_path: Path) -> None:
    run = Run(**{**RUN, "recipe": recipe, "trace": True})
    whole = train(run, blobs, runs=tmp_path / "whole")
    for stop in (1, 4):  # in the warm-up, and after it
        with pytest.raises(KeyboardInterrupt):
            train(run, blobs, runs=tmp_path / "stopped", watch=interrupting(epoch=stop, step=2))
    done = train(run, blobs, runs=tmp_path / "stopped")
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, done.network.state_dict()[name]), name
    assert torch.equal(whole.targets, done.targets)
    assert whole.table.equals(done.table)


def test_every_loss_and_head_trains_robustly(blobs: Data, tmp_path: Path) -> None:
    pairs: list[tuple[str, str | None]] = [("gce:q=0.7", None), ("cross_entropy", "arcface"), ("encouraging", "cosface")]
    for loss, head in pairs:
        done = train(Run(**{**RUN, "loss": loss, "head": head, "recipe": "robust-two"}), blobs, runs=tmp_path)
        assert done.metrics["test_accuracy"] > 0.5, (loss, head)


def test_a_loss_without_soft_labels_is_refused_before_any_training(blobs: Data, tmp_path: Path) -> None:
    for changes in ({}, {"recipe": None, "augment": ["mixup"]}):
        with pytest.raises(ValueError, match="needs a loss that takes soft labels: GradientRescalingLoss"):
            train(Run(**{**RUN, "loss": "gradient_rescaling", **changes}), blobs, runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_parts_of_a_batch_and_mixing_agree_with_the_whole(blobs: Data, tmp_path: Path) -> None:
    run = Run(**{**RUN, "augment": ["mixup"], "recipe": None, "epochs": 2, "batch": 40})
    whole, parts = (train(dataclasses.replace(run, accumulate=n), blobs, runs=tmp_path) for n in (1, 2))
    assert whole.metrics["total"] == pytest.approx(parts.metrics["total"], rel=1e-4)


def test_images_get_strong_augmentation_after_the_warm_up() -> None:
    images = Examples(torch.zeros(40, 3, 32, 32, dtype=torch.uint8), torch.arange(40) % 2, ["a", "b"])
    run, data, _ = resolve(Run(data="x", model="cnn", recipe="robust:unlabeled=believed", validation=0.0), Data(images))
    assert run.epochs == 60
    assert run.ema is not None
    assert [one["name"] for one in run.augment] == ["crop_flip"]
    assert [one["name"] for one in run.recipe["augment"]] == ["crop_flip", "rand_augment", "cutout", "mixup"]
    job = build(run, data, device="cpu")
    assert not job.feed.mixes
    assert not job.begin_phase()
    job.refinement.updates = job.refinement.warmup
    assert job.begin_phase()
    assert job.feed.mixes
    assert not job.begin_phase()


def test_consistency_aligns_guesses_with_the_class_shares_and_teaches_second_views() -> None:
    shares = torch.tensor([0.5, 0.3, 0.2])
    term = Consistency(shares, momentum=0.0)
    guess = torch.softmax(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.0, 0, 0]), 1)
    second = torch.zeros(40, 3, requires_grad=True)
    value = term(guess, second)
    torch.testing.assert_close(value, torch.tensor(3.0).log())
    value.backward()
    aligned = guess * shares / guess.mean(0)
    torch.testing.assert_close(second.grad, (1 / 3 - aligned / aligned.sum(1, keepdim=True)) / 40)
    torch.testing.assert_close(term.mean, guess.mean(0))


@pytest.mark.parametrize("unlabeled", UNLABELED)
def test_examples_are_seen_in_two_views(unlabeled: str) -> None:
    recipe = f"robust-two:unlabeled={unlabeled}"
    run, data, _ = resolve(Run(data="x", model="cnn:width=4", recipe=recipe, validation=0.0, batch=24), bright_and_dark())
    job = build(run, data, device="cpu")
    draw = next(job.feed.epoch(0))
    first, second = job.feed.load(draw), job.feed.second_view(draw)
    assert second is not None
    assert second.shape == first.shape == (24, 2, 3, 16, 16)  # each network has its own views
    assert not torch.equal(first[:, 0], first[:, 1])
    assert not torch.allclose(first / 255, second)
    total, logits, features = job.training(first, data.train.labels[draw.ids], [3.0, 1.0], draw.ids, job.soft[draw.ids], second)
    assert logits.shape == (48, 2)  # two networks, first views
    assert len(features) == 48
    assert job.training.objective.parts["consistency"] > 0
    assert total.isfinite()
    job.refinement.updates = job.refinement.warmup
    assert job.begin_phase() is (unlabeled == "believed")
    assert (job.feed.second is None) is (unlabeled == "believed")
    plain = resolve(Run(data="x", recipe="robust:consistency=0", validation=0.0), bright_and_dark())
    assert build(*plain[:2], device="cpu").feed.second is None


def test_each_of_two_networks_learns_from_its_own_views() -> None:
    recipe = {"name": "robust-two", "early": 0.0}
    run, data, _ = resolve(Run(data="x", model="cnn:width=4", recipe=recipe, validation=0.0, batch=24), bright_and_dark())
    job = build(run, data, device="cpu")
    draw = next(job.feed.epoch(0))
    labels, first, second = data.train.labels[draw.ids], job.feed.load(draw), job.feed.second_view(draw)
    assert second is not None
    networks = [one.train() for one in members(job.training.network)]
    seen = [(one(torch.cat([first[:, i] / 255, second[:, i]]))).chunk(2) for i, one in enumerate(networks)]
    guess = torch.stack([torch.softmax(logits, 1) for logits, _ in seen]).mean(0).detach()
    ratio = torch.tensor([0.5, 0.5]) / (0.99 * torch.tensor([0.5, 0.5]) + 0.01 * guess.mean(0))
    aligned = guess * ratio / (guess * ratio).sum(1, keepdim=True)
    losses = [cross_entropy(logits, labels) + cross_entropy(other, aligned) for logits, other in seen]
    total, logits, _ = job.training(first, labels, [1.0], draw.ids, job.soft[draw.ids], second)
    torch.testing.assert_close(total, torch.stack(losses).mean())
    torch.testing.assert_close(logits, torch.cat([one for one, _ in seen]))


def test_two_networks_may_share_their_views() -> None:
    recipe = "robust-two:own_views=False"
    run, data, _ = resolve(Run(data="x", model="cnn:width=4", recipe=recipe, validation=0.0, batch=24), bright_and_dark())
    feed = build(run, data, device="cpu").feed
    assert feed.load(next(feed.epoch(0))).shape == (24, 3, 16, 16)


def test_targets_are_mixed_as_the_own_views_of_each_network() -> None:
    examples = bright_and_dark(8).train
    feed = Feed(examples, batch=8, seed=0, device=torch.device("cpu"), augment=create_augment("mixup"), networks=2)
    draw = next(feed.epoch(0))
    inputs = examples.inputs[draw.ids] / 255
    mixed, targets = feed.load(draw), feed.mix_targets(torch.eye(8).unsqueeze(1).repeat(1, 2, 1), draw)
    torch.testing.assert_close(mixed, torch.einsum("ink,k...->in...", targets, inputs))
    assert not torch.allclose(targets[:, 0], targets[:, 1])


def test_every_second_prediction_is_that_of_the_mirror_images() -> None:
    images = bright_and_dark(6).train
    network = create_model("cnn:width=4", shape=(3, 16, 16), num_classes=2, seed=0)
    made = Refinement(Robust(memory=0.5), images.labels, 2, epochs=9, mirror=True)
    plain, turned = (predicted(network, inputs, "no")[0] for inputs in (images.inputs, images.inputs.flip(-1)))
    assert not torch.allclose(plain, turned)
    for believed in (plain, (plain + turned) / 2, (3 * plain + turned) / 4):
        made.update(network, images.inputs, precision="no")
        torch.testing.assert_close(made.belief[:, 0], believed)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "robust"},
        {"recipe": "robust-two", "head": "arcface", "accumulate": 2},
        {"recipe": "robust-two:unlabeled=believed", "epochs": 6},
    ],
)
def test_a_robust_run_on_images_resumes_to_the_same_result(changes: dict[str, Any], tmp_path: Path) -> None:
    run, data = Run(**{**RUN, "model": "cnn:width=4", "epochs": 4, **changes}), bright_and_dark()
    whole = train(run, data, runs=tmp_path / "whole")
    for stop in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            train(run, data, runs=tmp_path / "stopped", watch=interrupting(epoch=stop, step=1))
    done = train(run, data, runs=tmp_path / "stopped")
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, done.network.state_dict()[name]), name
    assert whole.history[-1]["total"] == done.history[-1]["total"]


def test_mixed_inputs_have_one_view(tmp_path: Path) -> None:
    run = Run(data="x", model="cnn:width=4", recipe="robust", augment=["mixup"], validation=0.0)
    run, data, _ = resolve(run, bright_and_dark())
    assert build(run, data, device="cpu").feed.second is None
    with pytest.raises(ValueError, match="leave mixup out of augment"):
        train(Run(data="x", recipe={"name": "robust", "augment": ["mixup"]}), bright_and_dark(), runs=tmp_path)


def test_given_targets_are_early_learning_alone(blobs: Data, tmp_path: Path) -> None:
    done = train(Run(**{**RUN, "recipe": "robust:targets=given"}), blobs, runs=tmp_path)
    assert done.history[-1]["early_learning"] < 0
    assert Robust(targets="given").warmup_epochs(6) == 6


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("robust:select=guess", "select must be one of"),
        ("robust:warmup=2", "warmup"),
        ("careful", "recipe"),
        ("robust:temperature=0", "temperature"),
        ("robust:consistency=-1", "consistency"),
        ("robust:confidence=2", "confidence"),
    ],
)
def test_wrong_settings_are_named_before_any_training(recipe: str, message: str, blobs: Data, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(Run(**{**RUN, "recipe": recipe}), blobs, runs=tmp_path)
    assert not list(tmp_path.iterdir())


RANKS = """
import torch
from mohs.train import robust
from mohs.train.loop import train
torch.set_num_threads(1)
predicted, rows = robust.output_batches, []
def counted(network, inputs, **options):
    rows.append(len(inputs))
    return predicted(network, inputs, **options)
robust.output_batches = counted
train(run, data, out=folder, device="cpu")
assert set(rows) == {len(data.train) // processes}
"""


def test_two_processes_predict_half_of_the_examples_each_and_train_the_same(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], blobs: Data, tmp_path: Path
) -> None:
    run = Run(**{**RUN, "recipe": {"name": "robust", "augment": []}})  # each process would mix its own part of a batch
    given = {"run": run, "data": blobs}
    assert run_forked(RANKS, folder=tmp_path / "1", processes=1, **given) == 0
    assert run_ranks(RANKS, folder=tmp_path / "2", processes=2, **given) == [0, 0]
    one, two = load_run(tmp_path / "1"), load_run(tmp_path / "2")
    torch.testing.assert_close(one.targets, two.targets, atol=1e-5, rtol=0)
    assert one.table.column("predicted").equals(two.table.column("predicted"))


def test_two_processes_give_two_networks_the_same_views_of_their_own(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    recipe = {"name": "robust-two", "consistency": 0.0, "augment": ["crop_flip:padding=2"]}
    given = {"run": Run(**{**RUN, "augment": ["crop_flip:padding=2"], "recipe": recipe}), "data": bright_and_dark()}
    assert run_forked(RANKS, folder=tmp_path / "1", processes=1, **given) == 0
    assert run_ranks(RANKS, folder=tmp_path / "2", processes=2, **given) == [0, 0]
    one, two = load_run(tmp_path / "1"), load_run(tmp_path / "2")
    torch.testing.assert_close(one.targets, two.targets, atol=1e-5, rtol=0)
    for name, value in one.network.state_dict().items():
        torch.testing.assert_close(value, two.network.state_dict()[name], atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", [*RECIPES, "robust-two:unlabeled=believed", "robust-two:own_views=False"])
def test_robust_runs_are_captured_as_graphs(recipe: str, tmp_path: Path) -> None:
    data = bright_and_dark(256)
    run = Run(data="x", model="cnn", recipe=recipe, epochs=6, batch=64, validation=0.0)
    assert can_graph(build(*resolve(run, data)[:2]))
    graph, plain = (train(run, data, out=tmp_path / str(use), graph=use) for use in (True, False))
    assert graph.metrics["total"] == pytest.approx(plain.metrics["total"], rel=0.1)
