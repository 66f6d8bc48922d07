"""Copies of features, images and texts are found and grouped; data without copies stay unflagged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import mohs
from mohs.issues.duplicates import joined_groups

SIZE = 400


def vectors(seed: int, dimensions: int, size: int = SIZE) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(size, dimensions)).astype(np.float32)


@pytest.mark.parametrize("dimensions", [2, 3, 10, 100])
@pytest.mark.parametrize("seed", range(3))
def test_independent_features_have_no_copies(dimensions: int, seed: int) -> None:
    found = mohs.find_issues(vectors(seed, dimensions)).found
    assert found["near_duplicate"].flag.sum() <= 2  # E < 1/2 is expected to flag less than one
    assert not found["exact_duplicate"].flag.any()


@pytest.mark.parametrize("dimensions", [10, 100])
def test_a_copy_with_a_little_noise_is_found_with_its_original(dimensions: int) -> None:
    x = vectors(0, dimensions)
    x[-20:] = x[:20] * (1 + 0.01 * vectors(1, dimensions, 20))
    found = mohs.find_issues(x).found["near_duplicate"]
    truth = np.zeros(SIZE, bool)
    truth[:20] = truth[-20:] = True
    assert (found.flag & truth).sum() >= 38
    assert (found.flag & ~truth).sum() <= 2
    assert found.group is not None
    assert (found.group[:20] == found.group[-20:]).sum() >= 19
    assert found.score[truth].min() > np.quantile(found.score[~truth], 0.95)


def test_density_does_not_count_as_copying() -> None:
    """A dense cluster beside a sparse one: distances that are usual there are not copies, though small for the data."""
    x = vectors(0, 20)
    x[:200] = 8 + 0.02 * x[:200]
    assert mohs.find_issues(x).found["near_duplicate"].flag.sum() <= 2


def test_exact_copies_are_grouped_and_conflicts_of_labels_named() -> None:
    x, labels = vectors(0, 80), np.arange(SIZE) % 4
    x[10], x[11], x[21] = x[0], x[0], x[1]  # labels 2 and 3 against 0; 1 against 1
    found = mohs.find_issues(x, labels).found
    exact = found["exact_duplicate"]
    assert np.flatnonzero(exact.flag).tolist() == [0, 1, 10, 11, 21]
    assert exact.group is not None
    assert exact.group[[0, 10, 11]].tolist() == [0, 0, 0]
    assert exact.group[[1, 21]].tolist() == [1, 1]
    assert np.flatnonzero(found["conflicting_duplicate"].flag).tolist() == [0, 10, 11]
    assert found["near_duplicate"].flag[[0, 1, 10, 11, 21]].all()


def test_leaks_are_copies_in_another_split_only() -> None:
    x = vectors(0, 80)
    x[300], x[301] = x[0] + 1e-3, x[302]  # 0 is a training example; 301 and 302 are both test examples
    found = mohs.find_issues(x, splits=["train"] * 300 + ["test"] * 100).found
    assert np.flatnonzero(found["leak"].flag).tolist() == [0, 300]
    assert found["near_duplicate"].flag[[301, 302]].all()


def test_rows_of_few_common_values_are_not_copies() -> None:
    rng = np.random.default_rng(0)
    common = pa.table({"color": rng.choice(["red", "blue"], SIZE), "size": rng.integers(3, size=SIZE)})
    assert not mohs.find_issues(table=common).found["exact_duplicate"].flag.any()
    wide = pa.table({f"c{i}": rng.integers(100, size=SIZE) for i in range(8)})
    wide = pa.concat_tables([wide, wide.slice(5, 1)])
    assert np.flatnonzero(mohs.find_issues(table=wide).found["exact_duplicate"].flag).tolist() == [5, SIZE]


def pictures(size: int) -> torch.Tensor:
    """Smooth random images."""
    coarse = torch.rand(size, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 255
    return torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 255).to(torch.uint8)


@pytest.mark.parametrize("change", ["mirrored", "moved", "cropped", "darker"])
def test_altered_images_are_found_without_features(change: str) -> None:
    x = pictures(200)
    old = x[:10]
    new = {
        "mirrored": old.flip(3),
        "moved": torch.cat([old[..., 2:], old[..., -1:].expand(-1, -1, -1, 2)], 3),
        "cropped": torch.nn.functional.interpolate(old[:, :, 2:-2, 2:-2].float(), size=(32, 32), mode="bilinear").to(torch.uint8),
        "darker": old // 2,
    }[change]
    found = mohs.find_issues(images=torch.cat([x, new])).found["near_duplicate"]
    truth = np.r_[np.ones(10, bool), np.zeros(190, bool), np.ones(10, bool)]
    assert (found.flag & truth).sum() >= 16
    assert not (found.flag & ~truth).any()


def test_rewritten_texts_are_nearer_than_others() -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 5)) for _ in range(300)]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(SIZE)]
    index = {word: i for i, word in enumerate(words)}
    texts += [" ".join(text.split()[1::-1] + text.split()[2:]) for text in texts[:10]]  # the first two words change places
    bags = np.zeros((len(texts), len(words)), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            bags[row, index[word]] += 1
    found = mohs.find_issues(bags, texts=texts).found
    assert np.flatnonzero(found["near_duplicate"].flag).tolist() == [*range(10), *range(SIZE, SIZE + 10)]
    assert not found["exact_duplicate"].flag.any()


def test_groups_are_numbered_in_the_order_of_their_rows() -> None:
    group = joined_groups(7, np.array([5, 1, 2]), np.array([6, 2, 4]))
    assert group.tolist() == [-1, 0, 0, -1, 0, 1, 1]
