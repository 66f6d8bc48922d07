"""Which labels to trust: the probability that each label is right, by a network's predictions on its training examples.

    belief                          w_i = b_i of the label y_i
    noise                           w_i = P(true class is y_i | belief b_i, label y_i),   P(k | i) ∝ b_ik^(1/τ) T[k, y_i], τ ≤ 1
    both                            logit w_i = ½ (logit w_i by noise + logit w_i by belief)
    both-or-margin                  margin if the network contradicts a fifth of the labels or more, else both
    auto                            noise if the mistakes are spread evenly over the classes, else both
    loss, margin, avh, neighbors    w_i = P(easy component | h_i) of a mixture of two Gaussians fitted to the hardness h

`noise` estimates the noise matrix T[k, j] = P(label j | true class k) and the temperature τ of the belief by maximum likelihood
of the labels (EM), so that a class that is hard to learn is not mistaken for one that is badly labeled. Its prior is symmetric
noise of the rate found so far. It assumes that labels and belief are independent given the true class. Then a label is strong
evidence: among K classes with 40 % symmetric noise the right label is 1.5 (K − 1) times as likely as any one wrong label, 150
times for K = 100, and a network that is right for half of the examples has targets that are right for most. `belief` ignores this
evidence.

People's mistakes are not independent: they fall on ambiguous images, on which the network makes the same mistakes, and `noise`
trusts too many of them. `belief` does not, but needs a network that is right more often than the labels. `both` counts the label
as half an observation: a logarithmic opinion pool with equal weights.

`auto` distinguishes these two cases by the labels that contradict the network where it is most certain. Random mistakes are
spread evenly over the other classes; people, and anything else that looks at the example, mistake a class for a few similar ones.
`concentration` is 0 for symmetric noise, 0.12 to 0.17 for CIFAR-10N by the true classes, and 1 if each class is mistaken for one.

On features a network memorizes many wrong labels, and its belief supports them: `noise` and `both` fail if half of the labels are
wrong. The margins of those labels are still the smallest, and the mixture of `margin` cuts there; but with few wrong labels it is
worse, since it always finds two clusters. `both-or-margin` decides by the share of the labels that the network contradicts.

The mixtures rely on networks fitting correct labels first, which makes two clusters of the hardness: of the loss, as in DivideMix
(Li et al. 2020), of the margin, of the angle to the class weight (AVH), or of the share of neighbors with another label.
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
from torch.nn.functional import one_hot

from mohs.hardness.angular import avh
from mohs.hardness.neighbors import neighbor_agreement

LEAST, SPREAD = 1e-6, 1e-3  # smallest probability; variance added to both components, of hardness scaled to SD 1
SAMPLE = 20_000  # maximum number of examples to which the mixture is fitted
TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)  # a flatter belief would explain wrong labels without noise
START = 0.3  # noise rate at which EM begins
EVEN = 0.05  # concentration of mistakes below which they count as random
MANY = 0.2  # labels are trusted by the margin if the network contradicts at least this share of them
STEPS, PRIOR = 20, 0.5  # steps of EM; prior examples, spread by the pooled noise rate, added to each row of T


class Evidence(NamedTuple):
    """A network's outputs on its N training examples.

    Attributes:
        probs: (N, K), mean of its predictions so far.
        features: (N, D), the inputs of its head.
        weight: (K, D), the head's class weights.
    """

    probs: Tensor
    features: Tensor
    weight: Tensor


def right_labels(select: str, seen: Evidence, labels: Tensor) -> Tensor:
    """The probability (N,) that each label is right, by a rule in `TRUST_RULES`."""
    return TRUST_RULES[select](seen, labels)


def by_noise(seen: Evidence, labels: Tensor) -> Tensor:
    """The posterior of the label by noise matrix and belief, at the temperature under which the labels are most likely."""
    fits = [noise_posterior(seen.probs.double(), labels, temperature) for temperature in TEMPERATURES]
    likelihoods = torch.stack([likelihood for _, likelihood in fits])
    return torch.stack([right for right, _ in fits])[likelihoods.argmax()]


def noise_posterior(probs: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The probability (N,) that each label is right, and the mean log-likelihood of the labels, by EM for the noise matrix."""
    belief = torch.softmax(probs.clamp(min=LEAST).log() / temperature, 1)
    classes = probs.shape[1]
    given, same = one_hot(labels, classes).to(belief), torch.eye(classes, dtype=belief.dtype, device=belief.device)
    noise = spread_evenly(same, torch.tensor(START).to(belief))
    for _ in range(STEPS):
        joint = belief * noise[:, labels].T  # (N, K): true class k and this label
        total = joint.sum(1, keepdim=True)
        counts = (joint / total).T @ given
        pooled = spread_evenly(same, 1 - counts.trace() / len(labels))
        noise = counts + PRIOR * classes * pooled
        noise = noise / noise.sum(1, keepdim=True)
    return (joint / total).gather(1, labels.unsqueeze(1)).squeeze(1), total.log().mean()


def spread_evenly(same: Tensor, rate: Tensor) -> Tensor:
    """The noise matrix (K, K) of symmetric noise of this rate; same: the identity matrix."""
    rate = rate.clamp(LEAST, 1 - LEAST)
    return same * (1 - rate) + (1 - same) * (rate / (len(same) - 1))


def by_belief(seen: Evidence, labels: Tensor) -> Tensor:
    """The belief in the label itself."""
    return own(seen.probs, labels)


def by_both(seen: Evidence, labels: Tensor) -> Tensor:
    """The mean of the log odds that noise matrix and belief give the label."""
    return pooled(seen, labels, torch.tensor(0.5))


def by_auto(seen: Evidence, labels: Tensor) -> Tensor:
    """By the noise matrix alone if mistakes are random, else by both."""
    random = concentration(seen.probs, labels) < EVEN
    return pooled(seen, labels, torch.where(random, 0.0, 0.5))


def by_both_or_margin(seen: Evidence, labels: Tensor) -> Tensor:
    """By the margin if the network contradicts many labels, else by both."""
    contradicted = (seen.probs.argmax(1) != labels).double().mean()
    return by_margin(seen, labels) if contradicted >= MANY else by_both(seen, labels)


def pooled(seen: Evidence, labels: Tensor, weight: Tensor) -> Tensor:
    """The mean of the log odds that noise matrix and belief give the label, with this weight (a scalar) of the belief."""
    odds = [right.double().clamp(LEAST, 1 - LEAST).logit() for right in (by_noise(seen, labels), by_belief(seen, labels))]
    return torch.lerp(odds[0], odds[1], weight.to(odds[0])).sigmoid()


def concentration(probs: Tensor, labels: Tensor) -> Tensor:
    """How unevenly mistakes are spread over the other classes (a scalar): 0 evenly, 1 all of a class on one other.

    Mistakes are the labels other than the most likely class, of the half of the examples of which the network is most certain.
    The estimate is that of Σ_j p_j² without bias, over the labels j of each class, so that it is 0 on average for few examples of
    random noise too. 1 if there are not two mistakes in any class, or not three classes.
    """
    classes = probs.shape[1]
    certainty, likeliest = probs.max(1)
    counted = ((certainty >= certainty.median()) & (likeliest != labels)).double()
    counts = torch.zeros(classes, classes, dtype=torch.float64, device=probs.device)
    counts = counts.index_put_((likeliest, labels), counted, accumulate=True)
    total = counts.sum(1)
    same = (counts * (counts - 1)).sum(1) / (total - 1).clamp(min=1)  # times the class's number of mistakes
    even = 1 / (classes - 1)
    found = (same.sum() / (total * (total > 1)).sum() - even) / max(1 - even, LEAST)
    return found.nan_to_num(1.0) if classes > 2 else torch.ones_like(found)


def by_loss(seen: Evidence, labels: Tensor) -> Tensor:
    """By the cross-entropy of the label."""
    return easy_component(-own(seen.probs, labels).log())


def by_margin(seen: Evidence, labels: Tensor) -> Tensor:
    """By the margin of the label, with the sign changed: log of the odds against it."""
    mine = own(seen.probs, labels)
    return easy_component((1 - mine).clamp(min=LEAST).log() - mine.log())


def by_avh(seen: Evidence, labels: Tensor) -> Tensor:
    """By the angular visual hardness."""
    return easy_component(avh(seen.features, seen.weight, labels))


def by_neighbors(seen: Evidence, labels: Tensor) -> Tensor:
    """By the share of the nearest neighbors in feature space that have another label."""
    return easy_component(1 - neighbor_agreement(seen.features, labels).nan_to_num(0.5))


TRUST_RULES: dict[str, Callable[[Evidence, Tensor], Tensor]] = {
    "auto": by_auto,
    "both": by_both,
    "noise": by_noise,
    "belief": by_belief,
    "both-or-margin": by_both_or_margin,
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

    Values beyond the means of the components count as the means, since the wider component is the more likely one at both ends.
    """
    values = hardness.double().cpu().numpy()
    values = (values - values.mean()) / max(values.std(), LEAST)
    rows = np.random.default_rng(0).permutation(len(values))[:SAMPLE]
    mixture = GaussianMixture(2, reg_covar=SPREAD, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer than two values: both components are the same
        mixture.fit(values[rows, None])
    ends = np.sort(mixture.means_[:, 0])
    chances = mixture.predict_proba(values.clip(*ends)[:, None])[:, mixture.means_[:, 0].argmin()]
    return torch.from_numpy(chances).to(hardness.device)
