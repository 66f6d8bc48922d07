"""The numbers behind the charts of labels and hardness: counts and histograms, never point by point."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mohs.audit.result import AuditResult
from mohs.hardness.scores import PREFERENCE, SCORES
from mohs.hardness.table import column
from mohs.hardness.verdict import VERDICTS
from mohs.report.data_map import verdict_numbers
from mohs.report.figure import Figure, cut_words, distinct, pair_rows

BINS, LISTED = 40, 30
NARROWEST = 1e-9  # half the width of a histogram of equal values


def wrong_pairs(findings: AuditResult) -> Figure:
    """Given label × suggested label, over the examples that are probably mislabeled."""
    table = findings.table
    pairs: Counter[tuple[Any, Any]] = Counter()
    if "suggested_label" in table.column_names:
        given, new = (table.column(name).to_pylist() for name in ("label", "suggested_label"))
        pairs.update((a, b) for a, b in zip(given, new, strict=True) if a != b and a is not None and b is not None)
    meaning = f"How many examples with the label of the row probably belong to the class of the column.{cut_words(pairs)}"
    return Figure(
        "pairs", "noise", "heat_map", "Which class is taken for which", meaning, pair_rows(pairs, ("given", "suggested"))
    )


def class_shares(findings: AuditResult) -> Figure:
    """For each class, the share of its labels with each verdict that is not easy."""
    labels = findings.table.column("label").to_pylist()
    verdicts = verdict_numbers(findings.table)
    totals = Counter(label for label in labels if label is not None)
    counts = Counter(zip(labels, verdicts.tolist(), strict=True))
    wrong = VERDICTS.index("mislabeled")
    worst = sorted(totals, key=lambda label: (-counts[label, wrong] / totals[label], str(label)))[:LISTED]
    rows = [
        {
            "class": name,
            "verdict": VERDICTS[number],
            "share": counts[label, number] / totals[label],
            "examples": counts[label, number],
        }
        for name, label in zip(distinct(worst), worst, strict=True)
        for number in (wrong, VERDICTS.index("ambiguous"), VERDICTS.index("hard"))
    ]
    some = f"The {LISTED} classes with most wrong labels. " if len(totals) > LISTED else ""
    meaning = (
        f"{some}Of the examples that bear each label, the share that is not easy; the class with most wrong labels stands first."
    )
    return Figure("classes", "noise", "class_bars", "Where the trouble lies, by class", meaning, rows)


def grades(findings: AuditResult) -> Figure | None:
    """How the verdicts lie over the grades 1 to 10."""
    if "mohs" not in findings.table.column_names:
        return None
    counts = Counter(zip(findings.table.column("mohs").to_pylist(), verdict_numbers(findings.table).tolist(), strict=True))
    rows = [{"grade": g, "verdict": name, "examples": counts[g, i]} for g in range(1, 11) for i, name in enumerate(VERDICTS)]
    by = next(
        (SCORES[name].meaning for name in PREFERENCE if SCORES[name].column in findings.table.column_names),
        "they are the hardest",
    )
    meaning = f"Each grade holds a tenth of the examples, 1 the softest, 10 the hardest: {by}. Colors are verdicts."
    return Figure("grades", "hardness", "grade_bars", "The Mohs grade", meaning, [row for row in rows if row["examples"]])


def margins(findings: AuditResult) -> Figure | None:
    """Histogram of the margin by verdict; the outermost hundredth on each side is drawn into the last bin."""
    if "margin" not in findings.table.column_names:
        return None
    m = column(findings.table, "margin").astype(float)
    verdicts = verdict_numbers(findings.table)
    known = np.isfinite(m) & (verdicts < len(VERDICTS))
    if not known.any():
        return None
    edges = _edges(m[known])
    at = np.digitize(m, edges[1:-1])
    counts = Counter(zip(at[known].tolist(), verdicts[known].tolist(), strict=True))
    rows = [
        {"from": float(edges[b]), "to": float(edges[b + 1]), "verdict": VERDICTS[v], "examples": count}
        for (b, v), count in sorted(counts.items())
    ]
    meaning = "The margin is the log-odds that the model gives the label. Left of 0 it believes in some other class."
    return Figure("margins", "hardness", "margin_bars", "How sure the model is of each label", meaning, rows)


def _edges(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    low, high = np.quantile(values, [0.01, 0.99])
    low, high = min(low, -NARROWEST), max(high, NARROWEST)
    width = (high - low) / BINS
    edges: np.ndarray[Any, Any] = np.arange(np.floor(low / width), np.ceil(high / width) + 1) * width  # 0 is an edge
    return edges
