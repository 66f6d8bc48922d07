"""What does `mohs train` reach on small data with wrong labels? Photos, texts and tables, default options, on a CPU.

    MOHS_DATA=... python benchmarks/train_small.py pacs:photo docstrings made-table --out results/train/small.csv
    python benchmarks/train_small.py keel-crx r-AER-Affairs-children --folder TABLES/test --out results/train/small.csv

Data sets are those of `audit_suite.py`. Three tenths of the examples, at most 2,000, are the test set, with their true labels; at
most --most others are trained on, a share of them with random wrong labels. Each method is one call of `mohs.train` and one of
`Trained.predict`; images are trained on by pretrained features (`embed="auto"`), and once from scratch. The last two are
scikit-learn's with its defaults on the same features; trees get the columns of a table as they are, with missing values. Finished
rows are kept: run the same command again to resume. The last lines are means over data sets and seeds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import mohs
from audit_suite import of_folder, source
from mohs.data.columns import from_table
from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise
from mohs.data.row_inputs import TableRows
from mohs.data.split import split
from mohs.train.run_features import encoded, sampled_rows
from mohs.train.table_views import tree_view

from machine import append_row, machine, read_rows

METHODS: dict[str, dict[str, Any]] = {
    "cross-entropy": {"loss": "cross_entropy"},
    "GCE": {"loss": "gce"},
    "robust": {"recipe": "robust"},
    "robust-two": {"recipe": "robust-two"},
}
SCRATCH, LINEAR, PRUNED, TREES = "from scratch", "logistic regression", "with cleanlab", "boosted trees"
RATES, TEST = (0.0, 0.1, 0.2, 0.4), 2000
COLUMNS = ("data", "kind", "examples", "classes", "method", "rate", "seed", "accuracy", "seconds", "cpu", "date", "git")


def parts(name: str, rate: float, seed: int, most: int) -> tuple[Examples, Examples]:
    """The examples to train on, with noise, and the test set, with true labels."""
    made = source(name)
    names = [f"class {k}" for k in range(int(made.truth.max()) + 1)]
    whole = mohs.open_data((made.inputs, np.array(names, dtype=object)[made.truth])).train
    train, test = split(whole, 0.3, seed)
    train, test = (one.take(torch.arange(min(len(one), limit))) for one, limit in ((train, most), (test, TEST)))
    return (add_noise(train, {"name": "symmetric", "rate": rate}, seed=seed) if rate else train), test


def by_mohs(method: str, train: Examples, test: Examples, seed: int) -> float:
    """Test accuracy of one call of `mohs.train`."""
    how = METHODS.get(method, {}) | ({"embed": "auto"} if train.kind == "images" and method != SCRATCH else {})
    with tempfile.TemporaryDirectory() as folder:
        done = mohs.train(Data(train), out=Path(folder) / "run", seed=seed, device="cpu", **how)
        guess = done.predict(test).column("predicted").to_pylist()
    return float(np.mean([one == train.classes[k] for one, k in zip(guess, test.labels.tolist(), strict=True)]))


def by_sklearn(method: str, train: Examples, test: Examples, seed: int) -> float:
    """Test accuracy of a classifier of scikit-learn on the same features."""
    from cleanlab.classification import CleanLearning
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if train.kind == "table" and method == TREES:
        both = TableRows(train.inputs.table).joined([TableRows(test.inputs.table)])  # type: ignore[union-attr]
        view = tree_view(from_table(both.table))  # which counts categories, and sees no label
        x, new = view[: len(train)], view[len(train) :]
    elif train.kind == "table":
        sample = sampled_rows(train)
        x, new = encoded(train, sample).numpy(), encoded(test, sample).numpy()
    elif train.kind == "features":
        x, new = (np.asarray(one.inputs) for one in (train, test))
    else:
        found = mohs.embed(Data(train, None, test), device="cpu").data
        x, new = (np.asarray(one.inputs) for one in (found.train, found.test))  # type: ignore[union-attr]
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    if method == PRUNED:
        model = CleanLearning(model, seed=seed, find_label_issues_kwargs={"n_jobs": 1})
    elif method == TREES:
        model = HistGradientBoostingClassifier(random_state=seed)
    model.fit(x, train.labels.numpy())
    return float((model.predict(new) == test.labels.numpy()).mean())


def methods_for(kind: str) -> list[str]:
    """The methods that are compared: boosted trees for columns alone."""
    every = [*METHODS, LINEAR, PRUNED]
    return every + ([SCRATCH] if kind == "images" else [TREES] if kind in ("table", "features") else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="data sets, by name")
    parser.add_argument("--folder", type=Path, help="folder of further data sets, which may be named by their stems")
    parser.add_argument("--most", type=int, default=3000, help="examples to train on, at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=[*METHODS, SCRATCH, LINEAR, PRUNED, TREES], help="only these")
    parser.add_argument("--out", type=Path, required=True, help="CSV of the rows; finished rows are not run again")
    options = parser.parse_args()
    if options.folder:
        of_folder(options.folder)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    here = machine()
    about = {"cpu": here["cpu"], "date": here["date"], "git": here["commit"]}
    for name in options.data:
        for seed in options.seeds:
            for rate in RATES:
                train, test = parts(name, rate, seed, options.most)
                for method in (one for one in methods_for(train.kind) if one in options.methods):
                    key = {"data": name, "method": method, "rate": rate, "seed": seed}
                    if any(all(str(row[k]) == str(v) for k, v in key.items()) for row in read_rows(options.out)):
                        continue
                    began = time.perf_counter()
                    accuracy = (by_sklearn if method in (LINEAR, PRUNED, TREES) else by_mohs)(method, train, test, seed)
                    facts = {
                        "kind": train.kind,
                        "examples": len(train),
                        "classes": len(train.classes),
                        "accuracy": f"{accuracy:.4f}",
                    }
                    row = key | facts | {"seconds": f"{time.perf_counter() - began:.1f}"} | about
                    append_row({name: row[name] for name in COLUMNS}, options.out)
    print(summary(read_rows(options.out)))


def summary(rows: list[dict[str, str]]) -> str:
    """Mean accuracies in percent by data set, kind and rate, as a Markdown table."""
    methods = [*METHODS, SCRATCH, LINEAR, PRUNED, TREES]
    lines = [f"| data | wrong | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    groups = {row["data"]: [row["data"]] for row in rows}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        groups[f"all {kind}"] = [one for one in groups if any(row["data"] == one and row["kind"] == kind for row in rows)]
    for name, members in groups.items():
        for rate in RATES:
            cells = []
            for method in methods:
                found = [
                    100 * float(row["accuracy"])
                    for row in rows
                    if row["data"] in members and row["method"] == method and float(row["rate"]) == rate
                ]
                cells.append(f"{np.mean(found):.1f}" if found else "")
            lines.append(f"| {name} | {100 * rate:.0f} % | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
