"""Measures on real data, in the folder that MOHS_DATA names: votes of people, images of another size and color."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study

RECIPE = """
[study]
id = "try/real"
paper = "none"
what = "real data"
metric = "spearman_avh"
direction = "lower"
seeds = 1
[base]
data = "cifar10"
model = {name = "cnn", width = 4}
epochs = 1
open = {limit = 20}
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
def test_people_and_other_data(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(RECIPE)
    (one,) = run_study(read_recipe(tmp_path / "real.toml"), runs=tmp_path / "runs", device="cpu")
    assert -1 <= one["spearman_avh"] <= 1
    assert 0 <= one["auroc_max_logit"] <= 1
