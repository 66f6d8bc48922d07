"""Audits with the votes of several people: verdicts by votes and model together, the annotators, and whom to ask about what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import mohs
from mohs.audit.pipeline import run_audit
from mohs.audit.result import AuditResult, load_audit
from mohs.report.gallery import examples_to_ask

SKILLS = {"anna": 0.55, "ben": 0.75, "carl": 0.9}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """400 blurred digits with a label by majority of three people of different skill, each of whom left some out."""
    x, truth = (part[:400] for part in load_digits(return_X_y=True))
    x = x + np.random.default_rng(1).normal(scale=5, size=x.shape)  # a model alone is often in doubt
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("votes")
    votes = np.stack([np.where(rng.random(400) < s, truth, (truth + rng.integers(1, 10, 400)) % 10) for s in SKILLS.values()], 1)
    votes[rng.random(votes.shape) < 0.2] = -1
    counts = np.stack([(votes == k).sum(1) for k in range(10)], 1)
    given = (counts + rng.random(counts.shape) * 0.1).argmax(1)
    np.savez(folder / "data.npz", x=x, y=given)
    lines = [f"{i},{who},{votes[i, a]}" for i in range(400) for a, who in enumerate(SKILLS) if votes[i, a] >= 0]
    (folder / "votes.csv").write_text("\n".join(["example,annotator,label", *lines]))
    return folder, given, truth


@pytest.fixture(scope="module")
def audited(made: tuple[Path, Any, Any]) -> AuditResult:
    folder = made[0]
    return mohs.audit(folder / "data.npz", open_as={"votes": str(folder / "votes.csv")}, out=folder / "voted")


def test_votes_and_model_together_find_more_than_the_model(made: tuple[Path, Any, Any], audited: AuditResult) -> None:
    folder, given, truth = made
    alone = mohs.audit(folder / "data.npz", out=folder / "alone")
    found = [average_precision_score(given != truth, r.table.column("p_mislabeled").to_numpy()) for r in (audited, alone)]
    assert found[0] > found[1]
    suggested = np.array(audited.table.column("suggested_label").to_pylist())
    assert (suggested == truth).mean() > (given == truth).mean() + 0.1
    flagged = np.array(audited.table.column("verdict").to_pylist()) == "mislabeled"
    assert (given != truth)[flagged].mean() > 0.9


def test_the_quality_of_each_annotator_is_stored_and_reported(made: tuple[Path, Any, Any], audited: AuditResult) -> None:
    kept = load_audit(audited.folder).annotators
    assert kept is not None
    assert kept.equals(audited.annotators)
    quality = dict(zip(kept.column("annotator").to_pylist(), kept.column("quality").to_pylist(), strict=True))
    votes = mohs.open_data(made[0] / "data.npz", votes=made[0] / "votes.csv").train.votes
    assert votes is not None
    for a, name in enumerate(SKILLS):
        own = votes.annotator == a
        assert abs(quality[name] - (votes.label == made[2][votes.example])[own].mean()) < 0.03
    page = (audited.folder / "report.html").read_text()
    assert "Show to one more person" in page
    assert all(name in page for name in SKILLS)


def test_examples_to_ask_about_are_those_of_the_highest_gain(audited: AuditResult) -> None:
    asked = examples_to_ask(audited.table)
    gain = audited.table.column("gain").to_numpy()
    assert [one["gain"] for one in asked] == sorted(gain[gain > 0], reverse=True)[:20]


def test_disagreement_is_a_score_and_highest_where_people_disagree(made: tuple[Path, Any, Any], audited: AuditResult) -> None:
    train = mohs.open_data(made[0] / "data.npz", votes=made[0] / "votes.csv").train
    assert train.votes is not None
    counts = train.votes.tally(400)
    split = (counts > 0).sum(1) == 3
    agreed = (counts.max(1) == 3) & (counts.sum(1) == 3)
    harder = audited.table.column("disagreement").to_numpy()
    assert harder[split].min() > harder[agreed].max()
    assert "disagreement" in mohs.SCORES


@pytest.mark.skipif("MOHS_DATA" not in os.environ, reason="needs CIFAR-10 and CIFAR-10N in MOHS_DATA")
def test_cifar10n(tmp_path: Path) -> None:
    votes = "cifar10n.npz:random1,random2,random3"
    train = mohs.open_data("cifar10", votes=votes).train.take(torch.arange(0, 50_000, 80))
    assert train.votes is not None
    truth = train.labels.numpy()
    pixels = train.inputs[torch.arange(len(train))].float().flatten(1)[:, ::12]
    given = torch.from_numpy(train.votes.tally(len(train)).argmax(1))
    features = mohs.Examples(pixels, given, train.classes, votes=train.votes)
    result = mohs.audit(features, out=tmp_path / "audit")
    assert result.annotators is not None
    assert result.annotators.column("annotator").to_pylist() == ["random1", "random2", "random3"]
    place = {name: k for k, name in enumerate(train.classes)}
    suggested = np.array([place[name] for name in result.table.column("suggested_label").to_pylist()])
    assert (suggested == truth).mean() >= (given.numpy() == truth).mean()
    wrong = average_precision_score(given.numpy() != truth, result.table.column("p_mislabeled").to_numpy())
    assert wrong > 0.3  # a tenth of the majority votes are wrong, and heads on pixels know little


def test_the_agreement_of_people_is_predicted_from_the_votes_on_other_examples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, truth = (part[:800] for part in load_digits(return_X_y=True))
    other = rng.permutation(800)
    share = rng.random(800) ** 2 / 2  # of another digit in each picture, which as many people see
    blended = (1 - share)[:, None] * x + share[:, None] * x[other]
    votes = np.where(rng.random((800, 5)) < share[:, None], truth[other][:, None], truth[:, None])
    np.savez(tmp_path / "data.npz", x=blended.astype(np.float32), y=truth)
    np.savez(tmp_path / "votes.npz", **{f"person{a}": votes[:, a] for a in range(5)})
    done = run_audit(tmp_path / "data.npz", open_as={"votes": str(tmp_path / "votes.npz")}, out=tmp_path / "run", issues="none")
    agreement = np.where(truth == truth[other], 1.0, 1 - share)
    assert spearmanr(done.table.column("human").to_numpy(), agreement).statistic > 0.45


def test_a_network_trained_on_votes_predicts_agreement_on_other_data(made: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder = made[0]
    run = mohs.Run(data=str(folder / "data.npz"), model="mlp", epochs=2, open={"votes": str(folder / "votes.csv")})
    trained = mohs.train(run, out=tmp_path / "voted")
    found = run_audit(folder / "data.npz", run=trained.folder, out=tmp_path / "audit", issues="none")
    human = found.table.column("human").to_numpy()
    assert human.min() >= 0
    assert human.max() == 1
    plain = mohs.train(mohs.Run(data=str(folder / "data.npz"), model="mlp", epochs=1), out=tmp_path / "plain")
    alone = run_audit(folder / "data.npz", run=plain.folder, out=tmp_path / "alone", issues="none")
    assert "human" not in alone.table.column_names
