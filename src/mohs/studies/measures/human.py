"""Measures that need more than the network: what people said of the test images, and where the network looks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.data.read_options import FOLDER
from mohs.hardness.agreement import correlation, human_agreement
from mohs.hardness.measure import measure
from mohs.studies.measures.test_outputs import pixels_of, said_of, some, test_of
from mohs.train.trained import Trained

SCORES = ("avh", "confidence", "margin", "norm")


@dataclass(frozen=True, kw_only=True)
class Human:
    """spearman_avh, spearman_confidence, spearman_margin, spearman_norm: correlation with the share of people who chose the
    label. file: a .npz with `counts` (N, K), votes for each test example, here or in the folder MOHS_DATA names."""

    file: str = "cifar10h.npz"

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        out = said_of(trained, test)
        agreement = human_agreement(votes_for(test, self.file), test.labels.numpy())
        columns = measure(out.logits, test.labels, out.features, out.weight)
        return {f"spearman_{name}": correlation(columns[name], agreement, resamples=0).value for name in SCORES}

    @property
    def there(self) -> bool:
        """Whether the votes can be read."""
        return votes_path(self.file) is not None


def votes_path(file: str) -> Path | None:
    """Where the file of votes is, if it is there: here, or in the folder MOHS_DATA names."""
    places = [Path(file)] + [Path(folder) / file for folder in [os.environ.get(FOLDER)] if folder]
    return next((place for place in places if place.is_file()), None)


def votes_for(test: Examples, file: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The votes for each of these examples: by their keys, where they are a part of the set."""
    path = votes_path(file)
    if path is None:
        raise DataError(f"{file}: no such file here or in the folder {FOLDER} names")
    with np.load(path, allow_pickle=False) as loaded:
        if "counts" not in loaded.files:
            raise DataError(f"{path}: no array called 'counts'; there are {', '.join(loaded.files)}")
        counts = loaded["counts"]
    rows = list(range(len(test))) if test.keys is None else list(test.keys)
    known = all(isinstance(row, int) and row < len(counts) for row in rows)
    if not known or (test.keys is None and len(rows) != len(counts)):
        raise DataError(f"{path} has votes for {len(counts)} examples, not for the {len(test)} of {test.name}'s test set")
    return np.asarray(counts[rows], dtype=float)


@dataclass(frozen=True, kw_only=True)
class Cam:
    """cam_area, cam_entropy, deletion, insertion: how small, how pointed and how true the Grad-CAM maps are (needs captum)."""

    examples: int | None = 200
    steps: int = 20
    layer: str | None = None

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.evaluate.explain import explain

        images = pixels_of(some(test_of(data), self.examples))
        found = explain(trained.network, images, layer=self.layer, steps=self.steps)
        means = found.means()
        return {
            "cam_area": means["area"],
            "cam_entropy": means["entropy"],
            "deletion": means["deletion"],
            "insertion": means["insertion"],
            "cam_empty": found.empty,
        }
