"""Scores of a network: both views where training mirrored, the record beside them, kept once made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mohs.audit.score_network import score_network, scored
from mohs.data.examples import Data, Examples
from mohs.hardness.table import column
from mohs.margin import margin
from mohs.models import create_model
from mohs.train.loop import train
from mohs.train.run import Run


@pytest.fixture(scope="module")
def colorful() -> Examples:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 3, 16, 16), generator=random, dtype=torch.uint8)
    return Examples(images, torch.arange(30) % 3, ["a", "b", "c"])


def test_both_views_count_equally(colorful: Examples) -> None:
    assert isinstance(colorful.inputs, torch.Tensor)
    network = create_model("cnn", shape=(3, 16, 16), num_classes=3, seed=0).eval()
    with torch.no_grad():
        one = [network(x[None])[0] for x in colorful.inputs]
        other = [network(x[None].flip(-1))[0] for x in colorful.inputs]
    for mirror, want in ((False, torch.stack(one)), (True, (torch.stack(one) + torch.stack(other)) / 2)):
        table, logits, _, _ = score_network(network, colorful, mirror=mirror)
        np.testing.assert_allclose(logits, want, atol=1e-5)
        np.testing.assert_allclose(column(table, "margin"), margin(want, colorful.labels), atol=1e-4)
        assert table.column("label").to_pylist() == ["a", "b", "c"] * 10


@pytest.mark.parametrize(
    ("augment", "mirrored"),
    [
        ([], False),
        (None, False),
        (["translate"], False),
        (["crop_flip"], True),
        (["crop_flip:flip=False"], False),
        (["gaussian_noise", "random_resized_crop"], True),
    ],
)
def test_which_runs_mirror(augment: list[str] | None, mirrored: bool) -> None:
    assert Run(augment=augment).mirrors is mirrored


def test_scores_are_cached(colorful: Examples, tmp_path: Path) -> None:
    run = train(Run(model="cnn", epochs=1, validation=0.0), Data(colorful), out=tmp_path / "run", device="cpu")
    file = tmp_path / "scores.parquet"
    table = scored(run, colorful, file)
    assert {"margin", "avh", "neighbors", "aum", "variability"} <= set(table.column_names)
    stamp = file.stat().st_mtime_ns
    assert scored(run, colorful, file).equals(table)
    assert file.stat().st_mtime_ns == stamp


def test_a_run_without_dynamics_is_named(colorful: Examples, tmp_path: Path) -> None:
    run = train(Run(model="cnn", epochs=1, validation=0.0, record=False), Data(colorful), out=tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match="holds no dynamics: train it with record=True"):
        scored(run, colorful, tmp_path / "scores.parquet")
