"""Measures of the course of training, of gradients and of attacks, and those on the sphere: against the plain way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mohs._core.errors import DataError
from mohs.data.examples import Data
from mohs.evaluate.outputs import predict
from mohs.hardness.angular import avh
from mohs.studies.measures.gradients import attacked_course, half_way
from mohs.studies.measures.trajectories import done_by, rising
from mohs.studies.run_measures import MEASURES
from mohs.train.loop import train
from mohs.train.run import Run
from mohs.train.run_data import opened
from mohs.train.trace import load_test_traces
from mohs.train.trained import Trained

Pair = tuple[Trained, Data]


def test_epoch_at_which_a_curve_has_converged() -> None:
    assert done_by(np.array([1.0, 0.5, 0.1, 0.0]), 0.9) == 3
    assert done_by(np.array([1.0, 0.0, 0.5, 0.0]), 0.9) == 4  # for good
    assert done_by(np.array([0.0, 1.0, 2.0, 10.0]), 0.95) == 4
    assert done_by(np.array([0.0, 10.0, 10.0, 10.0]), 0.95) == 2
    assert math.isnan(done_by(np.array([1.0, 1.0, 1.0]), 0.5))
    assert math.isnan(done_by(np.array([1.0, 0.0]), 0.5))
    assert rising(np.array([1.0, 2.0, 4.0])) == pytest.approx(1)
    assert rising(np.array([4.0, math.nan, 2.0, 1.0])) == pytest.approx(-1)
    assert math.isnan(rising(np.array([4.0, 1.0])))


def test_trends_are_those_of_the_traced_means(trained: Pair) -> None:
    run, _ = trained
    made = MEASURES["course"](values=["norm"])(*trained)
    curve = [float(run.trace["norm"][n].double().mean()) for n in range(4)]
    assert made["trend_norm"] == pytest.approx(rising(np.array(curve)))
    assert made["done_norm"] == done_by(np.array(curve), 0.95)
    with pytest.raises(ValueError, match="values: unknown 'loss'"):
        MEASURES["course"](values=["loss"])


def test_trends_of_held_out_images_are_those_of_their_traces(trained: Pair) -> None:
    run, _ = trained
    found = load_test_traces(run.folder)
    curve = np.array([float(found[n]["avh"].double().mean()) for n in (1, 2, 3, 4)])
    made = MEASURES["course"](values=["avh"], on="test")(*trained)
    assert made == {"trend_avh": pytest.approx(rising(curve)), "done_avh": done_by(curve, 0.95)}
    means = MEASURES["curve"](values=["avh"], at=[1, 4, 9], on="test")(*trained)
    assert means == {"avh_epoch_1": pytest.approx(curve[0]), "avh_epoch_4": pytest.approx(curve[3])}
    assert means["avh_epoch_4"] != MEASURES["curve"](values=["avh"], at=[4])(*trained)["avh_epoch_4"]
    for name in ("course", "curve"):
        with pytest.raises(ValueError, match="on must be one of train, test"):
            MEASURES[name](on="val", **({"at": [1]} if name == "curve" else {}))


def test_a_traced_run_evaluates_the_test_set_every_epoch(trained: Pair) -> None:
    run, data = trained
    found = load_test_traces(run.folder)
    assert list(found) == [1, 2, 3, 4]
    out = predict(run.network, data.test)
    logits, features = out.logits, out.features
    last = found[4]
    assert torch.equal(last["right"].bool(), logits.argmax(1) == data.test.labels)
    assert torch.allclose(last["avh"].float(), avh(features, run.network.head.weight.detach(), data.test.labels), atol=1e-3)
    for epochs, one in found.items():
        assert float(one["right"].double().mean()) == pytest.approx(run.history[epochs - 1]["test_accuracy"], abs=1e-3)


def test_bins_of_agreement_epoch_by_epoch(trained: Pair, tmp_path: Path) -> None:
    run, data = trained
    keys, rng = list(data.test.keys), np.random.default_rng(0)
    counts = np.zeros((1797, 8))
    share = rng.integers(1, 11, len(keys))  # of ten people
    counts[keys, data.test.labels.numpy()] = share
    counts[keys, (data.test.labels.numpy() + 1) % 8] += 10 - share
    counts[counts.sum(1) == 0] = 1
    np.savez(tmp_path / "votes.npz", counts=counts)
    fields = {"file": str(tmp_path / "votes.npz"), "at": [3], "edges": [0.0, 0.45, 0.85, 1.0], "values": ["norm"]}
    made = MEASURES["agreement_bins"](**fields)(run, data)
    values, agreement = load_test_traces(run.folder)[3]["norm"].double().numpy(), share / 10
    for i, inside in enumerate((agreement <= 0.45, (agreement > 0.45) & (agreement <= 0.85), agreement > 0.85), 1):
        assert made[f"norm_bin_{i}_epoch_3"] == pytest.approx(values[inside].mean())
    assert -1 <= made["ordered_norm"] <= 1
    bare = Trained(tmp_path, run.run, run.network, run.classes, run.history)
    with pytest.raises(DataError, match="has no trace of the test set: set trace_test = true"):
        MEASURES["agreement_bins"](**fields)(bare, data)


def test_gradients_match_the_objective(trained: Pair) -> None:
    run, data = trained
    whole = MEASURES["gradients"](batch=10_000)(run, data)
    logits, _ = run.network.outputs(data.train.inputs)
    torch.nn.functional.cross_entropy(logits, data.train.labels).backward()
    by_hand = math.sqrt(sum(float(p.grad.double().square().sum()) for p in run.network.parameters()))
    run.network.zero_grad()
    assert whole["gradient_norm"] == pytest.approx(by_hand, rel=1e-4)
    p = predict(run.network, data.train).logits.softmax(1)
    p[torch.arange(len(p)), data.train.labels] -= 1
    assert whole["gradient_norm_logits"] == pytest.approx(float(p.norm(dim=1).mean()), rel=1e-4)
    assert MEASURES["gradients"](batch=8)(run, data)["gradient_norm"] > whole["gradient_norm"]
    with pytest.raises(ValueError, match="batch must be"):
        MEASURES["gradients"](batch=0)


def test_halfway_along_a_path() -> None:
    assert half_way([0.0, 1.0, 2.0]) == 0.5
    assert half_way([0.0, 4.0, 4.0]) == pytest.approx(0.25)
    assert half_way([3.0, 2.0, 2.0, 1.0]) == pytest.approx(1 / 3)
    assert math.isnan(half_way([1.0, 1.0]))


def test_an_attack_begins_at_the_images_and_lowers_confidence(trained: Pair) -> None:
    run, data = trained
    test = data.test.take(torch.arange(20))
    curves = attacked_course(run.network, test.inputs, test.labels, eps=0.2, norm="linf", steps=5, batch_size=7)
    out = predict(run.network, test)
    logits, features = out.logits, out.features
    assert curves["accuracy"][0] == pytest.approx(float((logits.argmax(1) == test.labels).double().mean()))
    assert curves["norm"][0] == pytest.approx(float(features.norm(dim=1).mean()), rel=1e-5)
    assert {len(curve) for curve in curves.values()} == {6}
    assert curves["confidence"][-1] < curves["confidence"][0]
    with pytest.raises(ValueError, match="eps must be"):
        MEASURES["attack_path"](eps=0.0)


def test_a_toy_network_on_the_sphere(tmp_path: Path, trained: Any) -> None:
    run = Run(data="sphere", model="toy", epochs=5, batch=50, optimizer="adam:lr=0.02", validation=0.0, record=False)
    data = opened(run)
    made = MEASURES["uncertain"]()(train(run, data, runs=tmp_path, device="cpu"), data)
    assert list(made) == ["auroc_avh", "auroc_norm", "auroc_confidence"]
    assert made["auroc_avh"] > 0.6
    with pytest.raises(DataError, match="for the data set `sphere` only"):
        MEASURES["uncertain"]()(*trained)
