"""The numbers behind every chart of the report, each with a title and a sentence on how to read it.

Figures hold counts, histograms and means, never one row per example, so that the page stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mohs._core.plain_text import shorten
from mohs.audit.result import AuditResult
from mohs.audit.totals import DOUBT_BINS, Counts
from mohs.hardness.scores import PREFERENCE, SCORES
from mohs.hardness.table import VERDICTS, column
from mohs.report.summary import has_numbers
from mohs.report.verdict_labels import shown_order

PAIRED, LISTED = 20, 30  # maximum number of classes in a table of pairs and in a list
SHARES, STEPS = 25, 101  # bins of probabilities; points of an emphasis curve
COURSES = {
    "norm": ("Feature length", "Longer feature vectors mean a more confident model. Easy examples grow first."),
    "avh": (
        "Angular hardness (AVH)",
        "Angle between an example's features and its label's weights, relative to the angles to all classes. It falls as the "
        "example is learned.",
    ),
    "accuracy": (
        "Accuracy by hardness",
        "Share of examples predicted as labeled. A hard group that stays low contains wrong labels, or examples that "
        "this model cannot learn.",
    ),
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One chart: its data, how to read it, and the function of `drawings` that draws it."""

    key: str
    section: str
    drawn_by: str
    title: str
    meaning: str
    rows: Rows = field(repr=False)


def figures(result: AuditResult) -> list[Figure]:
    """Every figure the result has numbers for, in the order of the page."""
    by_class = () if has_numbers(result) else (wrong_pairs(result), class_shares(result), doubts(result))
    labels = (*by_class, grades(result), margins(result))
    training = (emphasis_figure(result), *course_figures(result), *history_figures(result))
    made = (*labels, *training, *held_out_figures(result))
    return [figure for figure in made if figure is not None and figure.rows]


def wrong_pairs(result: AuditResult) -> Figure:
    """Given label × suggested label, over the examples that are probably mislabeled."""
    pairs = result.totals.pairs
    meaning = f"Number of probably wrong labels: given label by row, suggested label by column.{_cut(pairs)}"
    return Figure("pairs", "noise", "heat_map", "Which labels are confused", meaning, pair_rows(pairs, ("given", "suggested")))


def class_shares(result: AuditResult) -> Figure:
    """For each class, the share of its labels with each verdict other than easy."""
    counts = result.totals.verdicts
    totals: Counter[Any] = Counter()
    for (label, _), number in counts.items():
        totals[label] += number
    worst = sorted(totals.keys() - {None}, key=lambda label: (-counts[label, "mislabeled"] / totals[label], str(label)))[:LISTED]
    rows = [
        {"class": name, "verdict": verdict, "share": count / totals[label], "examples": count}
        for name, label in zip(distinct(worst), worst, strict=True)
        for verdict in shown_order()
        if verdict != "easy"
        for count in [counts[label, verdict]]
    ]
    some = f"The {LISTED} classes with the most wrong labels. " if len(totals) > LISTED else ""
    meaning = f"{some}Share of each class's examples that are not easy. The class with the most wrong labels comes first."
    return Figure("classes", "noise", "class_bars", "Verdicts by class", meaning, rows)


def doubts(result: AuditResult) -> Figure | None:
    """Histogram of p_mislabeled, over all examples of a table that is not shown whole."""
    if result.counted is None:
        return None
    numbers: Counter[int] = Counter()
    for (b, _), count in result.totals.doubts.items():
        numbers[b] += count
    meaning = "Probability that the label is wrong, by number of examples on a square-root scale, since most labels are right."
    rows = [{"from": b / DOUBT_BINS, "to": (b + 1) / DOUBT_BINS, "examples": numbers[b]} for b in sorted(numbers)]
    return Figure("doubts", "noise", "doubt_bars", "How doubtful the labels are", meaning, rows)


def grades(result: AuditResult) -> Figure | None:
    """Verdicts within the grades 1 to 10."""
    counts = result.totals.grades
    rows = [{"grade": g, "verdict": name, "examples": counts[g, name]} for g in range(1, 11) for name in VERDICTS]
    scored = (SCORES[name].meaning for name in PREFERENCE if SCORES[name].column in result.table.column_names)
    by = next(scored, "")
    meaning = f"Ten groups of equal size, from 1 (easiest) to 10 (hardest{': ' if by else ''}{by}). Colors show verdicts."
    return Figure("grades", "hardness", "grade_bars", "Hardness grades", meaning, [row for row in rows if row["examples"]])


def margins(result: AuditResult) -> Figure | None:
    """Histogram of the margin by verdict; the outermost hundredth on each side falls into the last bin."""
    meaning = (
        "The margin is the model's log-odds that the given label is right: at 0 it is 50% sure, at +3 about 95%, at −3 about 5%."
    )
    rows = _histogram(result.totals.margins, result.totals.edges)
    return Figure("margins", "hardness", "margin_bars", "How sure the model is of each label", meaning, rows)


def _histogram(counts: Counts, edges: np.ndarray[Any, Any]) -> Rows:
    """Bins with their edges, in order, and the verdicts in the order of VERDICTS."""
    return [
        {"from": float(edges[b]), "to": float(edges[b + 1]), "verdict": verdict, "examples": count}
        for (b, verdict), count in sorted(counts.items(), key=lambda one: (one[0][0], VERDICTS.index(one[0][1])))
    ]


def emphasis_figure(result: AuditResult) -> Figure | None:
    """Emphasis of the chosen loss, relative to its maximum, over a histogram of the label's probability."""
    name = next((name for name in ("confidence", "mean_confidence") if name in result.table.column_names), None)
    if not result.chosen or name is None:
        return None
    p = column(result.table, name).astype(float)
    share, edges = np.histogram(p[np.isfinite(p)], bins=SHARES, range=(0, 1))
    curves = {loss: _curve(loss) for loss in dict.fromkeys((result.chosen, "cross_entropy"))}
    if curves[result.chosen] is None:
        return None
    rows: Rows = [
        {"part": "examples", "p": float(low), "to": float(high), "value": float(n) / max(int(share.sum()), 1)}
        for low, high, n in zip(edges[:-1], edges[1:], share, strict=True)
    ]
    for loss, curve in curves.items():
        rows += [{"part": loss, "p": p, "to": None, "value": w} for p, w in curve or []]
    meaning = (
        "Bars: the probability the model gives to the given labels. Lines: how strongly the loss pulls on an example with that "
        "probability, relative to its maximum. A loss whose line is low near 0 mostly ignores wrong labels."
    )
    return Figure("emphasis", "training", "emphasis_lines", f"Emphasis of {shorten(result.chosen)}", meaning, rows)


def course_figures(result: AuditResult) -> Iterator[Figure]:
    """Means per epoch and hardness group, as in the AVH paper's Figure 4."""
    for name, (title, meaning) in COURSES.items():
        if result.dynamics is None or name not in result.dynamics:
            continue
        epochs, values = np.asarray(result.dynamics["epoch"]), np.asarray(result.dynamics[name], float)  # (E,), (E, bins)
        rows: Rows = [
            {"epoch": int(epoch), "bin": b + 1, "value": float(values[e, b])}
            for e, epoch in enumerate(epochs)
            for b in range(values.shape[1])
            if np.isfinite(values[e, b])
        ]
        yield Figure(name, "training", "course_lines", title, f"{meaning} Group {values.shape[1]} is the hardest.", rows)


def history_figures(result: AuditResult) -> Iterator[Figure]:
    """Loss and accuracy per epoch."""
    meaning = "Mean training loss of each epoch."
    yield Figure("loss", "training", "history_lines", "Loss during training", meaning, _series(result, "loss"))
    meaning = "How often the prediction is the given label. A model that reaches 100% on noisy labels has memorized wrong ones."
    yield Figure("accuracies", "training", "history_lines", "Accuracy during training", meaning, _series(result, "accuracy"))


def held_out_figures(result: AuditResult) -> Iterator[Figure]:
    """Calibration and confusion on held-out examples."""
    if result.held_out is None:
        return
    from mohs.evaluate.calibration import reliability

    probs, labels = (np.asarray(part) for part in result.held_out)
    found = reliability(probs, labels)
    columns = (part.tolist() for part in (found.confidence, found.accuracy, found.share))
    rows = [{"confidence": c, "accuracy": a, "share": s} for c, a, s in zip(*columns, strict=True) if s > 0]
    error = float((found.share * found.gaps.abs()).sum())
    meaning = (
        "When the model is 80% sure, is it right 80% of the time? Points on the dashed line: yes. Expected calibration error "
        f"{error:.3f} over {len(labels):,} examples."
    )
    yield Figure("reliability", "held_out", "reliability_dots", "Calibration", meaning, rows)
    guessed = probs.argmax(1)
    named = ((result.classes[a], result.classes[b]) for a, b in zip(labels.tolist(), guessed.tolist(), strict=True) if a != b)
    pairs = Counter(named)
    right = float((guessed == labels).mean())
    meaning = f"Mistakes only: label by row, prediction by column. {right:.1%} of {len(labels):,} predictions are right."
    rows = pair_rows(pairs, ("label", "predicted"))
    yield Figure("confusion", "held_out", "heat_map", "Confusion matrix", f"{meaning}{_cut(pairs)}", rows)


def pair_rows(pairs: Counter[tuple[Any, Any]], keys: tuple[str, str]) -> Rows:
    """All pairs of the classes in the most common ones, zeros included, so that the chart is square."""
    most: dict[Any, None] = {}
    for pair, _ in pairs.most_common():
        if len(most.keys() | set(pair)) > PAIRED:
            break
        most |= dict.fromkeys(pair)
    names = sorted(most, key=lambda name: (isinstance(name, str), name))
    shown = dict(zip(names, distinct(names), strict=True))
    return [{keys[0]: shown[a], keys[1]: shown[b], "examples": pairs[a, b]} for a in shown for b in shown]


def distinct(names: Sequence[Any]) -> list[str]:
    """Displayed names, numbered where two would look alike."""
    shown: list[str] = []
    for name in names:
        text = shorten(name, 28)
        shown.append(text if text not in shown else f"{text} ({len(shown)})")
    return shown


def _cut(pairs: Counter[tuple[Any, Any]]) -> str:
    """A sentence if not every class that occurs can be drawn."""
    number = len({name for pair in pairs for name in pair})
    return f" Only the classes of the most common pairs are drawn ({number:,} occur)." if number > PAIRED else ""


def _series(result: AuditResult, ending: str) -> Rows:
    rows: Rows = []
    for place, entry in enumerate(result.history):
        for name, value in entry.items():
            if name.endswith(ending) and isinstance(value, int | float) and np.isfinite(value):
                rows.append({"epoch": entry.get("epoch", place), "series": name.replace("_", " "), "value": float(value)})
    return rows


def _curve(loss: str) -> list[tuple[float, float]] | None:
    """w(p) over its maximum at STEPS values of p; None where the loss cannot be created from its name alone."""
    import torch

    from mohs._core.specs import parse_spec
    from mohs.emphasis import emphasis
    from mohs.losses import create_loss

    p = torch.linspace(0, 1, STEPS, dtype=torch.float64)
    try:
        name, fields = parse_spec(loss)
        w = emphasis(create_loss(name, **fields), p)
    except (ValueError, TypeError, RuntimeError):
        return None
    return list(zip(p.tolist(), (w / w.max().clamp_min(1e-12)).tolist(), strict=True))
