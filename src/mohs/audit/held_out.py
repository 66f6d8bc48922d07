"""What examples that the first look did not train on say: how able its network is, and how many labels may be wrong at most.

    logits of the held out ─ fit_noise ─> ρ, the share that sure predictions contradict; cap: the upper end of Wilson's interval
    q' = σ(logit q + c),   c ≥ 0 the least for which the mean of 1 − q' is no more than the cap

A network that has learned little disagrees with many right labels, and its margins alone would call them wrong; on held-out
examples that shows as unsure predictions, which the fit does not count as wrong labels. The order of the examples stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit, logit

from mohs.audit.options import Array
from mohs.audit.score_network import on_device
from mohs.data.examples import Data
from mohs.hardness.anchors import wilson
from mohs.hardness.noise_model import fit_noise
from mohs.train.predict import predict
from mohs.train.resolve import prepared
from mohs.train.trained import Trained

ENOUGH = 30  # held-out examples, for a cap
SURE = 1e-12


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Probabilities (M, K) and labels (M,) of what a network was not trained on, its accuracy there, and the cap."""

    probs: Array
    labels: Array
    accuracy: float
    cap: float
    rate: float

    def most(self, *, found: bool) -> float:
        """How many labels may be wrong at most: the cap, or ρ itself where the dynamics gave no sign of any."""
        return self.cap if found else self.rate


def look_at_held_out(looked: Trained, data: Data, *, device: str = "auto") -> HeldOut | None:
    """What the first look's network says of the examples it held out; None where it held out none."""
    examples = prepared(looked.run, Data(data.train)).val
    if examples is None or not len(examples):
        return None
    said, _ = predict(on_device(looked.network, device), examples)
    labels = examples.labels
    right = float((said.argmax(1) == labels).double().mean())
    cap = rate = 1.0
    if len(labels) >= ENOUGH:
        rate = fit_noise(said, labels).rate
        cap = wilson(rate, len(labels), 0.95)[1]
    return HeldOut(torch.softmax(said.double(), 1).numpy(), np.asarray(labels), right, cap, rate)


def capped(right: Array, cap: float) -> Array:
    """q (N,), NaN where unknown -> q' of the same order, of which the mean of 1 − q' is at most the cap."""
    known = ~np.isnan(right)
    odds = logit(right[known].clip(SURE, 1 - SURE))
    if not known.any() or float((1 - right[known]).mean()) <= cap:
        return right

    def beyond(shift: float) -> float:
        return float((1 - expit(odds + shift)).mean()) - cap

    moved = right.copy()
    moved[known] = expit(odds + (brentq(beyond, 0.0, 60.0) if beyond(60.0) < 0 else 60.0))
    return moved
