"""Measures of human agreement and of saliency maps: do people find the same images hard, and what does the network look at?"""

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
from mohs.studies.measures.test_outputs import outputs_of, pixels_of, subset, test_of
from mohs.train.trained import Trained

SCORES = ("avh", "confidence", "margin", "norm")


@dataclass(frozen=True, kw_only=True)
class Human:
    """Agreement with people: spearman_avh, spearman_confidence, spearman_margin, spearman_norm, rank correlations of each score
    with the share of annotators who chose the label. file: an .npz with `counts` (N, K), the votes per test example, in the
    working directory or in $MOHS_DATA."""

    file: str = "cifar10h.npz"

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        test = test_of(data)
        out = outputs_of(trained, test)
        agreement = human_agreement(votes_for(test, self.file), test.labels.numpy())
        columns = measure(out.logits, test.labels, out.features, out.weight)
        return {f"spearman_{name}": correlation(columns[name], agreement, resamples=0).value for name in SCORES}

    @property
    def available(self) -> bool:
        """Whether the file of votes exists."""
        return votes_path(self.file) is not None


def votes_path(file: str) -> Path | None:
    """The path of the file of votes, in the working directory or in $MOHS_DATA; None if it is in neither."""
    places = [Path(file)] + [Path(folder) / file for folder in [os.environ.get(FOLDER)] if folder]
    return next((place for place in places if place.is_file()), None)


def votes_for(test: Examples, file: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The votes for each of these examples, matched by key if they are a subset."""
    path = votes_path(file)
    if path is None:
        raise DataError(f"{file}: no such file in the working directory or in ${FOLDER}")
    with np.load(path, allow_pickle=False) as loaded:
        if "counts" not in loaded.files:
            raise DataError(f"{path}: no array 'counts'; arrays: {', '.join(loaded.files)}")
        counts = loaded["counts"]
    rows = list(range(len(test))) if test.keys is None else list(test.keys)
    known = all(isinstance(row, int) and row < len(counts) for row in rows)
    if not known or (test.keys is None and len(rows) != len(counts)):
        raise DataError(f"{path} has votes for {len(counts)} examples, but {test.name}'s test set has {len(test)}")
    return np.asarray(counts[rows], dtype=float)


@dataclass(frozen=True, kw_only=True)
class Cam:
    """Size, entropy and faithfulness of Grad-CAM maps: cam_area, cam_entropy, deletion, insertion, cam_empty (needs captum)."""

    examples: int | None = 200
    steps: int = 20
    layer: str | None = None

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]:
        from mohs.evaluate.explain import explain

        images = pixels_of(subset(test_of(data), self.examples))
        found = explain(trained.network, images, layer=self.layer, steps=self.steps)
        means = found.means()
        return {
            "cam_area": means["area"],
            "cam_entropy": means["entropy"],
            "deletion": means["deletion"],
            "insertion": means["insertion"],
            "cam_empty": found.empty,
        }
