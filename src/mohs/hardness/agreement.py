"""How well a hardness score agrees with people: its correlation with the share of annotators who chose the label.

    agreement aᵢ = votes of example i for its label / all its votes          Human Selection Frequency, HSF

A hardness score correlates negatively with agreement. Signs are kept, except when scores are compared by strength: there each
score is multiplied by the sign of its correlation, which slightly overestimates the strength of an uncorrelated score.
Intervals are percentiles over resampled examples: 10,000 examples × 1,000 resamples take 0.3 s for Spearman, 0.2 s for
Pearson and 1.5 s for Kendall on one core. There are few annotators and most agree: half the panel of CIFAR-10H predicts the other
half with only ρ = 0.54, so even a perfect score stays far below 1.
Chen et al., "Angular Visual Hardness" (ICML 2020), section 4, Table 1 (bins) and Tables 2, 6-9 (`fisher_z`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mohs._core.validation import check_choice
from mohs.hardness.classes import encode
from mohs.hardness.correlation import KINDS, Array, ZTest, coefficients, fisher_z, resampled, steiger
from mohs.hardness.table import COLUMNS, column

__all__ = [
    "AVH_EDGES",
    "CIFAR10H_EDGES",
    "Bin",
    "Correlation",
    "Difference",
    "ZTest",
    "by_bins",
    "compare_scores",
    "correlation",
    "fisher_z",
    "human_agreement",
    "paired_bootstrap",
    "steiger",
]

CIFAR10H_EDGES = (0.0, 0.6, 0.8, 0.95, 1.0, 1.0)  # 44 % of CIFAR-10H's images are unanimous, hardly any is below 0.4
AVH_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Correlation:
    """A coefficient with its bootstrap interval; NaN where a side is constant or there are fewer than 3 examples."""

    value: float
    low: float
    high: float
    n: int
    kind: str


@dataclass(frozen=True)
class Bin:
    """The correlation among the examples whose agreement lies in low..high; their mean score is NaN if there are none."""

    low: float
    high: float
    mean_score: float
    correlation: Correlation


@dataclass(frozen=True)
class Difference:
    """Strength of the first correlation minus that of the second, with its interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float


def human_agreement(counts: Any, labels: Any, *, classes: Sequence[Any] | None = None) -> Array:
    """counts (N, K) of votes, labels (N,) of any kind -> the share of annotators who chose the label (N,)."""
    votes = np.asarray(counts, dtype=float)
    if votes.ndim != 2 or votes.shape[1] < 2:
        raise ValueError(f"counts must hold the votes for at least 2 classes per row, shape (N, K), got shape {votes.shape}")
    index, _ = encode(labels, num_classes=votes.shape[1], classes=classes)
    if len(index) != len(votes):
        raise ValueError(f"labels must have one entry for each of the {len(votes)} rows of counts, got {len(index)}")
    bad = ~((votes >= 0) & np.isfinite(votes)).all(1) | (votes.sum(1) == 0)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"counts[{row}] is {votes[row].tolist()}: each row needs votes of at least 0 with a sum above 0")
    share: Array = votes[np.arange(len(votes)), index] / votes.sum(1)
    return share


def correlation(
    score: Any, agreement: Any, *, kind: str = "spearman", interval: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Correlation:
    """The correlation of score (N,) with agreement (N,); kind: spearman, kendall or pearson; resamples=0: no interval."""
    _check_options(kind, interval, resamples)
    (x,), a = _paired({"score": score}, agreement)
    (value,) = coefficients([x], a, kind)
    if math.isnan(value):
        return Correlation(math.nan, math.nan, math.nan, len(a), kind)
    low, high = _percentiles(resampled([x], a, kind, resamples=resamples, seed=seed)[:, 0], interval)
    return Correlation(value, low, high, len(a), kind)


def by_bins(score: Any, agreement: Any, *, edges: Sequence[float] = CIFAR10H_EDGES, **options: Any) -> list[Bin]:
    """The correlation within bins of agreement, options as for `correlation`; NaN for a bin in which all annotators agree.

    Bins are (low, high], the first one [low, high]; an edge that is given twice makes a bin for that single value.
    """
    (x,), a = _paired({"score": score}, agreement)
    if len(edges) < 2 or any(low > high for low, high in pairwise(edges)):
        raise ValueError(f"edges must be at least two numbers in ascending order, got {list(edges)}")
    bins = []
    for i, (low, high) in enumerate(pairwise(edges)):
        taken = low < high and list(edges).count(high) > 1
        inside = ((a > low) | ((a == low) & (i == 0))) & ((a < high) if taken else (a <= high)) if low < high else a == low
        mean = float(x[inside].mean()) if inside.any() else math.nan
        bins.append(Bin(low, high, mean, correlation(x[inside], a[inside], **options)))
    return bins


def paired_bootstrap(
    score_a: Any,
    score_b: Any,
    agreement: Any,
    *,
    kind: str = "spearman",
    interval: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Difference:
    """The difference in strength between a's and b's correlation with agreement, over the same resampled examples."""
    _check_options(kind, interval, resamples)
    pair, a = _paired({"score_a": score_a, "score_b": score_b}, agreement)
    drawn = resampled(pair, a, kind, resamples=resamples, seed=seed)
    return _difference(coefficients(pair, a, kind), drawn, interval)


def compare_scores(
    scores: Any,
    agreement: Any,
    *,
    reference: str | None = None,
    kind: str = "spearman",
    interval: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A results table: one row per score, the strongest first, each against the reference (None: the first one given).

    scores: {name: (N,)}, or a hardness table, whose columns with a direction are used. A row has score, kind, n,
    value, low, high, strength; difference, difference_low, difference_high, p_bootstrap (of strengths, to the reference);
    and p_steiger and p_fisher, two-sided. The reference's own row has difference 0 and p 1.
    """
    _check_options(kind, interval, resamples)
    named = dict(scores) if isinstance(scores, Mapping) else _scores_of(scores)
    columns, a = _paired(named, agreement)
    names = list(named)
    reference = names[0] if reference is None else reference
    check_choice("reference", reference, names)
    base = names.index(reference)
    drawn = resampled(columns, a, kind, resamples=resamples, seed=seed)  # (R, scores): the same resamples for all
    values, between = coefficients(columns, a, kind), coefficients(columns, columns[base], kind)
    rows = []
    for i, name in enumerate(names):
        low, high = _percentiles(drawn[:, i], interval)
        row = {"score": name, "kind": kind, "n": len(a), "value": values[i], "low": low, "high": high, "strength": abs(values[i])}
        gain = _difference([values[i], values[base]], drawn[:, [i, base]], interval)
        row |= {"difference": gain.value, "difference_low": gain.low, "difference_high": gain.high, "p_bootstrap": gain.p}
        rows.append(row | _tests(values[i], values[base], between[i], len(a)))
    return sorted(rows, key=lambda row: -1.0 if math.isnan(row["strength"]) else row["strength"], reverse=True)


def _tests(value: float, base: float, between: float, n: int) -> dict[str, float]:
    """Steiger's and Fisher's two-sided p of the strengths; NaN where a correlation is undefined or perfect."""
    if n <= 3 or not (abs(value) < 1 and abs(base) < 1):
        return {"p_steiger": math.nan, "p_fisher": math.nan}
    between *= math.copysign(1.0, value) * math.copysign(1.0, base)  # correlation of the scores with their signs applied
    value, base = abs(value), abs(base)
    return {"p_steiger": steiger(value, base, between, n).p_two_sided, "p_fisher": fisher_z(value, base, n).p_two_sided}


def _difference(values: Sequence[float], drawn: Array, interval: float) -> Difference:
    turn = np.where(np.asarray(values) < 0, -1.0, 1.0)  # sign from the full sample: a resample must not flip it
    gaps = drawn @ (turn * [1.0, -1.0])
    gaps = gaps[~np.isnan(gaps)]
    tail = min((gaps <= 0).sum(), (gaps >= 0).sum())
    p = min(1.0, 2 * (1 + float(tail)) / (1 + len(gaps))) if len(gaps) else math.nan
    return Difference(abs(values[0]) - abs(values[1]), *_percentiles(gaps, interval), p)


def _percentiles(drawn: Array, interval: float) -> tuple[float, float]:
    kept = drawn[~np.isnan(drawn)]  # a resample of a short list can be constant
    if not len(kept):
        return math.nan, math.nan
    low, high = np.quantile(kept, [(1 - interval) / 2, (1 + interval) / 2])
    return float(low), float(high)


def _check_options(kind: str, interval: float, resamples: int) -> None:
    check_choice("kind", kind, list(KINDS))
    if not 0 < interval < 1:
        raise ValueError(f"interval must lie between 0 and 1, got {interval}")
    if resamples < 0:
        raise ValueError(f"resamples must be at least 0, got {resamples}")


def _scores_of(table: Any) -> dict[str, Array]:
    found = {name: column(table, name) for name in table.column_names if name in COLUMNS and COLUMNS[name].direction}
    if not found:
        raise ValueError(f"the table has no column that measures hardness; its columns: {', '.join(table.column_names)}")
    return found


def _paired(scores: Mapping[str, Any], agreement: Any) -> tuple[list[Array], Array]:
    if not scores:
        raise ValueError("scores is empty: give at least one name with its values")
    a = _numbers("agreement", agreement)
    columns = [_numbers(name, values) for name, values in scores.items()]
    for name, x in zip(scores, columns, strict=True):
        if len(x) != len(a):
            raise ValueError(f"{name} has {len(x)} entries and agreement {len(a)}: both must describe the same examples")
    return columns, a


def _numbers(name: str, values: Any) -> Array:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=float)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (N,), one number per example, got shape {array.shape}")
    missing = np.isnan(array)
    if missing.any():
        raise ValueError(f"{name}[{int(missing.argmax())}] is NaN: remove such examples from both")
    return array
