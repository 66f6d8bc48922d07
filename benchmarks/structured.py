"""Wrong labels of several classes, tokens, pixels and regression targets: `mohs` beside cleanlab, by the same probabilities.

    python benchmarks/structured.py --out results/structured.csv

Errors are made on purpose, so the truth is known. A model that is fitted in folds to the given labels makes the probabilities (or
predictions), and both packages get the same ones. Average precision counts examples with at least one wrong label, and labels.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_diabetes, load_digits, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import mohs
from mohs._core.code_version import code_version

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
COLUMNS = ("task", "setting", "seed", "wrong", "counted", "cleanlab", "mohs", "git")


def several_classes(seed: int, *, data: str, missing: float, extra: float, model: Any) -> Row:
    """Examples with several classes: made features, or two digits side by side."""
    from cleanlab.multilabel_classification import get_label_quality_scores

    rng = np.random.default_rng(seed)
    if data == "digits":
        pixels, digit = load_digits(return_X_y=True)
        pair = rng.integers(len(digit), size=(1500, 2))
        x, truth = pixels[pair].reshape(1500, -1), np.zeros((1500, 10), int)
        truth[np.arange(1500)[:, None], digit[pair]] = 1
    else:
        x = rng.normal(size=(1000, 20))
        z = x @ rng.normal(size=(20, 8)) * 0.7 + rng.normal(size=8) * 0.5 - 1.5
        truth = (rng.random(z.shape) < 1 / (1 + np.exp(-3 * z))).astype(int)
    drawn = rng.random(truth.shape)
    given = np.where(truth == 1, drawn >= missing, drawn < extra).astype(int)
    probs = np.stack([cross_val_predict(model(), x, y, method="predict_proba")[:, 1] for y in given.T], 1)
    judgment = mohs.judge_labels(probs, given)
    table = mohs.verdict(mohs.score_logits(np.log(probs.clip(1e-6) / (1 - probs).clip(1e-6)), given), judgment=judgment)
    theirs = get_label_quality_scores([np.flatnonzero(row).tolist() for row in given], probs)
    doubt = {"example": -theirs, "label": -np.where(given == 1, probs, 1 - probs)}
    return {"wrong": truth != given, "cleanlab": doubt, "mohs": _mohs(table, judgment)}


def tokens(seed: int, *, noise: float, share: float) -> Row:
    """Sentences of tokens in four classes, most of them outside of names; a logistic regression on noisy vectors."""
    from cleanlab.token_classification.rank import get_label_quality_scores

    rng = np.random.default_rng(seed)
    means = rng.normal(size=(4, 8))
    truth = [rng.choice(4, size=rng.integers(4, 30), p=[0.76, 0.1, 0.08, 0.06]) for _ in range(400)]
    given = [y.copy() for y in truth]
    for y in given:
        if rng.random() < share:
            at = rng.integers(len(y), size=rng.integers(1, 3))
            y[at] = (y[at] + rng.integers(1, 4, len(at))) % 4
    lengths = [len(y) for y in truth]
    x = means[np.concatenate(truth)] + noise * rng.normal(size=(sum(lengths), 8))
    every = cross_val_predict(LogisticRegression(max_iter=200), x, np.concatenate(given), method="predict_proba")
    probs = np.split(every, np.cumsum(lengths)[:-1])
    judgment = mohs.judge_labels(probs, given)
    table = mohs.verdict(mohs.score_logits([np.log(p.clip(1e-9)) for p in probs], given), judgment=judgment)
    theirs, parts = get_label_quality_scores([y.tolist() for y in given], probs)
    wrong = [a != b for a, b in zip(truth, given, strict=True)]
    doubt = {"example": -theirs, "label": -np.concatenate(parts)}
    return {"wrong": wrong, "cleanlab": doubt, "mohs": _mohs(table, judgment)}


def pixels(seed: int, *, error: str, noise: float) -> Row:
    """Images of 32 × 32 with four objects of three classes, of which one is left out, of another class, or shifted."""
    from cleanlab.segmentation.rank import get_label_quality_scores

    rng, (rows, columns) = np.random.default_rng(seed), np.mgrid[:32, :32]
    truth, given = np.zeros((2, 100, 32, 32), int)
    for i in range(100):
        mask = np.zeros((32, 32), bool)
        for _ in range(4):
            (y, x), r = rng.uniform(4, 28, 2), rng.uniform(3, 8)
            round_ = (rows - y) ** 2 + (columns - x) ** 2 < r * r
            mask = round_ if rng.random() < 0.5 else (abs(rows - y) < r) & (abs(columns - x) < 0.7 * r)
            truth[i][mask] = rng.integers(1, 4)
        given[i] = truth[i]
        if rng.random() < 0.3:
            kind = truth[i][mask][0]
            given[i][mask] = kind % 3 + 1 if error == "other class" else 0
            if error == "shifted":
                given[i][np.roll(mask, tuple(rng.choice([-3, -2, 2, 3], 2)), (0, 1))] = kind
    x = rng.normal(size=(4, 6))[truth] + noise * rng.normal(size=(*truth.shape, 6))
    x = gaussian_filter(x, (0, 1, 1, 0))
    probs, fold = np.zeros((100, 4, 32, 32)), np.arange(100) % 5
    for f in range(5):
        model = LogisticRegression(max_iter=100).fit(x[fold != f].reshape(-1, 6)[::7], given[fold != f].ravel()[::7])
        probs[fold == f] = np.moveaxis(model.predict_proba(x[fold == f].reshape(-1, 6)).reshape(-1, 32, 32, 4), -1, 1)
    judgment = mohs.judge_labels(probs, given)
    table = mohs.verdict(mohs.score_logits(np.log(probs.clip(1e-9)), given), judgment=judgment)
    theirs, parts = get_label_quality_scores(given, probs, verbose=False)
    return {"wrong": truth != given, "cleanlab": {"example": -theirs, "label": -parts}, "mohs": _mohs(table, judgment)}


def targets(seed: int, *, data: str, error: str) -> Row:
    """A regression whose targets are exchanged with others, or moved by a standard deviation or two."""
    from cleanlab.regression.rank import get_label_quality_scores

    rng = np.random.default_rng(seed)
    model: Any = RandomForestRegressor(80, min_samples_leaf=3, random_state=0)
    if data == "diabetes":
        x, y = load_diabetes(return_X_y=True)
    elif data == "friedman":
        x, y = make_friedman1(600, noise=1.0, random_state=seed)
    elif data == "spread grows with the target":
        x = rng.uniform(size=(600, 5))
        mean = np.exp(2.5 * x[:, 0]) + 3 * x[:, 1]
        y = mean * (1 + 0.2 * rng.normal(size=600))
    else:
        x = rng.normal(size=(600, 8))
        y, model = x @ rng.normal(size=8) + 0.5 * rng.normal(size=600), RidgeCV()
    wrong = rng.random(len(y)) < 0.1
    moved = y + rng.choice([-1, 1], len(y)) * rng.uniform(0.7, 2, len(y)) * y.std()
    given = np.where(wrong, rng.permutation(y) if error == "exchanged" else moved, y)
    predicted = cross_val_predict(model, x, given)
    doubt = mohs.judge_targets(predicted, given).p_mislabeled
    theirs = -get_label_quality_scores(given, predicted)
    return {"wrong": wrong[:, None], "cleanlab": {"example": theirs}, "mohs": {"example": doubt}}


def _mohs(table: Any, judgment: Any) -> dict[str, Array]:
    return {"example": mohs.by_example(table).column("p_mislabeled").to_numpy(), "label": judgment.p_mislabeled}


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(100, min_samples_leaf=3, random_state=0)


def logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=300)


SETTINGS: list[tuple[str, str, Callable[..., Row], dict[str, Any]]] = [
    ("several classes", f"{data}, {word}, {name}", several_classes, {"data": data, "missing": m, "extra": e, "model": model})
    for data, name, model in (("made", "logistic regression", logistic), ("made", "forest", forest), ("digits", "forest", forest))
    for word, m, e in (("10 % missing, 3 % extra", 0.1, 0.03), ("20 % missing", 0.2, 0.0))
]
SETTINGS += [
    ("tokens", f"noise {noise:g}, errors in {share:.0%} of the sentences", tokens, {"noise": noise, "share": share})
    for noise, share in ((0.6, 0.15), (1.0, 0.15), (1.0, 0.4))
]
SETTINGS += [
    ("pixels", f"object {error}, noise {noise:g}", pixels, {"error": error, "noise": noise})
    for error in ("left out", "other class", "shifted")
    for noise in (1.0, 2.0)
]
SETTINGS += [
    ("targets", f"{data}, {error}", targets, {"data": data, "error": error})
    for data in ("linear", "friedman", "diabetes", "spread grows with the target")
    for error in ("exchanged", "moved")
]


def measured(seeds: int) -> Iterator[Row]:
    """One row per setting, seed and what is counted."""
    version = code_version()
    for task, setting, make, options in SETTINGS:
        for seed in range(seeds):
            made = make(seed, **options)
            wrong = {"example": np.array([np.any(one) for one in made["wrong"]])}
            wrong["label"] = np.concatenate([np.ravel(one) for one in made["wrong"]])
            for counted, theirs in made["cleanlab"].items():
                scored = {
                    name: round(float(average_precision_score(wrong[counted], np.ravel(doubt))), 4)
                    for name, doubt in (("cleanlab", theirs), ("mohs", made["mohs"][counted]))
                }
                share = round(float(wrong[counted].mean()), 4)
                row = {"task": task, "setting": setting, "seed": seed, "wrong": share, "counted": counted, **scored}
                print(row, flush=True)
                yield {**row, "git": version}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = list(measured(chosen.seeds))
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
