"""CIFAR-10 and the human labels beside it, from the folder that MOHS_DATA names (layout: lossless strips in zip files)."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

MEAN, SD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)


def folder() -> Path:
    """The data folder; an error that says how to name it."""
    named = os.environ.get("MOHS_DATA")
    if not named or not Path(named).is_dir():
        raise SystemExit(
            "set MOHS_DATA to the folder that holds cifar10-train-1.zip, cifar10-train-2.zip, cifar10-test.zip, cifar10n.npz"
        )
    return Path(named)


def images(split: str) -> tuple[np.ndarray, np.ndarray]:
    """ "train" or "test" -> images (N, 32, 32, 3) uint8 and labels (N,) int64, in the original order."""
    parts = sorted(folder().glob(f"cifar10-{split}*.zip"))
    pixels, labels = [], []
    for part in parts:
        with zipfile.ZipFile(part) as archive:
            strips = sorted(name for name in archive.namelist() if name.endswith(".webp"))
            pixels += [
                np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")).reshape(-1, 32, 32, 3) for name in strips
            ]
            labels.append(np.load(io.BytesIO(archive.read("labels.npy"))))
    return np.concatenate(pixels), np.concatenate(labels).astype(np.int64)


def given_labels(kind: str, clean: np.ndarray, *, seed: int) -> np.ndarray:
    """CIFAR-10N's "worse" or "aggre", or "sym20": 20 % of the labels moved to one of the other classes at random."""
    if kind.startswith("sym"):
        generator = np.random.default_rng(1000 + seed)
        moved = generator.random(len(clean)) < int(kind[3:]) / 100
        return np.where(moved, (clean + generator.integers(1, 10, len(clean))) % 10, clean)
    human = np.load(folder() / "cifar10n.npz")
    if not np.array_equal(human["clean"], clean):
        raise SystemExit("cifar10n.npz and the training labels are not in the same order")
    return human[kind].astype(np.int64)


def votes() -> np.ndarray:
    """CIFAR-10H: how many people chose each class, for every test image (10000, 10)."""
    return np.load(folder() / "cifar10h.npz")["counts"]
