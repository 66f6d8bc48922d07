"""Self-training: it adapts, it resumes to the same end, and it says what it does where there is nothing to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch

from mohs._core.errors import DataError, RunError
from mohs.adapt.rounds import best_round, portion_at
from mohs.adapt.self_training import Adapted, adapt
from mohs.data.domains import unlabeled
from mohs.data.examples import Data, Examples
from mohs.train.loop import train
from mohs.train.run import Run

RUN: dict[str, Any] = {
    "data": "blobs",
    "model": "mlp:hidden=16",
    "epochs": 3,
    "batch": 32,
    "optimizer": "sgd:lr=0.1",
    "augment": [],
}


def clouds(shift: float, *, number: int = 180, seed: int = 0, name: str = "source") -> Examples:
    """Three clouds of points; another domain has them moved."""
    centers = 3 * torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    move = torch.randn(8, generator=torch.Generator().manual_seed(9))
    labels = torch.arange(number) % 3
    points = centers[labels] + torch.randn(number, 8, generator=torch.Generator().manual_seed(seed)) + shift * move
    return Examples(points, labels, ["a", "b", "c"], name=name)


@pytest.fixture
def source() -> Examples:
    return clouds(0.0)


@pytest.fixture
def target() -> Examples:
    return clouds(1.6, seed=1, name="target")


def assert_same(a: Adapted, b: Adapted) -> None:
    for (name, one), other in zip(a.trained.network.state_dict().items(), b.trained.network.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert a.rounds == b.rounds


def test_adapts_and_writes_every_round(source: Examples, target: Examples, tmp_path: Path) -> None:
    done = adapt(source, target, run=Run(**RUN), out=tmp_path / "a", rounds=3, test=clouds(1.6, seed=2), device="cpu")
    assert [line["round"] for line in done.rounds] == [0, 1, 2, 3]
    assert [line.get("portion") for line in done.rounds] == [None, 0.2, 0.25, 0.3]
    assert done.rounds[3]["target_accuracy"] > done.rounds[0]["target_accuracy"]
    for line in done.rounds[1:]:
        places = done.selected(line["round"]).places
        truth = target.labels[places] == done.selected(line["round"]).labels
        assert line["selected"] == len(places)
        assert line["true"] == pytest.approx(float(truth.double().mean()))
        assert 1 / 3 < line["avc"] < 1
        assert 0 < line["confidence"] <= 1
        assert line["norm"] > 0
        only, labels = done.only_here(line["round"])
        assert len(only) == len(labels) == line["only_here"]
        assert set(line) >= {"target_avc", "target_entropy", "changed", "source_accuracy", "test_accuracy", "classes_without"}
    table = pyarrow.parquet.read_table(tmp_path / "a" / "target.parquet")
    assert table.column("label").to_pylist() == [target.classes[k] for k in target.labels]
    first = table.column("first_selected").to_pylist()
    assert [i for i, one in enumerate(first) if one == 1] == done.selected(1).places.tolist()
    about = json.loads((tmp_path / "a" / "adapt.json").read_text())
    assert about["selection"] == {"name": "cbst_avh"}
    run = json.loads((tmp_path / "a" / "round-3" / "run.json").read_text())
    assert run["data"]["examples"]["train"] == 162 + done.rounds[3]["selected"]


@pytest.mark.parametrize("selection", ["cbst", "crst"])
def test_interrupted_resumes_to_the_same_result(source: Examples, target: Examples, tmp_path: Path, selection: str) -> None:
    asked: dict[str, Any] = {"run": Run(**RUN, ema=0.9), "rounds": 2, "selection": selection, "device": "cpu"}
    whole = adapt(source, target, out=tmp_path / "whole", **asked)
    for left in (20, 9, 4):

        def watch(event: dict[str, Any], counts: list[int] = [left]) -> None:  # noqa: B006
            counts[0] -= 1
            if counts[0] == 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adapt(source, target, out=tmp_path / "stopped", watch=watch, **asked)
    done = adapt(source, target, out=tmp_path / "stopped", **asked)
    assert_same(whole, done)
    assert_same(whole, adapt(source, target, out=tmp_path / "stopped", **asked))


def test_more_rounds_continue_and_a_first_network_may_be_shared(source: Examples, target: Examples, tmp_path: Path) -> None:
    run = Run(**RUN)
    asked: dict[str, Any] = {"run": run, "selection": "cbst", "device": "cpu", "again": {"epochs": 1, "optimizer": "sgd:lr=0.05"}}
    whole = adapt(source, target, out=tmp_path / "whole", rounds=3, **asked)
    adapt(source, target, out=tmp_path / "more", rounds=1, **asked)
    assert_same(whole, adapt(source, target, out=tmp_path / "more", rounds=3, **asked))
    assert json.loads((tmp_path / "whole" / "round-1" / "run.json").read_text())["run"]["epochs"] == 1
    first = adapt(source, target, out=tmp_path / "one", rounds=1, **asked).take("last")
    assert first.folder.name == "round-1"
    shared = adapt(source, target, out=tmp_path / "shared", rounds=1, first=whole.take("last"), **asked)
    assert shared.rounds[0]["target_accuracy"] == pytest.approx(whole.rounds[3]["target_accuracy"])


def test_target_labels_change_nothing_but_the_report(source: Examples, target: Examples, tmp_path: Path) -> None:
    known = adapt(source, target, run=Run(**RUN), out=tmp_path / "known", rounds=2, device="cpu")
    bare = unlabeled(target.inputs, source.classes)
    blind = adapt(source, bare, run=Run(**RUN), out=tmp_path / "blind", rounds=2, device="cpu")
    for one, other in zip(known.trained.network.state_dict().values(), blind.trained.network.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert not any(key in line for line in blind.rounds for key in ("true", "target_accuracy"))
    assert set(pyarrow.parquet.read_table(tmp_path / "blind" / "target.parquet").column("label").to_pylist()) == {None}


def test_a_round_that_selects_nothing_keeps_the_network(source: Examples, target: Examples, tmp_path: Path) -> None:
    few = target.take(torch.arange(3))
    done = adapt(source, few, run=Run(**RUN), out=tmp_path, rounds=2, portion=(0.3, 0.0, 0.3), device="cpu")
    assert [line.get("selected") for line in done.rounds] == [None, 0, 0]
    assert done.rounds[1]["avc"] is None
    assert [line["run"] for line in done.rounds] == ["round-0"] * 3
    assert done.take("target_avc").folder.name == "round-0"


def test_a_class_without_predictions_is_named(source: Examples, target: Examples, tmp_path: Path) -> None:
    two = target.take((target.labels != 1).nonzero().flatten())
    near = dataclasses.replace(two, inputs=clouds(0.0, seed=1).inputs[target.labels != 1])
    done = adapt(source, near, run=Run(**RUN), out=tmp_path, rounds=1, device="cpu")
    assert done.rounds[1]["classes_without"] == ["b"]


def test_classes_in_another_order_are_matched_and_other_classes_are_named(
    source: Examples, target: Examples, tmp_path: Path
) -> None:
    plain = adapt(source, target, run=Run(**RUN), out=tmp_path / "plain", rounds=1, device="cpu")
    turned = dataclasses.replace(target, classes=["c", "b", "a"], labels=2 - target.labels)
    again = adapt(source, turned, run=Run(**RUN), out=tmp_path / "turned", rounds=1, device="cpu")
    assert plain.rounds == again.rounds
    other = dataclasses.replace(target, classes=["a", "b", "zebra"])
    with pytest.raises(DataError, match="target has classes that source does not have: 'zebra'"):
        adapt(source, other, run=Run(**RUN), out=tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds must be an integer of at least 1, got 0"),
        ({"selection": "cbts"}, "unknown selection 'cbts'"),
        ({"portion": (0.2, 0.5)}, "portion must be a number or .start, step, most."),
        ({"portion": (0.5, 0.1, 0.3)}, "portion: most must be between 0.5 and 1, got 0.3"),
        ({"portion": 0.0}, "portion: start must be over 0"),
        ({"again": {"epochs": -1}}, "epochs must be an integer"),
        ({"selection": "lrent", "run": Run(**RUN, loss="taylor")}, "lrent trains with soft labels, but the loss is taylor"),
        ({"selection": "mrkld", "run": Run(**RUN, class_weight="auto")}, "cross_entropy, with class weights"),
    ],
)
def test_wrong_settings_are_named_before_any_training(
    source: Examples, target: Examples, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        adapt(source, target, **{"run": Run(**RUN), "out": tmp_path / "x", "device": "cpu", **change})
    assert not (tmp_path / "x").exists()


def test_another_adaptation_is_refused_the_folder(source: Examples, target: Examples, tmp_path: Path) -> None:
    adapt(source, target, run=Run(**RUN), out=tmp_path, rounds=1, device="cpu")
    with pytest.raises(RunError, match="holds another adaptation"):
        adapt(source, target, run=Run(**RUN), out=tmp_path, rounds=1, selection="cbst", device="cpu")
    bare = unlabeled(target.inputs, source.classes)
    with pytest.raises(DataError, match="all test examples must have labels"):
        adapt(source, target, run=Run(**RUN), out=tmp_path, rounds=1, test=bare, device="cpu")


def test_portions_and_criteria() -> None:
    assert [round(portion_at((0.2, 0.05, 0.5), r), 2) for r in (1, 2, 7, 9)] == [0.2, 0.25, 0.5, 0.5]
    assert portion_at(0.3, 5) == 0.3
    lines = [{"round": 0, "source_accuracy": 0.9, "target_avc": 0.5, "target_entropy": 1.0}]
    lines += [{"round": 1, "source_accuracy": 0.9, "target_avc": 0.4, "target_entropy": 0.5}, {"round": 2, "target_avc": 0.6}]
    assert best_round(lines) == 2
    assert best_round(lines, "target_avc") == 2
    assert best_round(lines[:2], "source_accuracy") == 1
    assert best_round(lines[:2], "target_entropy") == 1
    with pytest.raises(DataError, match="round 2 has no source_accuracy"):
        best_round(lines, "source_accuracy")
    with pytest.raises(ValueError, match="by must be one of last, source_accuracy"):
        best_round(lines, "target_accuracy")


def test_training_starts_from_given_weights_and_soft_labels(source: Examples, tmp_path: Path) -> None:
    run = Run(**(RUN | {"epochs": 1, "validation": 0.0}))
    first = train(run, Data(source), out=tmp_path / "first", device="cpu")
    kept = train(
        dataclasses.replace(run, epochs=0), Data(source), out=tmp_path / "kept", device="cpu", start=first.network.state_dict()
    )
    for a, b in zip(first.network.state_dict().values(), kept.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    whole = torch.nn.functional.one_hot(source.labels, 3).float()
    same = train(run, Data(source), out=tmp_path / "soft", device="cpu", soft=whole)
    for a, b in zip(first.network.state_dict().values(), same.network.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    with pytest.raises(RunError, match="holds another run"):
        train(run, Data(source), out=tmp_path / "soft", device="cpu", soft=whole * 0.5)
    with pytest.raises(ValueError, match="soft has 3 rows for 180 training examples"):
        train(run, Data(source), out=tmp_path / "short", device="cpu", soft=whole[:3])


TWO = """
import torch
from mohs.train.run import Run
from mohs.adapt.self_training import adapt
torch.set_num_threads(1)
adapt(source, target, run=Run(**settings), out=folder, rounds=2, device="cpu")
"""


def test_two_processes_select_the_same_as_one(
    source: Examples, target: Examples, run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    assert run_ranks(TWO, source=source, target=target, settings=RUN, folder=tmp_path / "2") == [0, 0]
    adapt(source, target, run=Run(**RUN), out=tmp_path / "1", rounds=2, device="cpu")
    from mohs.adapt.rounds import load_choice, read_lines

    for number in (1, 2):
        one, two = (load_choice(tmp_path / p / f"round-{number}" / "selected.safetensors")[0] for p in "12")
        assert torch.equal(one.places, two.places)
        assert torch.equal(one.labels, two.labels)
    lines = [read_lines(tmp_path / p / "rounds.jsonl") for p in "12"]
    assert [line["target_accuracy"] for line in lines[0]] == pytest.approx([line["target_accuracy"] for line in lines[1]])
