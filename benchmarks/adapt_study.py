"""Self-training by angle and by confidence (AVH paper, Tables 3 and 4, Figures 6 and 21): digits and CIFAR-10 for VisDA.

    MOHS_DATA=... python benchmarks/adapt_study.py --out results/avh [--pairs "mnist->usps"] [--seeds 0 1 2] [--scale smoke]

For every pair and seed one network is trained on the source; from it every selection goes on by itself for five rounds, with
the portion of the target growing from 20 % to 40 %. The target's test set is what counts; its labels are used for nothing else.
Table 4 is of round 1, where all selections choose from the same outputs. Source only: round 0.
Writes adapt.csv (a line a pair, method and seed, and the mean over pairs), adapt-rounds.csv (a line a round) and, for the
first seed, a picture of what was selected by angle and not by confidence. Called again, it adds to what is there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mohs.data.domains import open_pair
from mohs.data.examples import Data
from mohs.data.picture_grid import picture_grid
from mohs.study.collect import Result, write_results
from mohs.study.data import limited
from mohs.train.run import Run
from mohs.train.selftrain import Adapted, adapt
from study_rows import headed, merged, table, verdicts

STUDY = "avh/adapt"
SOURCE = "source only"
METHODS = {
    "CBST": "cbst",
    "CBST + AVH": "cbst_avh",
    "CRST": "crst",
    "MRKLD": "mrkld",
    "confidence": "confidence",
    "AVH only": "avh",
    "by lot": "random",
}
DIGITS: dict[str, Any] = {"model": "cnn:width=32", "epochs": 12, "batch": 128, "optimiser": "sgd:lr=0.1", "validation": 0.1}
PAIRS: dict[str, dict[str, Any]] = {  # limit: examples a class, of source and target
    "mnist->usps": {"run": DIGITS, "limit": (1000, 1000), "again": {"epochs": 4, "optimiser": "sgd:lr=0.03"}},
    "usps->mnist": {"run": DIGITS, "limit": (1000, 1000), "again": {"epochs": 4, "optimiser": "sgd:lr=0.03"}},
    "cifar10->cifar10:contrast=0.5": {
        "run": {"model": "resnet9", "epochs": 20, "batch": 256, "optimiser": "sgd:lr=0.1,nesterov=True", "schedule": "one_cycle"},
        "limit": (1000, 1000),
        "again": {"epochs": 4, "optimiser": "sgd:lr=0.03,nesterov=True"},
    },
}
SMOKE: dict[str, dict[str, Any]] = {
    "digits->digits:rotate=20": {"run": {"model": "cnn", "epochs": 3, "batch": 32}, "limit": (40, 40), "again": {"epochs": 1}},
    "digits->digits:blur=1": {"run": {"model": "cnn", "epochs": 3, "batch": 32}, "limit": (40, 40), "again": {"epochs": 1}},
}
PORTION = (0.20, 0.05, 0.50)
Work = tuple[str, dict[str, Any], int, int, list[str], str, Path]  # pair, settings, seed, rounds, methods, scale, out


def opened(pair: str, settings: dict[str, Any]) -> tuple[Data, Data]:
    """Source and target, with as many examples of each class as the study takes; the test set is whole."""
    source, target = open_pair(pair)
    return Data(limited(source.train, settings["limit"][0])), Data(limited(target.train, settings["limit"][1]), None, target.test)


def one_seed(asked: Work) -> tuple[list[Result], list[Result]]:
    """All methods of one pair and seed, from one source network."""
    pair, settings, seed, rounds, methods, scale, out = asked
    source, target = opened(pair, settings)
    run = Run(data=pair, seed=seed, record=False, **settings["run"])
    lines: list[Result] = []
    every: list[Result] = []
    with tempfile.TemporaryDirectory() as place:
        first = None
        for method in methods:
            began = time.perf_counter()
            again = {"record": False, **settings["again"]}
            done = adapt(
                source.train, target.train, run=run, folder=Path(place) / method, selection=METHODS[method], rounds=rounds,
                portion=PORTION, again=again, test=target.test, first=first,
            )  # fmt: skip
            if first is None:  # the next methods begin with the same network
                first = done.network_of(0)
                lines.append(result(pair, SOURCE, seed, scale, run, done.rounds[:1]))
            lines.append(result(pair, method, seed, scale, run, done.rounds))
            every += [
                {"study": STUDY, "row": f"{pair}: {method}", "seed": seed, "scale": scale, "select": "last", "epochs": run.epochs}
                | {name: float(value) for name, value in line.items() if isinstance(value, int | float)}
                for line in done.rounds
            ]
            print(f"{pair} {seed} {method}: {last(done):.4f} ({time.perf_counter() - began:.0f} s)", flush=True)
            if METHODS[method] == "cbst_avh":
                pictured(done, target, out / f"adapt-only-by-angle-{slug(pair)}-{seed}.png")
    return lines, every


def last(done: Adapted) -> float:
    """The accuracy that counts: on the target's test set, or on the target where it has none."""
    line = done.rounds[-1]
    return float(line.get("test_accuracy", line["target_accuracy"]))


def result(pair: str, method: str, seed: int, scale: str, run: Run, rounds: list[dict[str, Any]]) -> Result:
    """The line of adapt.csv: the last round, and what round 1 selected (Table 4)."""
    line, chosen = rounds[-1], rounds[min(1, len(rounds) - 1)]
    numbers = {"test_accuracy": line.get("test_accuracy", line["target_accuracy"])}
    numbers |= {name: line.get(name) for name in ("target_accuracy", "source_accuracy", "target_avc", "target_entropy")}
    numbers |= {f"first_{name}": chosen.get(name) for name in ("selected", "true", "avc", "confidence", "norm", "only_here")}
    numbers |= {f"last_{name}": line.get(name) for name in ("selected", "true", "avc", "confidence", "norm")}
    return headed(STUDY, pair, method, seed, scale=scale, epochs=run.epochs, **numbers)


def pictured(done: Adapted, target: Data, path: Path) -> None:
    """Figure 21: what round 1 selected by angle and not by confidence."""
    places, labels = done.only_here(1)
    if len(places):
        path.parent.mkdir(parents=True, exist_ok=True)
        captions = [str(target.classes[k]) for k in labels[:48].tolist()]
        picture_grid(target.train, places[:48].tolist(), captions=captions).save(path)


def slug(pair: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in pair.replace("->", "-to-"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="+", default=None)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8, help="processes that share the GPU")
    parser.add_argument("--scale", choices=("full", "smoke"), default="full")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    known = PAIRS if asked.scale == "full" else SMOKE
    pairs = asked.pairs or list(known)
    for pair in pairs:
        if pair not in known:
            parser.error(f"unknown pair {pair!r}; known: {', '.join(known)}")
    work = [
        (pair, known[pair], seed, asked.rounds, asked.methods, asked.scale, asked.out) for seed in asked.seeds for pair in pairs
    ]
    work.sort(key=lambda one: one[0])  # CIFAR-10, the longest, first
    every: list[Result] = []
    for lines, rounds in finished(work, asked.workers):  # filed as they come: what is done survives a command that is cut short
        results = merged(lines, asked.out / "adapt.csv", parts=list(known))
        every = sorted([*every, *rounds], key=lambda one: (one["row"], one["seed"]))
        write_results(every, rounds_file(asked, pairs))
    for metric in ("test_accuracy", "first_true", "first_confidence", "first_avc"):
        print(table(results, metric, parts=list(known), methods=[SOURCE, *METHODS]), end="\n\n")
    print(verdicts(results, "test_accuracy", "CBST + AVH", "CBST", parts=list(known)))


def finished(work: list[Work], workers: int) -> Iterator[tuple[list[Result], list[Result]]]:
    """What comes of each piece of work, as it ends; several processes share the GPU."""
    if workers == 1:
        yield from map(one_seed, work)
        return
    threads = max(1, (os.cpu_count() or 2) // workers)
    with multiprocessing.get_context("spawn").Pool(min(workers, len(work)), torch.set_num_threads, (threads,)) as pool:
        yield from pool.imap_unordered(one_seed, work, chunksize=1)


def rounds_file(asked: argparse.Namespace, pairs: list[str]) -> Path:
    """All rounds in one file; a command for some pairs only writes one beside it."""
    some = "" if asked.pairs is None else f"-{'-'.join(slug(pair) for pair in pairs)}"
    return Path(asked.out) / f"adapt-rounds{some}.csv"


if __name__ == "__main__":
    main()
