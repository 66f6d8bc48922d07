"""AUM of the authors' package against the Recorder's."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import mohs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    aum = pytest.importorskip("aum", reason="aum is not installed (the bench extra)")


@pytest.mark.parametrize("track", [None, ("aum",)])
def test_after_every_epoch(track: tuple[str, ...] | None, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    n, classes = 60, 5
    labels = torch.randint(classes, (n,), generator=generator)
    theirs, ours = aum.AUMCalculator(str(tmp_path)), mohs.Recorder(n, track=track)
    for _ in range(4):
        latest: dict[int, float] = {}
        for ids in torch.randperm(n, generator=generator).split(16):
            logits = 3 * torch.randn(len(ids), classes, generator=generator)
            records = theirs.update(logits, labels[ids], ids.tolist())
            latest |= {number: record.aum for number, record in records.items()}
            ours.update(ids, logits, labels[ids])
        np.testing.assert_allclose(ours.table().column("aum").to_numpy(), [latest[i] for i in range(n)], rtol=1e-6)
