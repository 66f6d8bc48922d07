"""cleanlab's label quality scores from the columns of a hardness table."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import mohs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    rank = pytest.importorskip("cleanlab.rank", reason="cleanlab is not installed (the bench extra)")

CLASSES = 6
generator = torch.Generator().manual_seed(0)
LABELS = torch.randint(CLASSES, (300,), generator=generator)
LOGITS = 2 * torch.randn(300, CLASSES, generator=generator, dtype=torch.float64)
PROBS = torch.softmax(LOGITS, 1).numpy()


def theirs(method: str) -> np.ndarray:
    found: np.ndarray = rank.get_label_quality_scores(LABELS.numpy(), PROBS, method=method)
    return found


def column(name: str) -> np.ndarray:
    values: np.ndarray = mohs.score_logits(LOGITS, LABELS).column(name).to_numpy()
    return values


def test_self_confidence_is_the_confidence() -> None:
    np.testing.assert_allclose(column("confidence"), theirs("self_confidence"), rtol=1e-10)


def test_normalized_margin_is_that_of_the_two_confidences() -> None:
    """Where another class is predicted, the largest other probability is that of the prediction; elsewhere the second largest."""
    other = np.where(column("predicted") == column("label"), np.sort(PROBS, 1)[:, -2], column("top_confidence"))
    np.testing.assert_allclose((column("confidence") - other + 1) / 2, theirs("normalized_margin"), rtol=1e-10)


def test_confidence_weighted_entropy() -> None:
    ratio = column("entropy") / np.log(CLASSES) / column("confidence")
    np.testing.assert_allclose(np.log1p(ratio) / ratio, theirs("confidence_weighted_entropy"), rtol=1e-8)


def test_the_order_of_doubt_is_cleanlab_s() -> None:
    assert np.array_equal(np.argsort(column("margin")), np.argsort(theirs("self_confidence")))
