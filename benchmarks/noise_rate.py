"""How near `mohs.estimate_noise` comes to the truth: labels spoilt on purpose, and the labels that people gave.

    [MOHS_DATA=...] python benchmarks/noise_rate.py [--outputs FOLDER] [--out results/noise_rate.csv]

Reads digits (scikit-learn's) and, where MOHS_DATA names a folder that has them, 5,000 images each of MNIST and
Fashion-MNIST; spoils their labels, and estimates from five folds of logistic regression and from the dynamics of a small
network. With --outputs, also from what `wrong_labels_train.py` saved of CIFAR-10 (MOHS_DATA then holds the true labels).
Writes one row an estimate to the CSV file and the summary to the .md file beside it. Six minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from cleanlab.count import estimate_joint
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mohs
from mohs.hardness.noise_rate import NoiseEstimate
from mohs.hardness.table import make_table

from cifar import images
from machine import machine

CLASSES, EXAMPLES = 10, 5000
RATES = {"symmetric": (0.0, 0.05, 0.1, 0.2, 0.4), "next class": (0.05, 0.1, 0.2, 0.4), "hard examples": (0.1, 0.2)}
SEEDS = {"digits": 4, "mnist": 2, "fashion-mnist": 2}
STRENGTHS = {"digits": (0.1, 10.0), "mnist": (0.1,), "fashion-mnist": (0.1,)}  # of the regression; larger: less held back
FOLDS, DYNAMICS = "five folds", "dynamics"
Row = dict[str, object]
Array = np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=Path, help="the folder that wrong_labels_train.py wrote")
    parser.add_argument("--trained", default="not stated", help="hardware, versions and date of those trainings")
    parser.add_argument("--out", type=Path, default=Path("results/noise_rate.csv"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, (x, true) in datasets().items():
        rows += [*from_folds(name, x, true), *from_dynamics(name, x, true)]
        print(f"{name}: done", flush=True)
    if asked.outputs:
        rows += from_outputs(asked.outputs)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    asked.out.with_suffix(".md").write_text(summary(rows, asked.trained))


def datasets() -> dict[str, tuple[Array, Array]]:
    """Name -> examples (N, D) and true labels (N,)."""
    data = load_digits()
    found = {"digits": (data.data / 16, data.target)}
    for name in ("mnist", "fashion-mnist"):
        place = Path(os.environ.get("MOHS_DATA", "")) / name
        if (place / "t10k-images-idx3-ubyte.gz").exists():
            pixels = idx(place / "t10k-images-idx3-ubyte.gz")[:EXAMPLES].reshape(EXAMPLES, -1) / 255
            labels = idx(place / "t10k-labels-idx1-ubyte.gz")[:EXAMPLES].astype(int)
            found[name] = PCA(40, random_state=0).fit_transform(pixels), labels
    return found


def idx(path: Path) -> Array:
    """The array of a gzipped IDX file of bytes."""
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def spoil(true: Array, kind: str, rate: float, seed: int, doubted: Array) -> Array:
    """Labels of which this share is changed; "hard examples": those that a model on clean labels doubts, to its runner-up."""
    rng = np.random.default_rng(seed)
    if kind == "hard examples":
        doubt = 1.02 - doubted[np.arange(len(true)), true]
        rows = rng.choice(len(true), int(rate * len(true)), replace=False, p=doubt / doubt.sum())
        given = true.copy()
        given[rows] = np.where(np.eye(CLASSES, dtype=bool)[true[rows]], -1, doubted[rows]).argmax(1)
        return given
    moved = rng.random(len(true)) < rate
    step = rng.integers(1, CLASSES, len(true)) if kind == "symmetric" else 1
    return np.where(moved, (true + step) % CLASSES, true)


def out_of_fold(x: Array, given: Array, seed: int, strength: float = 0.1) -> Array:
    """Probabilities (N, K) from five folds of logistic regression."""
    probs = np.zeros((len(given), CLASSES))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(x, given):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000)).fit(x[train], given[train])
        probs[np.ix_(test, model.classes_)] = model.predict_proba(x[test])
    return probs


def from_folds(name: str, x: Array, true: Array) -> Iterator[Row]:
    doubted = out_of_fold(x, true, seed=99)
    for kind, rates in RATES.items():
        for rate, seed, strength in product(rates, range(SEEDS[name]), STRENGTHS[name]):
            given = spoil(true, kind, rate, seed, doubted)
            probs = out_of_fold(x, given, seed, strength)
            about = (name, FOLDS, f"logistic regression, C={strength:g}", kind, rate, seed)
            yield row(about, true, given, mohs.estimate_noise(given, probs), probs)


def from_dynamics(name: str, x: Array, true: Array) -> Iterator[Row]:
    scaled = (x - x.mean(0)) / (x.std(0) + 1e-6) if name == "digits" else x / x.std(0).max()
    inputs = torch.tensor(scaled, dtype=torch.float32)
    losses = {"cross-entropy": mohs.CrossEntropyLoss(), "GCE": mohs.GeneralizedCrossEntropyLoss(q=0.7)}
    for kind in ("symmetric", "next class"):
        for rate, seed, loss, epochs in product(RATES[kind], range(2), losses, (20, 60)):
            given = spoil(true, kind, rate, seed, true)
            estimate = mohs.estimate_noise(table=recorded(inputs, torch.tensor(given), losses[loss], epochs, seed))
            yield row((name, DYNAMICS, f"{loss}, {epochs} epochs", kind, rate, seed), true, given, estimate)


def recorded(x: torch.Tensor, labels: torch.Tensor, loss: torch.nn.Module, epochs: int, seed: int) -> object:
    """The record of a network with one hidden layer."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=epochs * -(-len(x) // 128))
    recorder = mohs.Recorder(len(x))
    for _ in range(epochs):
        for ids in torch.randperm(len(x)).split(128):
            logits = net(x[ids])
            optimizer.zero_grad()
            loss(logits, labels[ids]).backward()
            optimizer.step()
            cycle.step()
            recorder.update(ids, logits, labels[ids])
    return recorder.table()


def from_outputs(folder: Path) -> Iterator[Row]:
    """The estimates from saved outputs of CIFAR-10: out of five folds, and from the dynamics of two trainings."""
    true = images("train")[1]
    for path in sorted(folder.glob("*-[0-9].npz")):
        kind, seed = path.stem.rsplit("-", 1)
        if kind not in ("worse", "aggre", "sym20"):
            continue
        saved = np.load(path)
        given = saved["given"].astype(int)
        probs = softmax(saved["folds_logits"].astype(float), axis=1)
        yield row(("cifar10", FOLDS, "ResNet-9", kind, "", seed), true, given, mohs.estimate_noise(given, probs), probs)
        for run, loss in (("ce", "cross-entropy"), ("gce", "GCE")):
            columns = {name: saved[f"{run}_{name}"].astype(np.float32) for name in ("aum", "mean_confidence")}
            columns |= {"label": given, "predicted": saved[f"{run}_logits"].argmax(1)}
            about = ("cifar10", DYNAMICS, f"ResNet-9, {loss}", kind, "", seed)
            yield row(about, true, given, mohs.estimate_noise(table=make_table(columns)))


def row(about: tuple[object, ...], true: Array, given: Array, estimate: NoiseEstimate, probs: Array | None = None) -> Row:
    wrong = float((true != given).mean())
    joint = "" if probs is None else round(float(1 - np.trace(estimate_joint(given, probs))), 4)
    said = {name: round(getattr(estimate, name), 4) for name in ("rate", "low", "high", "disagreement")}
    head = dict(zip(("data", "source", "setting", "noise", "asked", "seed"), about, strict=True)) | {"n": len(true)}
    holds = estimate.low <= wrong <= estimate.high
    return head | {"wrong": round(wrong, 4), **said, "kind": estimate.kind, "holds": int(holds), "confident_joint": joint}


def summary(rows: list[Row], trained: str) -> str:
    about = machine()
    people = [r for r in rows if r["data"] == "cifar10"]
    seen = ", ".join(f"{key} {about[key]}" for key in ("cpu", "torch", "mohs", "commit", "date"))
    return f"""# The noise estimate against the truth

{len(rows)} estimates of `mohs.estimate_noise`, one row each in `noise_rate.csv`; {seen}.
Repeat: `python benchmarks/noise_rate.py` (`MOHS_DATA` for all but digits; `--outputs FOLDER` for CIFAR-10, from
`wrong_labels_train.py`). Joint: cleanlab's confident joint on the same folds. Held: 95 % intervals with the truth inside.

{cifar_part(people, trained) if people else ""}## Labels spoilt on purpose

{spoilt_table([r for r in rows if r["data"] != "cifar10"])}

Error: estimate less truth. Hard examples: labels changed where a model on clean labels is in doubt, to its runner-up.
"""


def cifar_part(rows: list[Row], trained: str) -> str:
    lines = ["| labels | source | wrong | estimate | intervals | held | kind | joint |", "|---" * 8 + "|"]
    for (noise, *source), group in grouped(rows, lambda r: (r["noise"], r["source"], r["setting"])).items():
        rates, low, high = ([r[key] for r in group] for key in ("rate", "low", "high"))
        kinds = ", ".join(dict.fromkeys(r["kind"] for r in group))
        lines.append(
            f"| {noise} | {', '.join(source)} | {np.mean([r['wrong'] for r in group]):.3f} "
            f"| {min(rates):.3f} to {max(rates):.3f} | {min(low):.3f} to {max(high):.3f} "
            f"| {sum(r['holds'] for r in group)} of {len(group)} "
            f"| {kinds} | {joint_mean(group, lambda r: r['confident_joint'])} |"
        )
    table = "\n".join(lines)
    return f"""## CIFAR-10, 50,000 labels: people's (CIFAR-10N's worse and aggre) and 20 % symmetric

{table}

Networks: {trained}. Estimate: lowest to highest of the seeds; intervals: lowest low to highest high. People err on the
images that a network finds hard as well, and anchors are the ones it finds easy: out of folds their rate is read too low.
Two settings of the estimate, the purer anchors at the interval's low end and the third that mean confidence must stay
below, were chosen with these figures in view: for them this table is no independent test.

"""


def spoilt_table(rows: list[Row]) -> str:
    lines = ["| data | source | labels | n | mean abs. error | mean error | held | joint, abs. |", "|---" * 8 + "|"]
    key = lambda r: (r["data"], r["source"], f"{r['noise']}, {'40 %' if r['asked'] == 0.4 else 'to 20 %'}")
    for names, group in grouped(rows, key).items():
        joint = joint_mean(group, lambda r: abs(r["confident_joint"] - r["wrong"]))
        error = np.array([r["rate"] - r["wrong"] for r in group])
        lines.append(
            f"| {' | '.join(names)} | {len(group)} | {np.abs(error).mean():.3f} | {error.mean():+.3f} "
            f"| {np.mean([r['holds'] for r in group]):.0%} | {joint} |"
        )
    return "\n".join(lines)


def grouped(rows: list[Row], key: Callable[[Row], tuple[str, ...]]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for r in rows:
        groups.setdefault(key(r), []).append(r)
    return groups


def joint_mean(rows: list[Row], value: Callable[[Row], float]) -> str:
    found = [value(r) for r in rows if r["confident_joint"] != ""]
    return f"{np.mean(found):.3f}" if found else ""


if __name__ == "__main__":
    main()
