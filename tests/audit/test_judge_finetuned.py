"""Fine-tuning on each half of the images: which images a half has."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mohs.audit.options import AuditOptions
from mohs.data.examples import Data, Examples

judge = import_module("mohs.audit.judge_finetuned")


def test_halves_have_whole_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = []

    def scored(work: Any, f: int) -> torch.Tensor:
        halves.append(work.half)
        return torch.zeros(int((work.half == f).sum()), 3)

    monkeypatch.setattr(judge._Tuning, "__call__", scored)
    groups = torch.arange(12).repeat_interleave(3)
    labels = (groups % 2).masked_fill(groups == 5, 2)
    images = torch.zeros(36, 3, 32, 32, dtype=torch.uint8)
    scores = judge.tuned_scores(Data(Examples(images, labels, [0, 1, 2], groups=groups)), AuditOptions(), tmp_path)
    assert len(torch.stack([halves[0], groups]).unique(dim=1).T) == 12
    assert np.isnan(scores[labels == 2]).all()  # the other network has never seen the class
    assert np.isfinite(scores[labels != 2]).all()
