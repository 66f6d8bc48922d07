"""Finding wrong labels, second half: detectors compared on the outputs that `wrong_labels_train.py` saved.

    MOHS_DATA=... python benchmarks/wrong_labels_score.py --outputs FOLDER [--out results/wrong_labels.csv]

For every file FOLDER/<set>-<seed>.npz: average precision, AUROC and precision at the true count of wrong labels, for
`p_mislabeled` of `mohs.verdict`, for AUM (as its authors compute it, on the training steps of cross-entropy) and for
cleanlab's scores on five folds, with the precision and recall of what each flags, and the calibration of ours.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

import mohs
from mohs.hardness.table import make_table

from cifar import images

CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def our_table(saved: dict[str, np.ndarray], run: str) -> pa.Table:
    """What a run said of the training set, as a hardness table."""
    given = torch.from_numpy(saved["given"].astype(np.int64))
    table = mohs.score_logits(torch.from_numpy(saved[f"{run}_logits"].astype(np.float32)), given)
    columns = {name: table.column(name) for name in table.column_names if name != "mohs"}
    votes = saved[f"{run}_neighbors"].astype(np.float64)
    columns["neighbors"] = votes[np.arange(len(given)), given.numpy()] / votes.sum(1)
    for name in ("aum", "mean_margin", "mean_confidence", "variability"):
        columns[name] = saved[f"{run}_{name}_steps"].astype(np.float64)
    return make_table(columns)


def calibration_error(p: np.ndarray, wrong: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error in equal bins."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(sum(abs(p[place == b].mean() - wrong[place == b].mean()) * (place == b).mean() for b in np.unique(place)))


def measure(suspicion: np.ndarray, wrong: np.ndarray, flagged: np.ndarray | None = None) -> dict[str, float]:
    """How well suspicion ranks the wrong labels; with a set of flagged examples, how right and how complete that is."""
    top = np.argsort(-suspicion)[: wrong.sum()]
    told = {
        "ap": average_precision_score(wrong, suspicion),
        "auroc": roc_auc_score(wrong, suspicion),
        "precision_at_count": wrong[top].mean(),
    }
    if flagged is not None:
        told |= {"precision": wrong[flagged].mean(), "recall": (wrong & flagged).sum() / wrong.sum()}
    return {name: round(float(value), 4) for name, value in told.items()}


def detectors(saved: dict[str, np.ndarray], wrong: np.ndarray) -> Iterator[tuple[str, dict[str, float]]]:
    given = saved["given"].astype(np.int64)
    p = mohs.verdict(our_table(saved, "gce")).column("p_mislabeled").to_numpy()
    yield "mohs: p_mislabeled (GCE)", measure(p, wrong, p > 0.5) | {"calibration_error": round(calibration_error(p, wrong), 4)}
    plain = mohs.verdict(our_table(saved, "ce"), by="aum").column("p_mislabeled").to_numpy()
    error = {"calibration_error": round(calibration_error(plain, wrong), 4)}
    yield "mohs: p_mislabeled by aum (cross-entropy)", measure(plain, wrong, plain > 0.5) | error
    yield "AUM (cross-entropy)", measure(-saved["ce_aum_steps"].astype(np.float64), wrong)
    yield "AUM (GCE)", measure(-saved["gce_aum_steps"].astype(np.float64), wrong)
    probs = softmax(saved["folds_logits"].astype(np.float64), axis=1)
    flagged = find_label_issues(given, probs)
    for method in CLEANLAB:
        adjusted = method != "confidence_weighted_entropy"
        quality = get_label_quality_scores(given, probs, method=method, adjust_pred_probs=False)
        yield f"cleanlab, five folds: {method}", measure(-quality, wrong, flagged if adjusted else None)


def margins(saved: dict[str, np.ndarray], run: str) -> np.ndarray:
    """The given label's log-odds by a run's saved logits (N,)."""
    return mohs.margin(
        torch.from_numpy(saved[f"{run}_logits"].astype(np.float64)), torch.from_numpy(saved["given"].astype(np.int64))
    ).numpy()


def slope(m: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """The slope, a median |m| being the unit, of the logistic curve that fits P(wrong) best: what verdict's 4 stands for."""
    unit = m / np.median(np.abs(m))
    return {"slope": round(-float(LogisticRegression(C=1e6).fit(unit[:, None], wrong).coef_[0, 0]), 2)}


def trials(saved: dict[str, np.ndarray], wrong: np.ndarray) -> Iterator[tuple[str, dict[str, float]]]:
    """What else was tried, for the record: other readings of the same runs, and the margin joined with them."""
    m = margins(saved, "gce")
    yield "trial: margin (GCE)", measure(-m, wrong) | slope(m, wrong)
    plain = margins(saved, "ce")
    yield "trial: margin (cross-entropy)", measure(-plain, wrong) | slope(plain, wrong)
    bearing = saved["gce_neighbors"].astype(np.float64)[np.arange(len(m)), saved["given"]]
    near = np.log((bearing + 0.5) / (saved["gce_neighbors"][0].sum() - bearing + 0.5))
    yield "trial: margin + half the neighbors' log-odds", measure(-(m + 0.5 * near), wrong)
    yield "trial: margin + half the out-of-fold margin", measure(-(m + 0.5 * margins(saved, "folds")), wrong)
    yield "trial: mean AVH (GCE)", measure(saved["gce_mean_avh"].astype(np.float64), wrong)
    if "second_logits" in saved:
        yield "trial: margin + margin of a second training", measure(-(m + margins(saved, "second")), wrong)


MEASURES = ("ap", "auroc", "precision_at_count", "precision", "recall", "calibration_error")


def summary(rows: list[dict[str, Any]]) -> str:
    """A table for people: mean ± SD over the seeds, by set and detector."""
    lines = [
        "| set | detector | " + " | ".join(name.replace("_", " ") for name in MEASURES) + " |",
        "|---|---|" + "---|" * len(MEASURES),
    ]
    for kind, name in dict.fromkeys((row["set"], row["detector"]) for row in rows):
        mine = [row for row in rows if (row["set"], row["detector"]) == (kind, name)]
        cells = [[row[measure] for row in mine if measure in row] for measure in MEASURES]
        told = [f"{np.mean(cell):.3f} ± {np.std(cell, ddof=1):.3f}" if len(cell) > 1 else "" for cell in cells]
        lines.append(f"| {kind} | {name} | {' | '.join(told)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    _, clean = images("train")
    rows = []
    for path in sorted(asked.outputs.glob("*-[0-9].npz")):
        kind, _, seed = path.stem.rpartition("-")
        if kind not in ("worse", "aggre", "sym20"):
            continue
        saved = dict(np.load(path))
        wrong = saved["given"] != clean[: len(saved["given"])]
        accuracy = {run: round(float(saved[f"{run}_test_accuracy"]), 4) for run in ("ce", "gce")}
        for name, told in [*detectors(saved, wrong), *trials(saved, wrong)]:
            rows.append({"set": kind, "seed": seed, "wrong": round(float(wrong.mean()), 4), "detector": name, **told, **accuracy})
        print(f"{path.stem} done", flush=True)
    print(summary(rows))
    if asked.out:
        names = list(dict.fromkeys(key for row in rows for key in row))
        with asked.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
