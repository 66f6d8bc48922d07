"""Measure `mohs.find_issues` beside cleanlab's Datalab and cleanvision: same data, same features, one run.

    MOHS_DATA=FOLDER python benchmarks/datalab.py --out results/issues.csv
    python benchmarks/datalab.py --sizes 10000 100000 1000000 --out results/issues_scale.csv

Issues are made (`made_issues.py`), so that it is known which examples have them; "flagged untouched" is the number of examples
flagged in the same data before anything was made. Leaks: Datalab has no check for them, so its near duplicates among both splits
count. Test splits are measured (CIFAR-10, MNIST); the checks were designed on training splits. results/issues.md has the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from PIL import Image
from sklearn.metrics import average_precision_score

import mohs
from made_issues import COPIES, DEFECTS, REWRITES, as_image, changed
from mohs.train.fold_heads import fold_scores

from machine import machine

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
DATALAB = {"near_duplicate": "near_duplicate", "outlier": "outlier", "leak": "near_duplicate"}
CLEANVISION = {
    "dark": "dark", "bright": "light", "blurry": "blurry", "low_information": "low_information", "grayscale": "grayscale",
    "odd_size": "odd_size", "odd_aspect": "odd_aspect_ratio", "near_duplicate": "near_duplicates",
}  # fmt: skip
Scored = dict[str, tuple[Array, Array]]  # score, the higher the worse, and flag, by issue


def take(examples: Any, rows: Array) -> tuple[Array, Array]:
    return examples.inputs[torch.as_tensor(rows)].numpy(), examples.labels[torch.as_tensor(rows)].numpy()


def features_of(content: Any) -> Array:
    labels = [i % 2 for i in range(len(content))]
    given = torch.from_numpy(content) if isinstance(content, np.ndarray) else content
    return np.asarray(mohs.embed((given, labels)).features)


def out_of_fold(features: Array, labels: Array, classes: int) -> Array:
    """Probabilities of the heads that `mohs audit` judges by; all tools get the same."""
    made = fold_scores({"f": features}, torch.from_numpy(labels), num_classes=classes, folds=5, seed=0)
    return mohs.judge_labels(made.scores, labels, ambiguity=made.ambiguity).probs


def by_mohs(features: Array | None, labels: Array | None = None, **given: Any) -> Scored:
    found = mohs.find_issues(features, labels, **given).found
    return {name: (one.score, one.flag) for name, one in found.items()}


def by_datalab(features: Array, labels: Array | None, probs: Array | None = None) -> Scored:
    from cleanlab import Datalab

    given = np.zeros(len(features), int) if labels is None else labels
    lab = Datalab({"y": given}, label_name=None if labels is None else "y", verbosity=0)
    lab.find_issues(features=features, pred_probs=probs, issue_types={"near_duplicate": {}, "outlier": {}})
    table = lab.get_issues()
    columns = {name: (f"{theirs}_score", f"is_{theirs}_issue") for name, theirs in DATALAB.items()}
    return {name: (1 - table[score].to_numpy(), table[flag].to_numpy()) for name, (score, flag) in columns.items()}


def by_cleanvision(images: list[Image.Image]) -> Scored:
    from cleanvision import Imagelab
    from datasets import Dataset, Features
    from datasets import Image as Stored

    rows = Dataset.from_dict({"image": images}, features=Features({"image": Stored()}))
    lab = Imagelab(hf_dataset=rows, image_key="image")
    lab.find_issues(n_jobs=1, verbose=False)
    found = {}
    for name, theirs in CLEANVISION.items():
        if f"{theirs}_score" in lab.issues:
            found[name] = (1 - lab.issues[f"{theirs}_score"].to_numpy(), lab.issues[f"is_{theirs}_issue"].to_numpy())
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    import warnings

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def timed(tools: dict[str, Any]) -> tuple[dict[str, Scored], dict[str, float]]:
    """What each tool, a function, finds, and its seconds."""
    found, seconds = {}, {}
    for tool, run in tools.items():
        began = time.perf_counter()
        with quiet():
            found[tool] = run()
        seconds[tool] = time.perf_counter() - began
    return found, seconds


def compared(
    issue: str,
    data: str,
    truth: Array,
    found: dict[str, Scored],
    clean: dict[str, Scored],
    seconds: dict[str, float],
    counted: Array | slice = slice(None),
) -> list[Row]:
    """A row for each tool: AP and flags among the examples that count, and what it flags in untouched data."""
    rows = []
    for tool, one in found.items():
        if issue not in one:
            continue
        score, flag = (values[counted] for values in one[issue])
        right = truth[counted]
        rows.append({
            "issue": issue, "data": data, "tool": tool, "examples": len(right), "with issue": int(right.sum()),
            "ap": round(float(average_precision_score(right, np.nan_to_num(score))), 3), "flagged": int(flag.sum()),
            "flagged right": int((flag & right).sum()), "untouched": len(clean[tool][issue][1]),
            "flagged untouched": int(clean[tool][issue][1].sum()), "seconds": round(seconds[tool], 1),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def duplicate_rows(name: str, content: Any, labels: Array, copies: Any, source: Array, features: Array) -> list[Row]:
    """Near duplicates: the content followed by copies of some of it."""
    both = np.concatenate([content, copies]) if isinstance(content, np.ndarray) else [*content, *copies]
    truth = np.zeros(len(both), bool)
    truth[len(content) :] = truth[source] = True
    y = np.concatenate([labels, labels[source]])
    kind = "images" if isinstance(content, np.ndarray) else "texts"
    tools = {"mohs": lambda: by_mohs(features, y, **{kind: both}), "mohs, features only": lambda: by_mohs(features, y),
             "Datalab": lambda: by_datalab(features, y)}  # fmt: skip
    n = len(content)
    untouched = {"mohs": lambda: by_mohs(features[:n], labels, **{kind: content}),
                 "mohs, features only": lambda: by_mohs(features[:n], labels),
                 "Datalab": lambda: by_datalab(features[:n], labels)}  # fmt: skip
    if kind == "images":
        tools["cleanvision"] = lambda: by_cleanvision([as_image(one) for one in both])
        untouched["cleanvision"] = lambda: by_cleanvision([as_image(one) for one in content])
    found, seconds = timed(tools)
    return compared("near_duplicate", name, truth, found, timed(untouched)[0], seconds)


def leak_rows(name: str, train: Any, test: Any, copied: Array, features: Array) -> list[Row]:
    """Leaks: some of the test examples, marked in `copied`, are altered copies of training examples."""
    both = np.concatenate([train, test]) if isinstance(train, np.ndarray) else [*train, *test]
    kind = "images" if isinstance(train, np.ndarray) else "texts"
    n = len(train)
    splits = np.array(["train"] * n + ["test"] * len(test))

    def test_only(found: Scored) -> Scored:
        return {issue: (score[n:], flag[n:]) for issue, (score, flag) in found.items()}

    kept = np.r_[np.ones(n, bool), ~copied]
    clean_content = both[kept] if isinstance(both, np.ndarray) else [one for one, keep in zip(both, kept, strict=True) if keep]
    tools = {"mohs": lambda: test_only(by_mohs(features, splits=splits, **{kind: both})),
             "mohs, pixels only": lambda: test_only(by_mohs(None, splits=splits, **{kind: both})),
             "Datalab": lambda: test_only(by_datalab(features, None))}  # fmt: skip
    untouched = {"mohs": lambda: test_only(by_mohs(features[kept], splits=splits[kept], **{kind: clean_content})),
                 "mohs, pixels only": lambda: test_only(by_mohs(None, splits=splits[kept], **{kind: clean_content})),
                 "Datalab": lambda: test_only(by_datalab(features[kept], None))}  # fmt: skip
    if kind == "texts":
        del tools["mohs, pixels only"], untouched["mohs, pixels only"]
    found, seconds = timed(tools)
    return compared("leak", name, copied, found, timed(untouched)[0], seconds)


def outlier_rows(name: str, features: Array, labels: Array, foreign: Array, rng: Any) -> list[Row]:
    """Outliers: features of the data, followed by those of examples of other data, which get random labels."""
    n, classes = len(features), int(labels.max()) + 1
    both, y = np.concatenate([features, foreign]), np.concatenate([labels, rng.integers(classes, size=len(foreign))])
    truth = np.r_[np.zeros(n, bool), np.ones(len(foreign), bool)]
    probs, clean_probs = out_of_fold(both, y, classes), out_of_fold(features, labels, classes)
    tools = {"mohs": lambda: by_mohs(both, y, probs=probs), "mohs, features only": lambda: by_mohs(both),
             "Datalab": lambda: by_datalab(both, y, probs)}  # fmt: skip
    with quiet():
        clean = {"mohs": by_mohs(features, labels, probs=clean_probs), "mohs, features only": by_mohs(features),
                 "Datalab": by_datalab(features, labels, clean_probs)}  # fmt: skip
    found, seconds = timed(tools)
    return compared("outlier", name, truth, found, clean, seconds)


def defect_rows(name: str, images: Array, rng: Any, each: int) -> list[Row]:
    """Image defects: `each` images get each defect; every kind is measured against the untouched images."""
    pictures = [as_image(one) for one in images]
    tools = {"mohs": mohs_on_pictures, "cleanvision": by_cleanvision}
    with quiet():
        clean = {tool: run(pictures) for tool, run in tools.items()}
    kinds = [issue for issue in DEFECTS if issue != "grayscale" or images.shape[1] > 1]
    places = dict(zip(kinds, rng.permutation(len(images))[: each * len(kinds)].reshape(-1, each), strict=True))
    for issue, at in places.items():
        for place in at:
            pictures[place] = DEFECTS[issue](pictures[place], rng)
    found, seconds = timed({tool: partial(run, pictures) for tool, run in tools.items()})
    gray = np.array([(np.ptp(one.astype(int), axis=0) == 0).all() for one in images])
    rows = []
    for issue, at in places.items():
        truth = np.isin(np.arange(len(images)), at) | (gray if issue == "grayscale" else False)
        counted = truth | ~np.isin(np.arange(len(images)), np.concatenate(list(places.values())))
        rows += compared(issue, name, truth, found, clean, seconds, counted)
    return rows


def mohs_on_pictures(pictures: list[Image.Image]) -> Scored:
    """As the reader of folders gives them: one size, with the sizes as stored."""
    from mohs.data.decode import Header, choose_size, pixels

    heads = [Header(one.height, one.width, one.mode == "L") for one in pictures]
    size, _ = choose_size(heads, None)
    images = np.stack([pixels(one, pictures[0].mode, size) for one in pictures])
    sizes = np.array([(one.height, one.width) for one in heads])
    return by_mohs(None, images=images, sizes=sizes, names=list(DEFECTS))


def measured(size: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    cifar, mnist = mohs.open_data("cifar10").test, mohs.open_data("mnist").test
    pacs = mohs.open_data(Path(os.environ["MOHS_DATA"]) / "pacs64.zip").train
    photos = np.array([i for i, path in enumerate(pacs.paths) if "/photo/" in path.replace("pacs64.zip", "")])
    with gzip.open(Path(os.environ["MOHS_DATA"]) / "multi30k-en-de/train.en.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()

    x, y = take(pacs, rng.permutation(photos))
    rows += defect_rows("PACS photos", x, rng, 25)
    rows += defect_rows("CIFAR-10", take(cifar, rng.permutation(len(cifar))[:size])[0], rng, 25)
    rows += defect_rows("MNIST", take(mnist, rng.permutation(len(mnist))[:size])[0], rng, 25)

    texts = [lines[i] for i in rng.permutation(len(lines))[: 2 * size]]
    source = rng.choice(len(texts), size // 10, replace=False)
    ways = list(REWRITES.values())
    rewritten = [ways[i % len(ways)](texts[row], rng) for i, row in enumerate(source)]
    features = features_of([*texts, *rewritten])
    rows += duplicate_rows("Multi30k (English)", texts, rng.integers(5, size=len(texts)), rewritten, source, features)
    half = len(texts) // 2
    early = source[source < half]
    own = [text for row, text in zip(source, rewritten, strict=True) if row < half]
    both = np.r_[features[:half], features[half : len(texts)], features[len(texts) :][source < half]]
    copied = np.r_[np.zeros(half, bool), np.ones(len(early), bool)]
    rows += leak_rows("Multi30k (English)", texts[:half], [*texts[half:], *own], copied, both)

    places = {"CIFAR-10": (cifar, rng.permutation(len(cifar))[:size]), "PACS photos": (pacs, rng.permutation(photos))}
    for name, (examples, chosen) in places.items():
        x, y = take(examples, chosen)
        source = rng.choice(len(x), len(x) // 10, replace=False)
        copies, _ = changed(x[source], rng, COPIES)
        features = features_of(np.concatenate([x, copies]))
        rows += duplicate_rows(name, x, y, copies, source, features)
        half = len(x) // 2
        early = source < half
        both = np.r_[features[: len(x)], features[len(x) :][early]]
        copied = np.r_[np.zeros(len(x) - half, bool), np.ones(int(early.sum()), bool)]
        rows += leak_rows(name, x[:half], np.concatenate([x[half:], copies[early]]), copied, both)
        if name == "CIFAR-10":
            other = mohs.open_data("cifar100").test
            foreign = features_of(take(other, rng.permutation(len(other))[: len(x) // 20])[0])
            rows += outlier_rows("CIFAR-100 in CIFAR-10", features[: len(x)], y, foreign, rng)
    x, y = take(mnist, rng.permutation(len(mnist))[:size])
    fashion = mohs.open_data("fashion-mnist").test
    foreign, _ = take(fashion, rng.permutation(len(fashion))[: size // 20])
    features = features_of(np.concatenate([x, foreign]))
    rows += outlier_rows("Fashion in MNIST", features[:size], y, features[size:], rng)
    return rows


def made_embeddings(count: int, seed: int) -> Array:
    """Unit vectors (N, 64) of a thousand clusters of 16 dimensions, a twentieth of them copies with a little noise."""
    rng = np.random.default_rng(seed)
    centers, axes = rng.normal(size=(1000, 64)), rng.normal(size=(16, 64)).astype(np.float32)
    x = centers.astype(np.float32)[rng.integers(1000, size=count)] + 0.5 * rng.standard_normal((count, 16), np.float32) @ axes
    x += 0.1 * rng.standard_normal(x.shape, np.float32)
    x[-count // 20 :] = x[: count // 20] + 0.01 * rng.standard_normal((count // 20, 64), np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def one_size(tool: str, count: int, seed: int) -> None:
    """Print seconds, CPU seconds, peak memory in MB and the AP of near duplicates of one tool, run in a process of its own."""
    x = made_embeddings(count, seed)
    truth = np.zeros(count, bool)
    truth[: count // 20] = truth[-count // 20 :] = True
    before, began, spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter(), time.process_time()
    with quiet():
        found = by_mohs(x, names=["near_duplicate", "outlier"]) if tool == "mohs" else by_datalab(x, None)
    seconds, spent = time.perf_counter() - began, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    score, flag = found["near_duplicate"]
    ap = average_precision_score(truth, score)
    line = {"seconds": round(seconds, 1), "CPU seconds": round(spent, 1), "peak MB": (peak - before) // 1024}
    line |= {"ap": round(float(ap), 3), "flagged": int(flag.sum()), "flagged right": int((flag & truth).sum())}
    print(json.dumps(line))


def sizes_measured(sizes: list[int], tools: list[str], seed: int, limit: int) -> list[Row]:
    rows = []
    for count in sizes:
        for tool in tools:
            row: Row = {"issue": "near_duplicate", "data": "made embeddings, 64 dimensions", "tool": tool, "examples": count}
            command = [sys.executable, __file__, "--one", tool, "--sizes", str(count), "--seed", str(seed)]
            try:
                answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
                row |= json.loads(answer.stdout.splitlines()[-1])
            except subprocess.TimeoutExpired:
                row |= {"seconds": f"over {limit}"}
            except subprocess.CalledProcessError as error:
                row |= {"seconds": f"failed: {error.stderr.strip().splitlines()[-1][:80]}"}
            rows.append(row)
            print(row, flush=True)
    return rows


def write(rows: list[Row], out: Path, about: dict[str, Any]) -> None:
    fields = list(dict.fromkeys(name for row in rows for name in row))
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*fields, "git"])
        writer.writeheader()
        writer.writerows({**row, "git": about["commit"]} for row in rows)
    print(f"{out}: {len(rows)} rows; {about}")


def page(measurements: Path, scale: Path) -> str:
    """The tables of results/issues.md from the two CSV files."""
    rows, sizes = (list(csv.DictReader(file.open(encoding="utf-8"))) for file in (measurements, scale))
    cases = list(dict.fromkeys((row["issue"], row["data"]) for row in rows))
    tools = ("mohs", "Datalab", "cleanvision")
    found = {(row["issue"], row["data"], row["tool"]): row for row in rows}
    lines = ["| issue | data | examples, with issue | " + " | ".join(f"AP {tool}" for tool in tools)]
    lines[0] += " | " + " | ".join(f"flagged right + wrong, {tool}" for tool in tools) + " | flagged untouched, each |"
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for issue, data in cases:
        own = [found.get((issue, data, tool)) for tool in tools]
        ap = [f"{float(one['ap']):.3f}" if one else "–" for one in own]
        flags = [f"{one['flagged right']} + {int(one['flagged']) - int(one['flagged right'])}" if one else "–" for one in own]
        untouched = ", ".join(one["flagged untouched"] if one else "–" for one in own)
        about = f"{own[0]['examples']}, {own[0]['with issue']}" if own[0] else ""
        lines.append(f"| {issue} | {data} | {about} | {' | '.join(ap)} | {' | '.join(flags)} | {untouched} |")
    parts = [row for row in rows if row["tool"].startswith("mohs,")]
    lines += ["", "**With less to go by**", "", "| issue | data | mohs knows | AP | flagged right + wrong | flagged untouched |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for row in parts:
        knows, flags = (
            row["tool"].removeprefix("mohs, "),
            f"{row['flagged right']} + {int(row['flagged']) - int(row['flagged right'])}",
        )
        lines.append(
            f"| {row['issue']} | {row['data']} | {knows} | {float(row['ap']):.3f} | {flags} | {row['flagged untouched']} |"
        )
    lines += [
        "",
        "**Time and memory**",
        "",
        "| embeddings | tool | seconds | CPU seconds | added memory, MB | AP of near duplicates |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {int(row['examples']):,} | {row['tool']} | {row['seconds']} | {row.get('CPU seconds', '')} | "
        f"{row.get('peak MB', '')} | {row.get('ap', '')} |"
        for row in sizes
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/issues.csv"))
    parser.add_argument("--size", type=int, default=2000, help="Examples of each data set.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sizes", type=int, nargs="*", help="Measure time and memory at these numbers of made embeddings instead."
    )
    parser.add_argument("--tools", nargs="*", choices=("mohs", "Datalab"), default=["mohs", "Datalab"], help="With --sizes.")
    parser.add_argument("--limit", type=int, default=900, help="Seconds for one tool at one size.")
    parser.add_argument("--page", type=Path, nargs=2, metavar="CSV", help="Print the tables of these two results files instead.")
    parser.add_argument("--one", choices=("mohs", "Datalab"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.page:
        print(page(*chosen.page))
    elif chosen.one:
        one_size(chosen.one, chosen.sizes[0], chosen.seed)
    else:
        code = machine()  # before the work: the code that does it
        if chosen.sizes:
            made = sizes_measured(chosen.sizes, chosen.tools, chosen.seed, chosen.limit)
        else:
            made = measured(chosen.size, chosen.seed)
        write(made, chosen.out, code)
