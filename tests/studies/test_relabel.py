"""Rows that are trained on another row's predictions, and what stops a study and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mohs._core.errors import RunError
from mohs._core.folders import claimed
from mohs.evaluate.outputs import predict
from mohs.studies.collect import collect
from mohs.studies.plan import distinct, plan
from mohs.studies.recipe import read_recipe, select_rows
from mohs.studies.relabel import MissingLabels, check_labels, data_of, relabeled
from mohs.studies.run_study import groups, run_study
from mohs.train.resolve import prepare_data
from mohs.train.run_data import opened
from mohs.train.trained import load_run

Write = Callable[..., Path]
AGAIN = '\n[[row]]\nlabel = "CE again"\nrelabel_from = "CE"\nclaim = ["a/1", "a/2"]\n[[measure]]\nname = "fit"\n'
LEARNING = (("epochs = 2", "epochs = 8"), ("limit = 12", "limit = 40"), ("seeds = 2", "seeds = 1"))


def test_a_row_is_trained_on_the_predicted_labels_of_another(written: Write, tmp_path: Path) -> None:
    recipe, runs = read_recipe(written(*LEARNING, more=AGAIN)), tmp_path / "runs"
    results = {one["row"]: one for one in run_study(recipe, runs=runs, device="cpu")}
    first, again = (load_run(next(runs.glob(f"*-{results[row]['run']}"))) for row in ("CE", "CE again"))
    assert again.run.open["relabeled_from"] == first.folder.name
    assert (again.run.noise, again.run.seed, again.run.loss) == (None, first.run.seed, first.run.loss)
    data = prepare_data(first.run, opened(first.run))
    guess = predict(first.network, data.train).logits.argmax(1)
    given = data_of(again.run, runs=runs)
    assert torch.equal(given.train.labels, guess)
    assert torch.equal(given.train.inputs, data.train.inputs)
    assert torch.equal(given.train.truth, data.train.truth)  # what was true before the noise
    assert torch.equal(given.test.labels, data.test.labels)
    about = json.loads((again.folder / "run.json").read_text())
    assert given.train.fingerprint() in about["data"]["fingerprint"]
    said = predict(again.network, data.train).logits.argmax(1)
    wrong = guess != data.train.truth
    assert results["CE again"]["fit_noisy"] == pytest.approx(float((said == guess)[wrong].double().mean()), abs=1e-5)
    assert results["CE again"]["test_accuracy"] > 0.5


def test_is_trained_once_and_collected_like_any_other(written: Write, tmp_path: Path) -> None:
    recipe, runs = read_recipe(written(*LEARNING, more=AGAIN)), tmp_path / "runs"
    first, steps = run_study(recipe, runs=runs, device="cpu"), []
    watch: Callable[[dict[str, Any]], None] = lambda event: steps.append(event) if "step" in event else None
    assert run_study(recipe, runs=runs, device="cpu", watch=watch) == first == collect(recipe, runs=runs)
    assert steps == []


def test_rows_are_ordered_after_their_prerequisites(written: Write) -> None:
    more = AGAIN + '[[row]]\nlabel = "third"\nrelabel_from = "CE again"\nvalidation = 0.2\n'
    recipe = read_recipe(written(more=more))
    assert list(recipe.rows[2].claim) == ["a/1", "a/2"]
    planned = plan(recipe)
    assert [one.depth for one in planned] == [0, 0, 1, 2] * 2
    assert planned[2].source is planned[0]
    assert planned[6].source is planned[4]
    assert planned[3].run.validation == 0
    assert len({one.key for one in planned}) == 8 == len(distinct(planned))
    waves = list(groups(planned, 3))
    assert [[one.row.label for one in wave] for wave in waves] == [
        ["CE", "GCE", "CE"], ["GCE"], ["CE again", "CE again"], ["third", "third"]
    ]  # fmt: skip
    assert [row.label for row in select_rows(recipe, ["third"]).rows] == ["CE", "CE again", "third"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('label = "x"\nrelabel_from = "none"', "row 'x': relabel_from = 'none' is not an earlier row; earlier rows: CE, GCE"),
        ('label = "x"\nrelabel_from = "x"', "relabel_from = 'x' is not an earlier row"),
        ('label = "x"\nrelabel_from = "CE"\ndata = "mnist"', "both rows must have the same data and open"),
        ('label = "x"\nclaim = [1]', "claim must be an id of the register or a list of ids"),
    ],
)
def test_wrong_sources_are_reported(written: Write, row: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(written(more=f"\n[[row]]\n{row}\n"))


def test_a_sweep_fills_the_name_of_the_source(written: Write) -> None:
    sweep = '[[sweep]]\nkey = "noise.rate"\nvalues = [0.2, 0.4]\n[[row]]\nlabel = "again {noise.rate}"\n'
    sweep += 'relabel_from = "CE {noise.rate}"\nclaim = ["a/{noise.rate}", "b"]\n'
    changes = (('label = "CE"', 'label = "CE {noise.rate}"'), ('label = "GCE"', 'label = "GCE {noise.rate}"'))
    rows = read_recipe(written(*changes, ('against = "CE"', 'against = "CE {noise.rate}"'), more=sweep)).rows
    assert [(row.relabel_from, list(row.claim)) for row in rows if row.relabel_from] == [
        ("CE 0.2", ["a/0.2", "b"]), ("CE 0.4", ["a/0.4", "b"])
    ]  # fmt: skip


def test_without_labels_the_row_fails_and_the_study_continues(written: Write, tmp_path: Path) -> None:
    wild = '\n[[row]]\nlabel = "wild"\noptimizer = "sgd:lr=1e30"\n[[row]]\nlabel = "after"\nrelabel_from = "wild"\n'
    told: list[dict[str, Any]] = []
    results = run_study(
        read_recipe(written(("seeds = 2", "seeds = 1"), more=wild)), runs=tmp_path / "runs", device="cpu", watch=told.append
    )
    errors = {one["row"]: one.get("error", "") for one in results}
    assert errors["CE"] == errors["GCE"] == ""
    assert "the loss became" in errors["wild"]
    assert errors["after"] == "its labels come from wild, which failed"
    assert [event["error"] for event in told if "ended" in event][-1] == errors["after"]


def test_a_class_that_is_never_predicted_is_named(trained: Any) -> None:
    run, data = trained
    with torch.no_grad():
        kept = run.network.head.bias.clone()
        run.network.head.bias[0] += 1e6
        one = relabeled(run, opened(run.run))
        run.network.head.bias.copy_(kept)
    with pytest.raises(MissingLabels, match="the network of CE predicts class 1 for no training example"):
        check_labels(one, of="CE")
    check_labels(data, of="CE")


def test_what_is_no_divergence_stops_the_study(written: Write, tmp_path: Path) -> None:
    recipe, runs = read_recipe(written(("seeds = 2", "seeds = 1"))), tmp_path / "runs"
    first = run_study(select_rows(recipe, ["GCE"]), runs=runs, device="cpu")
    folder = next(runs.glob(f"*-{first[1]['run']}"))
    (folder / "DONE").unlink()
    facts = json.loads((folder / "run.json").read_text())
    with claimed(folder, "run.json", facts, kind="run"), pytest.raises(RunError, match=str(folder.name)):
        run_study(recipe, runs=runs, device="cpu")
    noted = json.loads((runs / "studies" / "toy-table1.json").read_text())
    assert not any("error" in entry for entry in noted.values())
