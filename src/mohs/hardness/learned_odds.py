"""How likely each label is wrong, learned from data sets whose wrong labels are known.

The rule of `judgment` balances noise and ambiguity by one number for a whole data set. Other signs help to distinguish them:
whether models fitted to the predicted classes contradict a label too, whether labels move from one class to another but not
back, how certain the models are elsewhere. Small networks were trained on such signs of data sets with known wrong labels
(`benchmarks/train_judge.py`; results/audit/README.md lists these data sets, and results on others):

    p_mislabeled = sigmoid(mean over the networks of w₃ · tanh(W₂ tanh(W₁ x + b₁) + b₂) + b₃)

x holds the signs `SIGNS`, the rule's odds among them, and their distribution over the data set (`summary`), standardized and
clipped at ±4. Rows of a table are often ambiguous by nature, images and texts seldom: there are networks for embeddings, for
columns of numbers, and for tables of mixed columns, which trees judge too. The last two also see how often
predictions contradict labels, from the least confident predictions to the most confident ones (`risks_of`): natural ambiguity
vanishes where the models are certain, random mistakes do not. And they see how the labels of rows with equal features (twins)
differ (`twins_of`), as in a table with few categories: if no examples lie between the classes, models become certain of any of
them.

Data sets of fewer than `LEAST` examples have separate networks, for features of every kind, which see all of this: with a dozen
examples per class, doubt and contradictions mean less than with hundreds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from mohs.hardness.noise_model import Array

WEIGHTS = "learned_odds.json"
LEAST = 150  # examples below which data sets are small; the networks of a kind saw 200 to 10,000, those of small ones 20 to 250
SUMMARY = 22  # length of `summary`
KINDS = ("embedding", "columns", "table")  # kinds of features, each with its own networks
FEW = "few"  # the networks of small data sets
WINDOW, LEAST_WINDOW = 0.1, 20  # neighborhood of about the same confidence: share of the examples, and minimum number
QUANTILES = 5  # groups by confidence whose risk and doubt describe a data set
CLASS_PRIOR = 5.0  # prior examples that shrink the risk of a class toward the overall risk
CUT = 4.0  # standard deviations at which signs are clipped, to avoid extrapolation to unfamiliar data
SIGNS = (
    "rule",  # log-odds of a wrong label by the rule
    "apparent",  # the same by the noise model alone
    "margin",  # log p_given − log p of the most probable other class
    "refit margin",  # the same by models fitted to the predicted classes
    "doubt",  # log (1 − max p)
    "refit doubt",
    "agreement",  # whether both predict the same class
    "confusion",  # log share of the examples predicted as the other class that have this label
    "direction",  # log ratio of such labels to those in the opposite direction
    "class size",  # log ratio of examples predicted as the given class to examples labeled as it
    "all doubt",  # from here on, one number per data set: log mean doubt
    "all refit doubt",
    "disagreement",  # share of labels that are not predicted
    "apparent rate",  # share of wrong labels by the noise model
    "examples per class",  # log
    "classes",  # log
    "features per example",  # log
    "all direction",  # Σ |C − Cᵀ|/(2 N), C[predicted, given]
    "moved",  # share of predictions that the refit changes
    "skepticism",  # κ times the mean doubt
)


@dataclass(frozen=True, eq=False)
class Refit:
    """Predictions of models that were fitted to the predicted classes.

    Attributes:
        probs: Their out-of-sample probabilities (N, K).
        width: Number of features D.
        kind: What the features are (`KINDS`): an embedding, columns of numbers, or a table of mixed columns.
        twins: A number for each example (N,), the same for examples with equal features. None: all differ.
        groups: Group of each example (N,), which is no evidence for its label, as heads do not see the group either. None: all
        differ.
    """

    probs: Array
    width: int
    kind: str = "embedding"
    twins: Array | None = None
    groups: Array | None = None


def learned_wrong(signs: Array, probs: Array, labels: Array, refit: Refit) -> Array:
    """The probability that each label of a data set is wrong (N,).

    Args:
        signs: The signs (N, S), from `signs_of`.
        probs: Probabilities of the true class (N, K) that ignore the labels.
        labels: Class indices (N,).
        refit: Models fitted to the predicted classes.
    """
    kind = refit.kind if len(labels) >= LEAST else FEW
    x = with_summary(signs, summary(signs))
    if kind != "embedding":
        x = np.concatenate([x, table_signs(probs, labels, refit)], axis=1)
    return judged_by(networks(kind), x)


def table_signs(probs: Array, labels: Array, refit: Refit) -> Array:
    """The inputs of all networks, except those for embeddings, besides signs and summary (N, R); arguments as for
    `learned_wrong`.
    """
    twins = np.arange(len(labels)) if refit.twins is None else refit.twins
    return np.concatenate([risks_of(probs, labels, refit.probs), twins_of(twins, labels, refit.groups)], axis=1)


def with_summary(signs: Array, summarized: Array) -> Array:
    """Signs (N, S) and their summary (SUMMARY,) -> the inputs of the networks (N, I)."""
    return np.concatenate([signs, np.broadcast_to(summarized, (len(signs), SUMMARY))], axis=1)


def judged_by(net: Mapping[str, Any], x: Array) -> Array:
    """Inputs (N, I) -> the probability that each label is wrong (N,), by networks as `networks` returns them."""
    hidden = ((x - net["mean"]) / net["deviation"]).clip(-CUT, CUT)[None]  # (networks, N, hidden), once there are several
    for layer in ("first", "second"):
        hidden = np.tanh(hidden @ net[f"{layer}_weight"].swapaxes(1, 2) + net[f"{layer}_bias"][:, None])
    z = (hidden @ net["last_weight"].swapaxes(1, 2))[..., 0] + net["last_bias"]
    wrong: Array = 1 / (1 + np.exp(-z.mean(0)))
    return wrong


def summary(signs: Array) -> Array:
    """The distribution of the signs (N, S) over a data set: quantiles, and shares of its labels (SUMMARY,)."""
    rule, apparent, margin, refit, doubt, refit_doubt = signs[:, :6].T
    against, refit_against = margin < 0, refit < 0
    low = (0.05, 0.2, 0.5)
    return np.concatenate(
        [
            *(np.quantile(one, low) for one in (margin, refit)),
            *(np.quantile(one, (0.5, 0.8)) for one in (doubt, refit_doubt)),
            [
                (against & refit_against).mean(),
                (against & ~refit_against).mean(),
                (~against & refit_against).mean(),
                (margin < -2).mean(),
                (refit < -2).mean(),
                (refit < -4).mean(),
                (1 / (1 + np.exp(-rule))).mean(),
                (rule > 0).mean(),
                (rule > 2.2).mean(),
                (apparent > 0).mean(),
                refit_doubt[against].mean() if against.any() else refit_doubt.mean(),
                doubt[refit_against].mean() if refit_against.any() else doubt.mean(),
            ],
        ]
    )


def signs_of(probs: Array, labels: Array, *, rule: Array, apparent: Array, refit: Refit, rate: float, kappa: float) -> Array:
    """The signs (N, S) of a wrong label.

    Args:
        probs: Probabilities of the true class (N, K) that ignore the labels.
        labels: Class indices (N,).
        rule: Probability that each label is wrong (N,) by the rule.
        apparent: The same by the noise model alone.
        refit: Models fitted to the predicted classes.
        rate: Share of wrong labels by the noise model.
        kappa: The factor κ of the rule.
    """
    (n, k), top = probs.shape, probs.argmax(1)
    other = _others(probs, labels).argmax(1)
    predicted, given = np.bincount(top, minlength=k), np.bincount(labels, minlength=k)
    confused = np.zeros((k, k))
    np.add.at(confused, (top, labels), 1)
    doubt, refit_doubt = 1 - probs.max(1), 1 - refit.probs.max(1)
    same = refit.probs.argmax(1) == top
    of_rows = [
        log_odds(rule, 1e-4),
        log_odds(apparent, 1e-6),
        _margin(probs, labels, other),
        _margin(refit.probs, labels, _others(refit.probs, labels).argmax(1)),
        np.log(doubt + 1e-4),
        np.log(refit_doubt + 1e-3),
        same.astype(float),
        np.log((confused[other, labels] + 0.5) / (predicted[other] + 1)),
        np.log((confused[other, labels] + 0.5) / (confused[labels, other] + 0.5)),
        np.log((predicted[labels] + 0.5) / (given[labels] + 0.5)),
    ]
    of_all = [
        np.log(doubt.mean() + 1e-3),
        np.log(refit_doubt.mean() + 1e-3),
        (top != labels).mean(),
        rate,
        np.log(n / k),
        np.log(k),
        np.log(refit.width / n),
        np.abs(confused - confused.T).sum() / (2 * n),
        1 - same.mean(),
        kappa * doubt.mean(),
    ]
    return np.column_stack([*of_rows, *(np.full(n, one) for one in of_all)])


def risks_of(probs: Array, labels: Array, refit: Array) -> Array:
    """How often predictions contradict labels (N, R), by the confidence of the models and of the refitted ones.

    For each label: the share of contradictions among other examples of about the same confidence; the rank of that confidence;
    how much smaller the share is among the most confident fifth and half. For its class, the predicted class and the most
    probable other class: the share among the labels and the confident predictions. For the data set: share of contradictions
    and mean doubt in fifths of the examples, from the least confident to the most confident.

    Args:
        probs: Probabilities of the true class (N, K) that ignore the labels.
        labels: Class indices (N,).
        refit: Probabilities (N, K) of models fitted to the predicted classes.
    """
    (n, k), top = probs.shape, probs.argmax(1)
    against, of_rows, of_all = top != labels, [], []
    for confidence in (probs.max(1), refit.max(1)):
        order = np.argsort(confidence, kind="stable")
        rank = np.empty(n)
        rank[order] = np.arange(n) / max(n - 1, 1)
        near = _risk_nearby(against, order)
        of_rows += [np.log(near), rank]
        of_rows += [np.log(_share(against[rank >= 1 - part]) / near) for part in (0.2, 0.5)]
        fifths = np.array_split(order, QUANTILES)
        of_all += [np.log(_share(against[own])) for own in fifths]
        of_all += [np.log((1 - confidence[own]).mean() + 1e-3) for own in fifths]
    risk, confidence = _share(against), probs.max(1)
    confident, labeled = np.empty(k), np.empty(k)
    for c in range(k):
        own = np.flatnonzero(top == c)
        own = own[confidence[own] >= np.median(confidence[own])] if len(own) else own
        confident[c] = (against[own].sum() + CLASS_PRIOR * risk) / (len(own) + CLASS_PRIOR)
        labeled[c] = (against[labels == c].sum() + CLASS_PRIOR * risk) / ((labels == c).sum() + CLASS_PRIOR)
    other = _others(probs, labels).argmax(1)
    of_rows += [np.log(one) for one in (confident[other], labeled[labels], confident[top])]
    return np.column_stack([*of_rows, *(np.full(n, one) for one in of_all)])


def twins_of(features: Array, labels: Array, groups: Array | None = None) -> Array:
    """How the labels of examples with equal features differ (N, R).

    For each label: the number of its twins, the examples with the same features; the share of them with the same label, and
    with their commonest label. For the data set: the number of distinct rows; the share of the examples that have twins; how
    often the labels of two twins differ, over all and in the purest third of the examples with twins.

    Args:
        features: A number for each example (N,), the same for equal features.
        labels: Class indices (N,).
        groups: Group of each example (N,); examples of one group are not twins. None: all differ.
    """
    n, (_, row) = len(labels), np.unique(features, return_inverse=True)
    counts = np.zeros((row.max() + 1, labels.max() + 1))
    np.add.at(counts, (row, labels), 1)
    others = counts[row]
    if groups is None:
        others[np.arange(n), labels] -= 1  # counts among its twins only
    else:
        _, own = np.unique(np.stack([row, groups]), axis=1, return_inverse=True)
        siblings = np.zeros((own.max() + 1, counts.shape[1]))
        np.add.at(siblings, (own.ravel(), labels), 1)
        others -= siblings[own.ravel()]
    twins, same = others.sum(1), others[np.arange(n), labels]
    apart = np.bincount(row, twins - same) / np.bincount(row, twins).clip(1)  # chance that two twins differ
    have = twins > 0
    differ = apart[row[have]]
    purest = np.sort(differ)[: -(-len(differ) // 3)]
    of_rows = [np.log1p(twins), (same + 0.5) / (twins + 1), (others.max(1) + 0.5) / (twins + 1)]
    of_all = [
        np.log(len(counts) / n),
        have.mean(),
        differ.mean() if len(differ) else 0.0,
        purest.mean() if len(differ) else 0.0,
    ]
    return np.column_stack([*of_rows, *(np.full(n, one) for one in of_all)])


def equal_rows(features: Array) -> Array:
    """Group of each row of features (N, D), equal for equal rows (N,)."""
    rows = np.ascontiguousarray(features + 0.0)  # −0 becomes 0
    groups: Array = np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel(), return_inverse=True)[1]
    return groups


def _share(found: Array) -> float:
    """The share of True, half an example added on each side."""
    return float((found.sum() + 0.5) / (len(found) + 1))


def _risk_nearby(against: Array, order: Array) -> Array:
    """The share of contradictions (N,) among the neighbors of each example in this order (N,), excluding the example."""
    n, sorted_ = len(order), against[order].astype(float)
    width = min(n - 1, max(LEAST_WINDOW, int(WINDOW * n)))
    first = np.clip(np.arange(n) - width // 2, 0, n - width - 1)
    sums = np.concatenate([[0.0], np.cumsum(sorted_)])
    near = np.empty(n)
    near[order] = (sums[first + width + 1] - sums[first] - sorted_ + 0.5) / (width + 1)
    return near


def _others(probs: Array, labels: Array) -> Array:
    """Probabilities (N, K) with −1 for the given class."""
    others = probs.copy()
    others[np.arange(len(labels)), labels] = -1
    return others


def _margin(probs: Array, labels: Array, other: Array) -> Array:
    """log p_given − log p_other (N,)."""
    rows = np.arange(len(labels))
    margin: Array = np.log(probs[rows, labels].clip(1e-6)) - np.log(probs[rows, other].clip(1e-6))
    return margin


def log_odds(p: Array, least: float) -> Array:
    """log p/(1 − p), with p clipped to this distance from 0 and 1."""
    p = p.clip(least, 1 - least)
    odds: Array = np.log(p / (1 - p))
    return odds


@cache
def networks(kind: str) -> dict[str, Any]:
    """R networks of a kind (`KINDS`, `FEW`): mean and deviation of the inputs (I,), weights (R, out, in), biases (R, out)."""
    held = json.loads(files(__package__).joinpath(WEIGHTS).read_text(encoding="utf-8"))
    if tuple(held["signs"]) != SIGNS:
        raise RuntimeError(f"{WEIGHTS} was trained on other signs: run benchmarks/train_judge.py again")
    return {name: np.array(value) for name, value in held[kind].items() if name in ("mean", "deviation") or "_" in name}
