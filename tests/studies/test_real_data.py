"""Measures on real data, in the folder that MOHS_DATA names: votes of people, images of another size and color."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from torch.nn.functional import cross_entropy

import mohs
from mohs.studies.measures.test_outputs import outputs_of
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.train.run_data import opened

RECIPE = """
[study]
id = "try/real"
paper = "none"
what = "real data"
metric = "spearman_confidence"
seeds = 1
[base]
data = "cifar10"
model = {name = "cnn", width = 4}
epochs = 4
batch = 32
validation = 0.0
record = false
check_every = 4
open = {train_limit = 200}
[[measure]]
name = "human"
[[measure]]
name = "ood"
data = "fashion-mnist"
indicators = ["max_logit"]
[[row]]
label = "CE"
"""


@pytest.mark.skipif("MOHS_DATA" not in os.environ, reason="MOHS_DATA names no folder with CIFAR-10, CIFAR-10H and Fashion-MNIST")
def test_human_agreement_and_other_data(tmp_path: Path) -> None:
    """Even a small network is more confident where people agree, and the measure is Spearman's ρ with their votes."""
    (tmp_path / "real.toml").write_text(RECIPE)
    (one,) = run_study(read_recipe(tmp_path / "real.toml"), runs=tmp_path / "runs", device="cpu")
    assert one["test_accuracy"] > 0.3
    assert one["spearman_confidence"] > 0.02  # two standard errors over 0; 0.4 for a network of 93 % accuracy
    trained = mohs.load_run(next((tmp_path / "runs").glob(f"*-{one['run']}")))
    test = opened(trained.run).test
    assert test is not None
    votes = np.load(Path(os.environ["MOHS_DATA"]) / "cifar10h.npz")["counts"]
    share = votes[np.arange(len(votes)), test.labels.numpy()] / votes.sum(1)
    loss = cross_entropy(outputs_of(trained, test).logits.double(), test.labels, reduction="none")  # falls as the margin grows
    assert one["spearman_margin"] == pytest.approx(spearmanr(-loss.numpy(), share).statistic, abs=1e-3)
    assert 0.4 < one["auroc_max_logit"] < 1  # other images do not get larger logits throughout
