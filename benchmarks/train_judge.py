"""Train the networks of `mohs.hardness.learned_odds` on data sets whose wrong labels are known.

    MOHS_DATA=FOLDER python benchmarks/train_judge.py cells --features FOLDER --out SIGNS --jobs 2 --seconds 600
    python benchmarks/train_judge.py fit SIGNS... --kind columns [--onward] [--beside] [--write]

`cells` draws data sets, sizes, classes and wrong labels at random, judges each as `mohs audit` does, and keeps the signs of
some labels with the truth. `fit` trains the networks without each group of data sets, to tell how they do on data that they
have not seen; with --write it trains them on all and puts the weights into the package. With --onward training starts from the
package's weights and stays near them: a thousand draws then suffice where the models that are judged by have changed a little.
With --beside the package's networks stay, and the new ones stand beside them: the judge is their mean.

Wrong labels: uniform, to the next class, by a random table of classes, hard examples to the class they resemble, or two of
these together; half a percent to 45 %, and none. The data sets of `audit_suite.py` that serve as a test take no part (PACS
photo, USPS, Olivetti, the synthetic table, the tables of mlbench, Debian's packages, e-mails), nor do labels that people gave.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import zlib
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import audit_suite
import r_tables

if TYPE_CHECKING:
    from mohs.train.fold_heads import FoldScores

SKLEARN = ("digits", "breast_cancer", "wine")
REAL = ("digits", "mnist", "fashion-mnist", "pacs:art_painting", "pacs:cartoon", "pacs:sketch", "cifar10", "cifar100",
        "breast_cancer", "wine", "docstrings", "scipy-modules", "paintings", "tweets")  # fmt: skip
SYNTHETIC = ("blobs", "modes", "logistic", "table", "categories")
TABLES = tuple(
    f"table:{name}"
    for package, found in r_tables.TABLES.items()
    for name in found
    if package != r_tables.TEST and name not in r_tables.TEXTS
)
EMBEDDED = tuple(one for one in REAL if one not in SKLEARN)
KINDS = ("none", "uniform", "pairs", "table", "instance", "both")
ROWS = 250  # labels kept of each cell
CLEAN = 0.25  # weight of draws of columns and tables without wrong labels, which are 40 %, so that they count as others' do
SHARE = 0.17  # synthetic data sets for each table of a folder
POOL = 1500  # examples of a data set of images or texts that draws are taken from
SMALL, LEAST_OF_CLASS = 600, 4  # examples up to which draws are small, and examples per class of those, on average and at least
GROUPS, HIDDEN, NETWORKS, EPOCHS, DECAY = 6, 32, 4, 4, 0.1
NEAR, NEAR_RATE, NEAR_EPOCHS = 0.005, 2e-3, 3  # with --onward: pull to the weights before, learning rate, epochs
Array = np.ndarray[Any, Any]


# Cells


def synthetic(kind: str, rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    """Features (N, D) and classes (N,): Gaussian classes, classes of several clusters, or labels drawn from a logistic model.

    A "table" has few columns and two or three classes that overlap, as people's tables do; "categories" are the same in a few
    steps, so that many rows are equal.
    """
    if kind == "categories":
        x, y = synthetic("table", rng, size)
        steps = rng.integers(2, 6, size=x.shape[1])
        edges = [np.quantile(column, np.linspace(0, 1, number + 1)[1:-1]) for column, number in zip(x.T, steps, strict=True)]
        return np.column_stack([np.searchsorted(e, c) for e, c in zip(edges, x.T, strict=True)]).astype(np.float32), y
    classes, width = int(rng.choice((2, 3, 5, 8, 12, 20, 40))), int(rng.choice((4, 8, 16, 32, 64, 128, 256)))
    if kind == "table":
        classes, width = int(rng.choice((2, 2, 3))), int(rng.choice((2, 4, 8, 14, 30)))
        kind = str(rng.choice(("logistic", "blobs")))
    if kind == "logistic":
        x = rng.normal(size=(size, width))
        z = x @ rng.normal(size=(width, classes)) * np.exp(rng.uniform(0, 3)) / np.sqrt(width)
        return x.astype(np.float32), (z + rng.gumbel(size=z.shape)).argmax(1)
    clusters = classes * (1 if kind == "blobs" else int(rng.integers(2, 5)))
    share = rng.dirichlet(np.full(clusters, rng.choice((2.0, 20.0))))
    at = rng.choice(clusters, size=size, p=share)
    means = rng.normal(size=(clusters, width)) / np.sqrt(width)
    spread = np.exp(rng.uniform(-3.0, 0.5)) / np.sqrt(min(width, 16)) * rng.uniform(0.5, 1.5, (clusters, 1))
    return (means[at] + spread[at] * rng.normal(size=(size, width))).astype(np.float32), at % classes


def draw(seed: int, features: str | None, kinds: list[str] | None = None, least: int = 200, most: int = 2500) -> dict[str, Any]:
    """One cell: sets of features or columns, labels and truth; at least and at most so many examples."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(kinds or (SYNTHETIC, REAL, TABLES)[rng.choice(3, p=(0.3, 0.4, 0.3))]))
    if name in SYNTHETIC:
        made, truth = synthetic(name, rng, most)
        x: Any = {"features": made}
    else:
        x, truth = audit_suite.viewed(name, features, min(POOL, most))
    classes, size = np.unique(truth), 0
    if most <= SMALL:
        size = log_uniform(rng, least, most)
        classes = rng.permutation(classes)[: max(2, size // LEAST_OF_CLASS)]
    if len(classes) > 3 and rng.random() < 0.4:
        classes = rng.choice(classes, size=int(rng.integers(2, min(len(classes), 20) + 1)), replace=False)
    rows = np.flatnonzero(np.isin(truth, classes))
    if rng.random() < 0.3:  # imbalance
        keep = rng.dirichlet(np.full(len(classes), 1.0))[np.searchsorted(np.sort(classes), truth[rows])]
        rows = rows[rng.random(len(rows)) < np.minimum(1, 2 * keep / keep.mean())]
    rows = rng.permutation(rows)[: size or log_uniform(rng, least, most)]
    x, (_, truth) = _rows(x, rows), np.unique(truth[rows], return_inverse=True)
    first = next(iter(x.values())) if isinstance(x, dict) else audit_suite.numbers(x)
    labels, kind = noisy(first, truth, rng, 0.15 if name in (*REAL, "blobs", "modes", "logistic") else 0.4)
    return {"data": name, "kind": kind, "seed": seed, "x": x, "y": labels.astype(np.int64), "t": truth.astype(np.int64)}


def log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number between two bounds, its logarithm uniform."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def _rows(x: Any, rows: Array) -> Any:
    """These rows of sets of features or of a table."""
    return {name: one[rows] for name, one in x.items()} if isinstance(x, dict) else x.take(rows)


def noisy(x: Array, truth: Array, rng: np.random.Generator, clean: float) -> tuple[Array, str]:
    """Labels some of which are wrong, and how they were made; none with the probability `clean`."""
    if rng.random() < clean:
        return truth.copy(), "none"
    k, n = int(truth.max()) + 1, len(truth)
    kind = str(rng.choice((*KINDS[1:], "instance")))
    rate = float(np.exp(rng.uniform(np.log(0.005), np.log(0.45))))
    if rng.random() < 0.5:
        rate = float(rng.choice((0.01, 0.05, 0.1, 0.2, 0.4)))
    labels = truth.copy()
    if kind in ("instance", "both"):
        labels = audit_suite.instance_noise(x, truth, rate if kind == "instance" else rate / 2, int(rng.integers(2**31)))
    if kind in ("uniform", "both", "pairs", "table"):
        moving = rng.permutation(n)[: round(rate * n if kind != "both" else rate * n / 2)]
        shift = {"pairs": np.ones(n, int), "table": rng.integers(1, k, size=k)[truth]}.get(kind, rng.integers(1, k, size=n))
        if kind == "table" and k > 2:
            moving = moving[rng.random(k)[truth[moving]] < 0.7]
        labels[moving] = (truth[moving] + shift[moving]) % k
    return labels, kind


def signs(seed: int, features: str | None, kinds: list[str] | None = None, least: int = 200, most: int = 2500) -> dict[str, Any]:
    """The signs of some labels of one cell, as `mohs audit` would see them, and their summary over all labels."""
    import torch

    from mohs.hardness.judgment import fit_rule
    from mohs.hardness.learned_odds import signs_of, summary, table_signs

    torch.set_num_threads(1)
    cell = draw(seed, features, kinds, least, most)
    x, y, t = cell.pop("x"), cell.pop("y"), cell.pop("t")
    wrong = y != t
    scores, made, y = of_features(x, y) if isinstance(x, dict) else of_table(x, y)
    rule = fit_rule(scores, y, ambiguity=made.ambiguity)
    rows = rule.judge(scores, y)
    probs = rule.model.probs(scores)
    found = signs_of(
        probs, y, rule=rows.p_mislabeled, apparent=rows.apparent, refit=made.refit,
        rate=rule.model.rate, kappa=rule.kappa,
    )  # fmt: skip
    kept = np.random.default_rng(seed).permutation(len(y))[:ROWS]
    risks = table_signs(probs, y, made.refit)[kept]
    judged = {"signs": found[kept].astype(np.float32), "risks": risks.astype(np.float32), "summary": summary(found)}
    return {**cell, "features": made.refit.kind, "n": len(y), "wrong": wrong[kept], **judged}


def of_features(x: dict[str, Array], y: Array) -> tuple[Array, FoldScores, Array]:
    """Scores (M, N, K) of an audit of sets of features (N, D), the fit of its heads, and the labels as its classes."""
    import mohs
    from mohs.audit.judge_features import head_scores
    from mohs.audit.options import AuditOptions

    train = mohs.open_data((next(iter(x.values())), np.unique(y, return_inverse=True)[1])).train
    scores, made = head_scores(x, train, AuditOptions(device="cpu"))
    return np.stack([np.asarray(one, dtype=np.float32) for one in scores.values()]), made, train.labels.numpy()


def of_table(x: Any, y: Array) -> tuple[Array, FoldScores, Array]:
    """The same of a table with columns of several types."""
    import pyarrow.parquet

    import mohs
    from mohs.audit.judge_table import table_scores
    from mohs.audit.options import AuditOptions

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        pyarrow.parquet.write_table(x.append_column("label", [[f"class {one:04d}" for one in y]]), file)
        data = mohs.open_data(file, label="label")
        if data.train.kind == "features":  # numbers alone
            return of_features({"features": np.asarray(data.train.inputs, dtype=np.float32)}, data.train.labels.numpy())
        scores, made = table_scores(data, AuditOptions(device="cpu"))
    return np.stack([one.astype(np.float32) for one in scores.values()]), made, data.train.labels.numpy()


def attempt(seed: int, features: str | None, kinds: list[str] | None, least: int, most: int) -> dict[str, Any] | None:
    """`signs`; None where the draw has too few examples of a class to judge."""
    try:
        return signs(seed, features, kinds, least, most)
    except Exception as error:
        print(f"cell {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def cells(options: argparse.Namespace) -> None:
    """Draw and judge cells until the time is over."""
    began, done, seed = time.perf_counter(), [], options.first
    if options.folder is not None:
        tables = audit_suite.of_folder(options.folder)
        options.kinds = tables + list(SYNTHETIC) * round(SHARE * len(tables) / len(SYNTHETIC))
    with ProcessPoolExecutor(options.jobs) as pool:
        running = set()
        while time.perf_counter() - began < options.seconds:
            while len(running) < 2 * options.jobs:
                told = options.features, options.kinds, options.least, options.most
                running.add(pool.submit(attempt, seed, *told))
                seed += 1
            finished, running = wait(running, timeout=5, return_when=FIRST_COMPLETED)
            done += [one.result() for one in finished]
        done += [one.result() for one in wait(running).done]
    kept = [one for one in done if one is not None]
    np.savez_compressed(
        options.out, signs=np.concatenate([one["signs"] for one in kept]).astype(np.float16),
        risks=np.concatenate([one["risks"] for one in kept]).astype(np.float16),
        wrong=np.concatenate([one["wrong"] for one in kept]), rows=[len(one["wrong"]) for one in kept],
        data=[one["data"] for one in kept], kind=[one["kind"] for one in kept], n=[one["n"] for one in kept],
        features=[one["features"] for one in kept], seed=[one["seed"] for one in kept],
        summary=np.stack([one["summary"] for one in kept]),
    )  # fmt: skip
    print(f"{len(kept)} cells of {len(done)} in {time.perf_counter() - began:.0f} s -> {options.out}")


# Networks


def train(x: Array, wrong: Array, weight: Array, seed: int, start: dict[str, Any] | None = None) -> dict[str, Any]:
    """One network: standardized signs (N, S) -> log odds. start: weights to begin from, and to stay near to."""
    import torch

    from mohs.hardness.learned_odds import CUT

    torch.manual_seed(seed)
    layers = [torch.nn.Linear(x.shape[1], HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, 1)]
    named = dict(zip(("first", "second", "last"), layers, strict=True))
    net = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])
    if start is not None:
        with torch.no_grad():
            for name, layer in named.items():
                layer.weight.copy_(torch.tensor(start[f"{name}_weight"][seed]))
                layer.bias.copy_(torch.tensor(start[f"{name}_bias"][seed]))
    before = [one.detach().clone() for one in net.parameters()]
    rate, decay, epochs = (1e-2, DECAY, EPOCHS) if start is None else (NEAR_RATE, 0.0, NEAR_EPOCHS)
    inputs, targets, weights = (torch.tensor(one, dtype=torch.float32) for one in (x.clip(-CUT, CUT), wrong, weight))
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
    batches = -(-len(x) // 2048)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(2048):
            optimizer.zero_grad()
            losses = torch.nn.functional.binary_cross_entropy_with_logits(
                net(inputs[rows]).squeeze(1), targets[rows], reduction="none"
            )
            loss = (losses * weights[rows]).mean()
            if start is not None:
                loss = loss + NEAR * sum((one - then).square().sum() for one, then in zip(net.parameters(), before, strict=True))
            loss.backward()
            optimizer.step()
            schedule.step()
    return {
        f"{name}_{part}": getattr(layer, part).detach().numpy() for name, layer in named.items() for part in ("weight", "bias")
    }


def networks(x: Array, wrong: Array, cell: Array, weight: Array, options: argparse.Namespace) -> dict[str, Array]:
    """The weights of `learned_odds`, trained on signs and summaries (N, I) of cells (N,) with these weights."""
    before = package_networks(x, options.start or options.kind) if options.onward or options.beside else None
    mean, deviation = (x.mean(0), x.std(0) + 1e-6) if before is None else (before["mean"], before["deviation"])
    weight, start = weight[cell] / np.bincount(cell)[cell], before if options.onward else None
    nets = [train((x - mean) / deviation, wrong, weight / weight.mean(), seed, start) for seed in range(NETWORKS)]
    made = {name: np.stack([one[name] for one in nets]) for name in nets[0]}
    if before is not None and options.beside:
        made = {name: np.concatenate([before[name], one]) for name, one in made.items()}
    return {"mean": mean, "deviation": deviation, **made}


def package_networks(x: Array, kind: str) -> dict[str, Any]:
    """The package's networks for inputs x (N, I), of which the last may be new to them: these have a weight of 0."""
    from mohs.hardness import learned_odds

    net = learned_odds.networks(kind)
    more, first = x[:, len(net["mean"]) :], net["first_weight"]
    return {
        **net,
        "mean": np.concatenate([net["mean"], more.mean(0)]),
        "deviation": np.concatenate([net["deviation"], more.std(0) + 1e-6]),
        "first_weight": np.concatenate([first, np.zeros((*first.shape[:2], more.shape[1]))], axis=2),
    }


def drawn(files: list[Path], kind: str) -> tuple[Array, Array, Array, Array, Array]:
    """Signs with summaries (N, I), which labels are wrong (N,), the cell of each (N,), data set and weight of each cell.

    kind: "embedding" for draws of images and texts, and synthetic ones, which count as much as all others together; "columns" and
    "table" for tables, with risks; "few" for all draws, with risks.
    """
    from mohs.hardness.learned_odds import FEW, with_summary

    parts = [dict(np.load(file)) for file in files]
    signs, wrong, rows, data, noise, summary, features = (
        np.concatenate([one[name] for one in parts]) for name in ("signs", "wrong", "rows", "data", "kind", "summary", "features")
    )
    wanted = np.isin(data, (*SYNTHETIC, *EMBEDDED)) if kind == "embedding" else (features != "embedding") | (kind == FEW)
    of_cells = [own for own, one in zip(np.split(np.arange(len(signs)), np.cumsum(rows)[:-1]), wanted, strict=True) if one]
    x = [with_summary(signs[own].astype(np.float64), one) for own, one in zip(of_cells, summary[wanted], strict=True)]
    if kind != "embedding":
        risks = np.concatenate([one["risks"] for one in parts])
        x = [np.concatenate([one, risks[own]], axis=1) for one, own in zip(x, of_cells, strict=True)]
    cell = np.repeat(np.arange(len(x)), [len(own) for own in of_cells])
    ambiguous = ~np.isin(data, EMBEDDED) & (kind != "embedding")
    weight = np.where((noise == "none") & ambiguous, CLEAN, 1.0)[wanted]
    if kind == "embedding":
        made = np.isin(data[wanted], SYNTHETIC).astype(int)
        weight = weight / np.bincount(made)[made]
    return np.concatenate(x), wrong[np.concatenate(of_cells)], cell, data[wanted], weight


def fit(options: argparse.Namespace) -> None:
    """Train on all cells and write the weights, or train without each group of data sets and report."""
    from mohs.hardness import learned_odds

    x, wrong, cell, data, weight = drawn(options.files, options.kind)
    file = Path(learned_odds.__file__).with_name(learned_odds.WEIGHTS)
    onward = options.onward or options.beside
    if not options.write:
        group = np.array([zlib.crc32(str(one).encode()) % GROUPS for one in data])[cell]
        before = [("before", learned_odds.judged_by(package_networks(x, options.start or options.kind), x))] if onward else []
        ours = [("rule", 1 / (1 + np.exp(-x[:, 0]))), *before, ("networks", unseen(x, wrong, cell, weight, group, options))]
        report(wrong, ours, cell)
        return
    held = json.loads(file.read_text(encoding="utf-8"))
    made = networks(x, wrong, cell, weight, options)
    own = {name: np.round(np.asarray(value, dtype=np.float64), 4).tolist() for name, value in made.items()}
    before = held[options.start or options.kind] if onward else {"cells": 0, "data": []}
    told = {"cells": before["cells"] + len(data), "data": sorted({*before["data"], *data.tolist()})}
    text = {**held, "signs": list(learned_odds.SIGNS), options.kind: {**told, **own}}
    file.write_text(json.dumps(text) + "\n", encoding="utf-8")
    print(f"{file.name}: {len(data)} cells, {len(x):,} labels")


def unseen(x: Array, wrong: Array, cell: Array, weight: Array, group: Array, options: argparse.Namespace) -> Array:
    """Probabilities (N,) by networks that saw no data set of the row's group, unless those of the package did."""
    from mohs.hardness.learned_odds import judged_by

    held = np.zeros(len(x))
    for g in np.unique(group):
        seen = group != g
        kept, own = np.unique(cell[seen], return_inverse=True)
        nets = networks(x[seen], wrong[seen], own, weight[kept], options)
        held[~seen] = judged_by(nets, x[~seen])
    return held


def report(wrong: Array, judged: list[tuple[str, Array]], cell: Array) -> None:
    """Cross-entropy and flags of several judges, each with its name, on data sets that they did not see."""
    from mohs.hardness.judgment import choose_flags

    for name, p in judged:
        loss = -np.log(np.where(wrong, p, 1 - p).clip(1e-4))
        f1, precision, clean = [], [], []
        for c in range(cell.max() + 1):
            own = cell == c
            flagged, bad = choose_flags(p[own], 0.8), wrong[own]
            hits = (flagged & bad).sum()
            if bad.any():
                f1.append(2 * hits / (flagged.sum() + bad.sum()))
            else:
                clean.append(flagged.mean())
            if flagged.any():
                precision.append(hits / flagged.sum())
        enough = np.mean(np.array(precision) >= 0.75)
        print(
            f"{name:9} loss {loss.mean():.4f}  F1 {np.mean(f1):.3f}  precision >= .75 in {enough:.1%} of {len(precision)} cells, "
            f"mean {np.mean(precision):.3f}  clean: flagged {np.mean(clean):.2%}, most {np.max(clean):.2%}"
        )


def main() -> None:
    from mohs.hardness.learned_odds import FEW
    from mohs.hardness.learned_odds import KINDS as FEATURES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("cells")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--features", help="folder that keeps the embeddings of each data set, as of audit_suite.py")
    make.add_argument("--kinds", nargs="+", help="draw these data sets alone")
    make.add_argument(
        "--folder", type=Path, help="draw the tables of this folder (`packaged_tables.py` makes one) and synthetic ones"
    )
    make.add_argument("--first", type=int, default=0, help="first random seed")
    make.add_argument("--least", type=int, default=200, help="examples of a draw at least")
    make.add_argument("--most", type=int, default=2500, help="examples of a draw at most")
    make.add_argument("--jobs", type=int, default=2)
    make.add_argument("--seconds", type=float, default=600)
    make.set_defaults(run=cells)
    learn = commands.add_parser("fit")
    learn.add_argument("files", nargs="+", type=Path)
    learn.add_argument("--kind", choices=(*FEATURES, FEW), required=True, help="which networks to train")
    learn.add_argument("--onward", action="store_true", help="start from the package's weights and stay near them")
    learn.add_argument("--start", choices=FEATURES, help="with --onward: start from the package's networks of another kind")
    learn.add_argument("--beside", action="store_true", help="keep the package's networks, beside the new ones")
    learn.add_argument("--write", action="store_true")
    learn.set_defaults(run=fit)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
