"""scikit-learn's digits: 1,797 images of 8 × 8, part of the package; levels 0..16 become 0..255."""

from __future__ import annotations

import torch

from mohs.data.examples import Data, Examples


def digits() -> Data:
    """Images (1797, 1, 8, 8) uint8, classes 0..9; without splits."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy((found.images * (255 / 16)).round()).to(torch.uint8)
    return Data(Examples(images[:, None], torch.from_numpy(found.target).long(), list(range(10)), name="digits"))
