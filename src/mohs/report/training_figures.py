"""The numbers behind the charts of training: emphasis, dynamics by hardness, history, and what held-out examples say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mohs._core.plain_text import shorten
from mohs.audit.result import AuditResult
from mohs.hardness.table import column
from mohs.report.figure import Figure, Rows, cut_words, pair_rows

SHARES, STEPS = 25, 101  # bars and points of the emphasis
COURSE_WORDS = {
    "norm": ("Length of the features", "Longer features mean a surer model; soft examples grow first."),
    "avh": (
        "Angular visual hardness",
        "The angle to the label's weights against those to all classes; it falls as they are learned.",
    ),
    "accuracy": ("Share predicted as labeled", "Hard bins that never rise hold wrong labels, or what the model cannot learn."),
}


def emphasis_figure(findings: AuditResult) -> Figure | None:
    """The emphasis of the chosen loss, relative to its peak, over how often each probability of the label occurs."""
    name = next((name for name in ("confidence", "mean_confidence") if name in findings.table.column_names), None)
    if not findings.chosen or name is None:
        return None
    p = column(findings.table, name).astype(float)
    share, edges = np.histogram(p[np.isfinite(p)], bins=SHARES, range=(0, 1))
    curves = {text: _curve(text) for text in dict.fromkeys((findings.chosen, "cross_entropy"))}
    if curves[findings.chosen] is None:
        return None
    rows: Rows = [
        {"part": "examples", "p": float(low), "to": float(high), "value": float(n) / max(int(share.sum()), 1)}
        for low, high, n in zip(edges[:-1], edges[1:], share, strict=True)
    ]
    for text, curve in curves.items():
        rows += [{"part": text, "p": p, "to": None, "value": w} for p, w in curve or []]
    meaning = (
        "Bars: how probable the model finds the given labels. Lines: how hard the loss pulls on such an example, relative to its "
        "own peak. A loss that looks away from p near 0 leaves wrong labels alone."
    )
    return Figure("emphasis", "training", "emphasis_lines", f"What {shorten(findings.chosen)} pays attention to", meaning, rows)


def course_figures(findings: AuditResult) -> Iterator[Figure]:
    """Means by epoch and hardness bin, as the AVH paper's Figure 4, on the user's own data."""
    for name, (title, meaning) in COURSE_WORDS.items():
        if findings.dynamics is None or name not in findings.dynamics:
            continue
        epochs, values = np.asarray(findings.dynamics["epoch"]), np.asarray(findings.dynamics[name], float)  # (E,), (E, bins)
        rows: Rows = [
            {"epoch": int(epoch), "bin": b + 1, "value": float(values[e, b])}
            for e, epoch in enumerate(epochs)
            for b in range(values.shape[1])
            if np.isfinite(values[e, b])
        ]
        bins = f"Bin 1 is the softest, {values.shape[1]} the hardest."
        yield Figure(name, "training", "course_lines", title, f"{meaning} {bins}", rows)


def history_loss(findings: AuditResult) -> Figure:
    """Losses by epoch."""
    meaning = "The mean loss over each epoch, as it was minimized."
    return Figure("loss", "training", "history_lines", "Loss over training", meaning, _series(findings, "loss"))


def history_accuracy(findings: AuditResult) -> Figure:
    """Accuracies by epoch."""
    meaning = "How often the prediction was the given label; a model that reaches 1 on wrong labels has learned them by heart."
    return Figure("accuracies", "training", "history_lines", "Accuracy over training", meaning, _series(findings, "accuracy"))


def held_out_figures(findings: AuditResult) -> Iterator[Figure]:
    """Reliability and confusion on examples that were held out."""
    if findings.held_out is None:
        return
    from mohs.evaluate.calibration import reliability

    probs, labels = (np.asarray(part) for part in findings.held_out)
    found = reliability(probs, labels)
    columns = (part.tolist() for part in (found.confidence, found.accuracy, found.share))
    rows = [{"confidence": c, "accuracy": a, "share": s} for c, a, s in zip(*columns, strict=True) if s > 0]
    error = float((found.share * found.gaps.abs()).sum())
    meaning = f"Dots on the line: right as often as said. Expected calibration error {error:.3f} over {len(labels):,} examples."
    yield Figure("reliability", "held_out", "reliability_dots", "Is it right as often as it says?", meaning, rows)
    pairs = Counter(
        (findings.classes[a], findings.classes[b])
        for a, b in zip(labels.tolist(), probs.argmax(1).tolist(), strict=True)
        if a != b
    )
    right = float((probs.argmax(1) == labels).mean())
    meaning = f"Held-out mistakes: label by row, prediction by column. {right:.1%} of {len(labels):,} are right and not drawn."
    meaning += cut_words(pairs)
    yield Figure(
        "confusion", "held_out", "heat_map", "What is mistaken for what", meaning, pair_rows(pairs, ("label", "predicted"))
    )


def _series(findings: AuditResult, ending: str) -> Rows:
    rows: Rows = []
    for place, entry in enumerate(findings.history):
        for name, value in entry.items():
            if name.endswith(ending) and isinstance(value, int | float) and np.isfinite(value):
                rows.append({"epoch": entry.get("epoch", place), "series": name.replace("_", " "), "value": float(value)})
    return rows


def _curve(text: str) -> list[tuple[float, float]] | None:
    """w(p) over its peak at STEPS values of p; None where the loss cannot be made of its name alone."""
    import torch

    from mohs._core.specs import parse_spec
    from mohs.emphasis import emphasis
    from mohs.losses import create_loss

    p = torch.linspace(0, 1, STEPS, dtype=torch.float64)
    try:
        name, fields = parse_spec(text)
        w = emphasis(create_loss(name, **fields), p)
    except (ValueError, TypeError, RuntimeError):
        return None
    return list(zip(p.tolist(), (w / w.max().clamp_min(1e-12)).tolist(), strict=True))
