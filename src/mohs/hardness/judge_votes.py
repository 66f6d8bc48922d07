"""How likely each label is wrong, by several people's votes and a model together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mohs.hardness.annotators import Votes, consensus
from mohs.hardness.judgment import LabelJudgment, decide
from mohs.hardness.noise_model import Array


def judge_by_votes(judgment: LabelJudgment, votes: Votes, labels: Array, *, precision: float = 0.8) -> LabelJudgment:
    """The judgment on labels by a model, revised by several people's votes on the same examples.

    Args:
        judgment: By scores that are out of sample (`judge_labels`).
        votes: What people called the examples; those without a vote keep the model's judgment.
        labels: The given labels, class indices (N,). They do not count as a vote.
        precision: Expected share of the flagged examples whose label is wrong.

    Returns:
        The judgment, in which P(true) is the consensus of votes and model; details are in its `consensus`.
    """
    n, k = judgment.probs.shape
    known = ~np.isnan(judgment.p_mislabeled)
    agreed = consensus(votes, probs=np.where(known[:, None], judgment.probs, 1 / k))
    voted = votes.tally(n).sum(1) > 0
    posterior = np.where(voted[:, None], agreed.posterior, judgment.posterior)
    wrong = np.where(voted, 1 - agreed.posterior[np.arange(n), labels], judgment.p_mislabeled)
    flagged, suggested, p_suggested = decide(wrong, posterior, labels, precision)
    rate, doubted = float(np.nanmean(wrong)), float((posterior.argmax(1) != labels)[voted | known].mean())
    return replace(
        judgment,
        p_mislabeled=wrong,
        flagged=flagged,
        cannot_tell=~flagged & np.where(voted, wrong > 0.5, judgment.cannot_tell),
        suggested=suggested,
        p_suggested=p_suggested,
        probs=np.where(voted[:, None], agreed.posterior, judgment.probs),
        posterior=posterior,
        rate=rate,
        low=min(judgment.low, rate),
        high=max(judgment.high, rate, doubted),
        consensus=agreed,
    )
