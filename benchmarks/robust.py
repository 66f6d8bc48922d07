"""How well do robust recipes train on wrong labels? Accuracy of the last epoch, one row of results/robust.csv per run.

    MOHS_DATA=... python benchmarks/robust.py cifar10/worse/robust cifar10/clean/cross_entropy --out results/robust.csv
    MOHS_DATA=... python benchmarks/robust.py fashion-mnist/symmetric:rate=0.4/gce:q=0.7 --images 3000 --model cnn --out FILE

A run is DATA/LABELS/METHOD. LABELS is clean, one of CIFAR-10N's sets (worse, aggre, random1, ...) or a noise spec; METHOD is a
recipe or a loss with its settings, as JSON where a setting is a list. All runs of one call have the same epochs, network and
optimizer, and no setting knows the noise. With --held-out that many training images take no part in training: their true labels
decide between settings, so that the test set does not. Runs that share a GPU (--together) share its time as well: `seconds` is
that of all of them. With --embed the runs are given the features of a pretrained network, as `mohs embed` computes them. The
last lines compare the settings for each kind of labels.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sklearn.metrics import average_precision_score

import mohs
from mohs._core.specs import as_spec
from mohs.data.examples import Data
from mohs.data.noise import NOISES
from mohs.evaluate.statistics import paired
from mohs.train.robust import RECIPES

from machine import append_row, machine

COLUMNS = ("data", "labels", "setting", "epochs", "training images", "seed", "test accuracy", "held-out accuracy", "AP")
ENVIRONMENT = ("model", "batch", "seconds", "device", "git")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="DATA/LABELS/METHOD")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--model", default="resnet9")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate; 0: the default of `mohs train`")
    parser.add_argument("--images", type=int, help="number of training images; default: all")
    parser.add_argument("--held-out", type=int, default=0, help="number of training images held out")
    parser.add_argument("--embed", metavar="NAME", help="train on features of this embedder, as auto; default: on the images")
    parser.add_argument("--together", type=int, default=1, help="number of runs that share the GPU at a time")
    parser.add_argument("--compile", action="store_true", help="compile the networks with torch.compile")
    parser.add_argument("--check-every", type=int, default=10, help="number of epochs between accuracies on the way")
    parser.add_argument("--folder", type=Path, help="folder of the runs, to resume in; default: a temporary one")
    parser.add_argument("--out", type=Path, required=True, help="CSV to which rows are appended")
    args = parser.parse_args(words)
    plans = [(*text.split("/", 2), seed) for seed in args.seeds for text in args.runs]
    rows: list[dict[str, Any]] = []
    for start in range(0, len(plans), args.together):
        for row in measured(plans[start : start + args.together], args):
            print(*row.values(), flush=True)
            append_row(row, args.out)
            rows.append(row)
    print(compared(rows))


def measured(plans: list[Any], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of several runs that are trained at once."""
    common = {"model": args.model, "epochs": args.epochs, "batch": args.batch, "validation": 0.0, "compile": args.compile}
    runs = [
        mohs.Run(
            data=data,
            seed=seed,
            optimizer={"name": "sgd", "lr": args.lr} if args.lr else "sgd",
            check_every=args.check_every,
            **common,
            **method_of(method),
        )
        for data, _, method, seed in plans
    ]
    sets = [labeled(data, labels, seed, args.images, args.held_out, args.embed) for data, labels, _, seed in plans]
    found = dict(zip(map(id, runs), sets, strict=True))
    began = time.perf_counter()
    temporary = tempfile.TemporaryDirectory(dir=Path("/dev/shm") if Path("/dev/shm").exists() else None)
    with temporary if args.folder is None else nullcontext(args.folder) as folder:
        done = mohs.train_many(runs, lambda run: found[id(run)], folder=folder, together=args.together, watch=show)
    before = max(sum(line["seconds"] for line in trained.history) for trained in done)  # if it was resumed
    seconds = max(time.perf_counter() - began, before)
    return [row_of(plan, trained, data, seconds, args) for plan, trained, data in zip(plans, done, sets, strict=True)]


def show(event: dict[str, Any]) -> None:
    """Print the accuracies on the way, for a run that is stopped before its end."""
    if "test_accuracy" in event:
        kept = ("run", "epoch", "test_accuracy", "val_accuracy", "seconds")
        print({name: event[name] for name in kept if name in event}, flush=True)


def method_of(text: str) -> dict[str, Any]:
    """The field of a Run that this method sets."""
    spec = json.loads(text) if text.startswith("{") else as_spec(text)
    return {"recipe" if spec["name"] in RECIPES else "loss": spec}


@cache
def labeled(name: str, labels: str, seed: int, images: int | None, held_out: int, embedder: str | None) -> Data:
    """Data with these labels; `val` holds the images held out, with their true labels."""
    data = opened(name)
    train = data.train
    if labels != "clean":
        spec = labels if as_spec(labels)["name"] in NOISES else {"name": "human", "file": f"{name}n.npz:{labels}"}
        train = mohs.add_noise(train, spec, seed)
    made = Data(train, None, data.test)
    if images is not None or held_out:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
        kept = order[held_out : None if images is None else held_out + images].sort().values
        made = Data(train.take(kept), data.train.take(order[:held_out]) if held_out else None, data.test)
    return made if embedder is None else mohs.embed(made, embedder).data


@cache
def opened(name: str) -> Data:
    return mohs.open_data(name)


def row_of(plan: Any, trained: mohs.Trained, data: Data, seconds: float, args: argparse.Namespace) -> dict[str, Any]:
    name, labels, method, seed = plan
    here, shared = machine(), f", {args.together} runs at once" if args.together > 1 else ""
    shared += ", compiled" if args.compile else ""
    device = here["gpu"] if here["gpu"] != "none" else f"{here['cpu']}, {here['threads']} threads"
    accuracies = [trained.metrics.get(f"{split}_accuracy") for split in ("test", "val")]
    values = (name, labels, method, args.epochs, len(data.train), seed, *map(percent, accuracies), found_wrong(trained, data))
    about = (args.model, args.batch, round(seconds), f"{device}{shared}", here["commit"])
    return dict(zip(COLUMNS + ENVIRONMENT, values + about, strict=True))


def percent(share: float | None) -> float | str:
    return "" if share is None else round(100 * share, 2)


def found_wrong(trained: mohs.Trained, data: Data) -> float | str:
    """Average precision of finding wrong labels by the belief in them; empty without a belief or without wrong labels."""
    train = data.train
    if trained.targets is None or train.truth is None:
        return ""
    own = trained.targets.gather(1, train.labels.unsqueeze(1)).squeeze(1)
    return round(float(average_precision_score(train.labels != train.truth, -own)), 4)


def compared(rows: list[dict[str, Any]]) -> str:
    """Mean test accuracy and AP by labels and setting, and the difference to the first setting of the labels, as Markdown."""
    lines = ["| labels | setting | seeds | test accuracy | difference [95 % interval] | AP |", "|---" * 6 + "|"]
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):  # the runs of a setting in the order of their seeds
        groups.setdefault((row["data"], row["labels"]), {}).setdefault(row["setting"], []).append(row)
    for (data, labels), settings in groups.items():
        first = [float(row["test accuracy"]) for row in next(iter(settings.values()))]
        for place, (setting, own) in enumerate(settings.items()):
            found = [float(row["test accuracy"]) for row in own]
            ranked = [float(row["AP"]) for row in own if row["AP"] not in ("", None)]
            ap = f"{fmean(ranked):.3f}" if ranked else ""
            apart = difference(found, first) if place else ""
            lines.append(f"| {data}, {labels} | {setting} | {len(own)} | {fmean(found):.2f} | {apart} | {ap} |")
    return "\n".join(lines)


def difference(found: list[float], first: list[float]) -> str:
    """The difference of means of runs with the same seeds, and its interval from two runs on."""
    if len(found) != len(first) or len(found) < 2:
        return f"{fmean(found) - fmean(first):+.2f}"
    test = paired(found, first)
    return f"{test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}]"


if __name__ == "__main__":
    main()
