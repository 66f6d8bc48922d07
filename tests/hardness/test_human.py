"""The score `human`: the share of people who would choose the label, by a model trained on votes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from scipy.stats import spearmanr
from typer.testing import CliRunner

import mohs
from mohs.cli import app
from mohs.hardness.human import EASIEST, easiest
from mohs.hardness.score_files import score_files
from mohs.hardness.scores import hardness
from mohs.hardness.shards import array_source
from mohs.hardness.table import column


@pytest.fixture(scope="module")
def people() -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Logits of a model that predicts votes, labels, and the agreement of careful people.

    Voters call a third of class 2 by the name of class 1, whatever the example.
    """
    rng = np.random.default_rng(0)
    labels, hard = rng.integers(3, size=3000), rng.random(3000) ** 3
    careful = np.full((3000, 3), hard[:, None] / 3)
    careful[np.arange(3000), labels] += 1 - hard
    slips = np.array([[1, 0, 0], [0, 1, 0], [0, 1 / 3, 2 / 3]])
    return torch.log(torch.tensor(careful @ slips)).float(), torch.from_numpy(labels), careful[np.arange(3000), labels]


def test_slips_that_do_not_depend_on_the_example_are_divided_out(people: tuple[torch.Tensor, torch.Tensor, np.ndarray]) -> None:
    logits, labels, careful = people
    table = mohs.score_logits(logits, labels, human=True)
    found, confidence = column(table, "human"), column(table, "confidence")
    assert spearmanr(found, careful).statistic > 0.98 > spearmanr(confidence, careful).statistic + 0.05
    assert found.max() == 1
    for k in range(3):
        own = labels.numpy() == k
        top = np.sort(confidence[own])[-round(EASIEST * own.sum()) :].mean()
        np.testing.assert_allclose(found[own], np.minimum(1, confidence[own] / top), rtol=1e-6)
    np.testing.assert_allclose(hardness(table, "human"), -found)
    assert "human" not in mohs.score_logits(logits, labels).column_names


def test_several_models_count_by_the_mean_of_their_probabilities() -> None:
    probs = np.array([[[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]], [[0.7, 0.3], [0.1, 0.9], [0.1, 0.9]]])
    np.testing.assert_allclose(mohs.predict_agreement(probs, [0, 0, 1]), [1, 0.3 / 0.8, 1])
    np.testing.assert_allclose(mohs.predict_agreement(probs, [0, 0, 1]), mohs.predict_agreement(probs.mean(0), [0, 0, 1]))
    with_gap = mohs.predict_agreement([[0.8, 0.2], [np.nan, np.nan], [0.4, 0.6]], [0, 0, 0])
    np.testing.assert_allclose(with_gap, [1, np.nan, 0.5])
    assert np.isnan(easiest([0.5], [0], 2)[1])


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [0, 1], r"probs must have shape \(N, K\) or \(M, N, K\), got \(2,\)"),
        ([[0.5, 0.5]], [0, 1], "labels must have one entry for each of the 1 rows of probs, got 2"),
    ],
)
def test_wrong_inputs(probs: list, labels: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mohs.predict_agreement(probs, labels)


def test_files_features_and_models_give_the_same_column(
    people: tuple[torch.Tensor, torch.Tensor, np.ndarray], tmp_path: Path
) -> None:
    logits, labels, _ = people
    known = column(mohs.score_logits(logits, labels, human=True), "human")
    source = array_source({"logits": logits.numpy(), "labels": labels.numpy()}, "made")
    score_files(source, tmp_path / "scores.parquet", human=True)
    streamed = pyarrow.parquet.read_table(tmp_path / "scores.parquet").column("human").to_numpy()
    np.testing.assert_allclose(streamed, known, rtol=1e-5)
    head = torch.nn.Linear(3, 3)
    torch.nn.init.eye_(head.weight)
    torch.nn.init.zeros_(head.bias)
    data = torch.utils.data.TensorDataset(logits, labels)
    by_model = column(mohs.score(torch.nn.Sequential(torch.nn.Identity(), head), data, human=True), "human")
    np.testing.assert_allclose(by_model, known, rtol=1e-5)
    by_features = mohs.score_features(logits, torch.eye(3), labels, human=True)
    np.testing.assert_allclose(column(by_features, "human"), known, rtol=1e-5)
    np.savez(tmp_path / "outputs.npz", logits=logits.numpy(), labels=labels.numpy())
    words = ["score", str(tmp_path / "outputs.npz"), "--human", "--out", str(tmp_path / "by-command.parquet")]
    assert CliRunner().invoke(app, words).exit_code == 0
    made = pyarrow.parquet.read_table(tmp_path / "by-command.parquet").column("human").to_numpy()
    np.testing.assert_allclose(made, known, rtol=1e-5)
