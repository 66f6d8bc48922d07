"""A long tail made of balanced data: class sizes that decay exponentially.

    n_j = n_max μ^(j/(K − 1))          j = 0..K−1 in the order of the classes, μ = 1/ratio, rounded down, at least 1

n_max is the size of the largest class; a class with fewer than n_j examples keeps all of them.
K. Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss" (NeurIPS 2019), section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs._core.validation import check_between


def tail_numbers(largest: int, *, num_classes: int, ratio: float) -> list[int]:
    """Number of examples of each class, n_0 ≥ n_1 ≥ ..."""
    check_between("ratio", ratio, 1)
    last = max(num_classes - 1, 1)
    return [max(1, int(largest * ratio ** (-j / last) + 1e-6)) for j in range(num_classes)]


def long_tail(labels: Tensor, *, num_classes: int, ratio: float = 100.0, seed: int = 0) -> Tensor:
    """labels (N,) -> places of the kept examples, in order, for `examples.take`."""
    counts = torch.bincount(labels, minlength=num_classes)
    if len(counts) > num_classes:
        raise ValueError(f"labels go up to {len(counts) - 1}, outside the {num_classes} classes")
    numbers = tail_numbers(int(counts.max()), num_classes=num_classes, ratio=ratio)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    own = [shuffled[labels[shuffled] == j][:number] for j, number in enumerate(numbers)]
    return torch.cat(own).sort().values
