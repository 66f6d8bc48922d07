"""Measures: each gives the numbers it promises, checked against the plain way, and is kept in the run's folder."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mohs._core.checksums import list_file
from mohs._core.errors import DataError
from mohs.data.examples import Data
from mohs.evaluate.ood import INDICATORS
from mohs.evaluate.outputs import predict
from mohs.studies.measures.human import votes_for
from mohs.studies.measures.test_outputs import subset
from mohs.studies.recipe import read_recipe, select_rows
from mohs.studies.run_measures import MEASURES, measure_run, missing_measures, named_measures, stored_measures
from mohs.studies.run_study import run_study
from mohs.train.run_data import opened
from mohs.train.trained import Trained, load_run

Run = tuple[Trained, Data]
FACES = Path(__file__).parents[2] / "recipes/adr/table6-faces.toml"


def asked(name: str, trained: Run, **fields: Any) -> dict[str, float]:
    return MEASURES[name](**fields)(*trained)


def test_names_of_all_measures(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("captum", reason="Grad-CAM needs the explain extra")
    monkeypatch.setenv("MOHS_DATA", str(tmp_path))
    np.savez(tmp_path / "votes.npz", counts=np.random.default_rng(0).integers(1, 9, (1797, 8)))
    wanted = {
        "ece": ({}, "ece nll brier"),
        "fit": ({}, "fit_clean fit_noisy fit_truth fit_intact"),
        "ood": ({"data": "digits"}, " ".join(f"{metric}_{name}" for name in INDICATORS for metric in ("auroc", "fpr95"))),
        "probe": ({"epochs": 2}, "probe_accuracy probe_balanced"),
        "cluster": (
            {"restarts": 1},
            "homogeneity_predictions completeness_predictions homogeneity_kmeans completeness_kmeans separation",
        ),
        "imbalance": ({}, "many medium few balanced"),
        "retrieval": ({}, "map cmc1 cmc5"),
        "cam": ({"examples": 4, "steps": 2}, "cam_area cam_entropy deletion insertion cam_empty"),
        "margins": ({}, "mean_margin mean_gap mean_norm mean_avh"),
        "energy": ({}, "mean_energy"),
        "human": ({"file": "votes.npz"}, "spearman_avh spearman_confidence spearman_margin spearman_norm"),
        "recall": ({}, "least_recall lost_classes"),
        "history": ({}, "epochs best_test_accuracy last_test_accuracy best_accuracy last_accuracy"),
        "attack": (
            {"eps": 0.1, "steps": 2, "examples": 8},
            "robust_fgsm robust_pgd robust_pgd_margin robust_pgd_dlr robust_clean robust_worst masking_suspected",
        ),
        "degrade": (
            {"kind": "noise", "levels": [0.0, 0.3]},
            "avh_0 norm_0 confidence_0 accuracy_0 avh_0.3 norm_0.3 confidence_0.3 accuracy_0.3 trend_avh trend_norm",
        ),
        "curve": ({"at": [2], "values": ["avh"]}, "avh_epoch_2 avh_clean_epoch_2 avh_noisy_epoch_2"),
        "course": ({"values": ["avh", "norm"]}, "trend_avh trend_norm done_avh done_norm"),
        "agreement_bins": (
            {"file": "votes.npz", "at": [2], "values": ["avh"], "edges": [0.0, 0.1, 1.0]},
            "avh_bin_1_epoch_2 avh_bin_2_epoch_2 ordered_avh",
        ),
        "gradients": ({"examples": 50}, "gradient_norm gradient_norm_logits"),
        "attack_path": (
            {"eps": 0.1, "steps": 2, "examples": 8, "at": [0, 2]},
            " ".join(f"attack_{name}_{n}" for n in (0, 2) for name in ("avh", "norm", "confidence", "accuracy"))
            + " attack_change_avh attack_change_norm attack_change_confidence attack_change_accuracy"
            + " attack_half_avh attack_half_norm",
        ),
    }
    assert set(wanted) == set(MEASURES) - {"uncertain", "self_training", "alignment", "verification"}  # of other data
    for name, (fields, numbers) in wanted.items():
        made = asked(name, trained, **fields)
        assert list(made) == numbers.split(), name
        assert all(isinstance(value, float) for value in made.values())


def test_calibration_history_and_fit_match_direct_computation(trained: Run) -> None:
    run, data = trained
    logits = predict(run.network, data.test).logits.double()
    p = logits.softmax(1)
    y = data.test.labels
    assert asked("ece", trained)["nll"] == pytest.approx(float(-p[torch.arange(len(y)), y].log().mean()))
    last = asked("history", trained, at=[1, 3, 99])
    assert last["last_test_accuracy"] == run.history[-1]["test_accuracy"]
    assert last["best_test_accuracy"] == max(line["test_accuracy"] for line in run.history)
    assert last["test_accuracy_epoch_3"] == run.history[2]["test_accuracy"]
    assert "test_accuracy_epoch_99" not in last
    guess = predict(run.network, data.train).logits.argmax(1)
    clean = [g == a for g, a, b in zip(guess, data.train.labels, data.train.truth, strict=True) if a == b]
    wrong = [g == a for g, a, b in zip(guess, data.train.labels, data.train.truth, strict=True) if a != b]
    fit = asked("fit", trained)
    assert fit["fit_clean"] == pytest.approx(sum(map(float, clean)) / len(clean))
    assert fit["fit_noisy"] == pytest.approx(sum(map(float, wrong)) / len(wrong))


def test_the_traced_curve_is_the_mean_of_the_trace(trained: Run) -> None:
    run, data = trained
    made = asked("curve", trained, at=[1, 4], values=["right"])
    right, wrong = run.trace["right"][3].double(), data.train.labels != data.train.truth
    assert made["right_epoch_4"] == pytest.approx(float(right.mean()))
    assert made["right_noisy_epoch_4"] == pytest.approx(float(right[wrong].mean()))
    with pytest.raises(DataError, match="has no trace: set trace = true"):
        MEASURES["curve"](at=[1])(replace(run, parts={}), data)


def test_attacks_by_name_and_only_those(trained: Run) -> None:
    made = asked("attack", trained, eps=0.05, steps=2, attacks=["fgsm", "pgd:loss=margin"], examples=10, masking=False)
    assert list(made) == ["robust_fgsm", "robust_pgd_margin", "robust_clean", "robust_worst"]
    assert made["robust_worst"] <= min(made["robust_fgsm"], made["robust_pgd_margin"]) <= made["robust_clean"]


def test_degradation_of_level_0_is_the_test_set_itself(trained: Run) -> None:
    run, _ = trained
    made = asked("degrade", trained, kind="noise", levels=[0.0])
    assert made["accuracy_0"] == pytest.approx(run.history[-1]["test_accuracy"], abs=1e-6)


def test_people_unseen_in_training_are_verified_and_found_in_sets(tmp_path: Path) -> None:
    recipe = read_recipe(FACES, scale="smoke")
    found = {one["row"]: one for one in run_study(select_rows(recipe, ["linear"]), runs=tmp_path, device="cpu")}
    assert 0.4 < found["linear"]["verification_accuracy"] <= 1
    (folder,) = tmp_path.glob(f"*-{found['linear']['run']}")
    run = load_run(folder)
    assert run.run.open["holdout_classes"] == [6, 7, 8, 9]
    one, many = (MEASURES["retrieval"](set_size=size)(run, Data(opened(run.run).train)) for size in (1, 6))
    assert one["map"] != many["map"]
    with pytest.raises(ValueError, match="set_size"):
        MEASURES["retrieval"](set_size=0)


def test_invalid_measures_are_explained(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = trained
    blind = Data(replace(data.train, truth=None), None, data.test)
    with pytest.raises(DataError, match="the true labels are unknown"):
        MEASURES["fit"]()(run, blind)
    with pytest.raises(DataError, match="has no test set to measure on"):
        MEASURES["ece"]()(run, Data(data.train))
    with pytest.raises(DataError, match="no classes are held out of training"):
        MEASURES["retrieval"]()(replace(run, run=replace(run.run, open={})), data)
    monkeypatch.delenv("MOHS_DATA", raising=False)
    with pytest.raises(DataError, match=r"nowhere.npz: no such file in the working directory or in \$MOHS_DATA"):
        asked("human", trained, file="nowhere.npz")
    np.savez(tmp_path / "few.npz", counts=np.ones((3, 8)))
    with pytest.raises(DataError, match="has votes for 3 examples, but"):
        asked("human", trained, file=str(tmp_path / "few.npz"))
    np.savez(tmp_path / "none.npz", votes=np.ones((3, 8)))
    with pytest.raises(DataError, match="no array 'counts'; arrays: votes"):
        asked("human", trained, file=str(tmp_path / "none.npz"))
    flat = replace(data.test, inputs=torch.zeros(len(data.test), 4))
    with pytest.raises(DataError, match="holds features of shape"):
        MEASURES["attack"](eps=0.1)(run, Data(data.train, None, flat))
    with pytest.raises(ValueError, match="examples must be at least 1"):
        subset(data.test, 0)


def test_votes_are_matched_to_their_examples(trained: Run, tmp_path: Path) -> None:
    counts = np.tile(np.arange(1, 1798)[:, None], (1, 8))
    np.savez(tmp_path / "votes.npz", counts=counts)
    test = trained[1].test
    votes = votes_for(test, str(tmp_path / "votes.npz"))
    assert votes[:, 0].tolist() == [1.0 + key for key in test.keys]


def test_numbers_are_kept_and_not_measured_twice(trained: Run, tmp_path: Path) -> None:
    shutil.copytree(trained[0].folder, tmp_path / "run")
    (tmp_path / "run" / "measures.json").unlink(missing_ok=True)
    run, data = replace(trained[0], folder=tmp_path / "run"), trained[1]
    measures = named_measures([{"name": "ece", "label": "a"}, {"name": "imbalance"}], where="x")
    assert missing_measures(run.folder, measures) == measures
    measure_run(run, data, measures)
    first = stored_measures(run.folder, measures)
    assert set(first) == {"a_ece", "a_nll", "a_brier", "many", "medium", "few", "balanced"}
    assert math.isnan(first["many"])
    file = run.folder / "measures.json"
    json.loads(file.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    told = json.loads(file.read_text())
    told[measures[0].key]["ece"] = 42.0
    file.write_text(json.dumps(told))
    with pytest.raises(DataError, match=r"measures\.json is damaged .*remove this file and run the study again"):
        measure_run(run, data, measures)
    list_file(file)
    measure_run(run, data, measures)
    assert stored_measures(run.folder, measures)["a_ece"] == 42.0
    other = named_measures([{"name": "ece", "bins": 5}], where="x")
    assert missing_measures(run.folder, other) == other
    broken = named_measures([{"name": "human", "file": "nowhere.npz"}], where="x")
    with pytest.raises(DataError, match=r"measure human of run: nowhere.npz"):
        measure_run(run, data, broken)


def test_a_smoke_run_needs_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOHS_DATA", raising=False)
    specs = [
        {"name": "human"},
        {"name": "agreement_bins"},
        {"name": "ood", "data": "fashion-mnist"},
        {"name": "probe"},
        {"name": "cam", "examples": None},
    ]
    made = named_measures(specs, where="x", smaller=True)
    assert [one.name for one in made] == ["ood", "probe", "cam"]
    assert (made[0].measure.data, made[1].measure.epochs, made[2].measure.examples) == ("digits", 2, 16)


def test_recall_counts_the_classes_that_were_lost(trained: Run) -> None:
    run, data = trained
    logits = predict(run.network, data.test).logits
    named = logits.argmax(1)
    recall = [float((named[data.test.labels == k] == k).double().mean()) for k in range(len(data.classes))]
    found = asked("recall", trained, lost=0.5)
    assert found == {"least_recall": pytest.approx(min(recall)), "lost_classes": sum(value <= 0.5 for value in recall)}
