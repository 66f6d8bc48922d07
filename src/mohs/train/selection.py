"""Which labels to trust: the probability that each label is right, from what a network believes of its training examples.

    right_i = P(easy component | h_i)          of a mixture of two Gaussians fitted to the hardness h of all examples

Networks fit correct labels first, so early in training the hardness of correct and of wrong labels forms two heaps. `SELECTIONS`
names the hardness: the loss, as DivideMix does (Li et al. 2020), the margin, the angle to the class weight (AVH), or the labels
of the nearest neighbors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from mohs.hardness.angular import avh
from mohs.hardness.neighbors import neighbor_agreement

LEAST, SPREAD = 1e-6, 1e-3  # smallest probability; variance added to both components, of hardness scaled to SD 1
SAMPLE = 20_000  # examples to which the mixture is fitted


class Evidence(NamedTuple):
    """What a network says of its N training examples.

    Attributes:
        probs: (N, K), mean of its predictions so far.
        features: (N, D), the inputs of its head.
        weight: (K, D), the head's class weights.
    """

    probs: Tensor
    features: Tensor
    weight: Tensor


def right_labels(select: str, seen: Evidence, labels: Tensor) -> Tensor:
    """The probability (N,) that each label is right, by a selection in `SELECTIONS`."""
    return easy_component(SELECTIONS[select](seen, labels).double())


def by_loss(seen: Evidence, labels: Tensor) -> Tensor:
    """Cross-entropy of the label."""
    return -own(seen.probs, labels).log()


def by_margin(seen: Evidence, labels: Tensor) -> Tensor:
    """Margin of the label, with the sign changed: log of the odds against it."""
    mine = own(seen.probs, labels)
    return (1 - mine).clamp(min=LEAST).log() - mine.log()


def by_avh(seen: Evidence, labels: Tensor) -> Tensor:
    """Angular visual hardness."""
    return avh(seen.features, seen.weight, labels)


def by_neighbors(seen: Evidence, labels: Tensor) -> Tensor:
    """Share of the nearest neighbors in feature space that have another label."""
    return 1 - neighbor_agreement(seen.features, labels).nan_to_num(0.5)


SELECTIONS: dict[str, Callable[[Evidence, Tensor], Tensor]] = {
    "loss": by_loss,
    "margin": by_margin,
    "avh": by_avh,
    "neighbors": by_neighbors,
}


def own(probs: Tensor, labels: Tensor) -> Tensor:
    """The probability of the label (N,), at least LEAST."""
    return probs.gather(1, labels.unsqueeze(1)).squeeze(1).clamp(min=LEAST)


def easy_component(hardness: Tensor) -> Tensor:
    """hardness (N,) -> probability (N,) of the easier component of a mixture of two Gaussians; falls as hardness rises.

    Values beyond the means of the components count as the means, since the wider component is the likelier one at both ends.
    """
    values = hardness.cpu().numpy()
    values = (values - values.mean()) / max(values.std(), LEAST)
    rows = np.random.default_rng(0).permutation(len(values))[:SAMPLE]
    mixture = GaussianMixture(2, reg_covar=SPREAD, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer than two values: both components are the same
        mixture.fit(values[rows, None])
    ends = np.sort(mixture.means_[:, 0])
    chances = mixture.predict_proba(values.clip(*ends)[:, None])[:, mixture.means_[:, 0].argmin()]
    return torch.from_numpy(chances).to(hardness.device)
