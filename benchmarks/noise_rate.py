"""How close does `mohs.estimate_noise` come to the true share of wrong labels?

    [MOHS_DATA=...] python benchmarks/noise_rate.py [--seeds 3] [--examples 5000] [--out results/noise_rate-2.csv]

Adds label noise of a known rate to digits and, if MOHS_DATA is set, to MNIST and Fashion-MNIST. Estimates the rate from
out-of-fold heads on the pixels (`mohs.out_of_fold`) and from the dynamics of a training run (`mohs.train`). One row per estimate:
the truth, the estimate, its 95 % interval and whether the interval contains the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import torch

import mohs
from mohs.hardness.noise_rate import NoiseEstimate
from mohs.train.run_data import limited

from machine import machine, write_rows

RATES = {"symmetric": (0.0, 0.05, 0.1, 0.2, 0.4), "pair": (0.05, 0.1, 0.2, 0.4)}
LOSSES = ("cross_entropy", "gce")
Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ["digits", *(["mnist", "fashion-mnist"] if "MOHS_DATA" in os.environ else [])]
    parser.add_argument("--data", nargs="+", default=known)
    parser.add_argument("--rates", nargs="+", type=float, help="rates of symmetric and pair noise; default: 0 to 0.4")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=5000, help="number of training examples per data set")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    for name in args.data:
        train = mohs.open_data(name).train
        train = limited(train, args.examples // len(train.classes))
        for kind, rates in RATES.items():
            for rate in args.rates or rates:
                for seed in range(args.seeds):
                    noisy = mohs.add_noise(train, {"name": kind, "rate": rate}, seed)
                    about = {"data": name, "noise": kind, "rate": rate, "seed": seed}
                    rows += [about | found for found in estimates(noisy, seed, args.epochs)]
            print(summary(name, kind, [row for row in rows if (row["data"], row["noise"]) == (name, kind)]), flush=True)
    print(json.dumps(machine()))
    if args.out:
        write_rows([row | {"git": machine()["commit"]} for row in rows], args.out)


def estimates(noisy: mohs.Examples, seed: int, epochs: int) -> Iterator[Row]:
    """The estimate from five folds on the pixels, and from the dynamics of a network trained with each loss."""
    features = noisy.inputs[torch.arange(len(noisy))].flatten(1).float() / 255
    outputs = mohs.out_of_fold(features, noisy.labels, seed=seed)
    yield row("out of fold", noisy, mohs.estimate_noise(noisy.labels, outputs.judgment.probs, seed=seed))
    for loss in LOSSES:
        with tempfile.TemporaryDirectory() as folder:
            run = mohs.Run(model="cnn", loss=loss, epochs=epochs, seed=seed, validation=0.0)
            trained = mohs.train(run, mohs.Data(noisy), out=folder)
        yield row(f"dynamics, {loss}", noisy, mohs.estimate_noise(table=trained.table))


def row(source: str, noisy: mohs.Examples, found: NoiseEstimate) -> Row:
    wrong = float((noisy.labels != noisy.truth).double().mean())
    numbers = {"wrong": wrong, "estimate": found.rate, "low": found.low, "high": found.high}
    held = int(found.low <= wrong <= found.high)
    return {"source": source, **{name: round(value, 4) for name, value in numbers.items()}, "kind": found.kind, "holds": held}


def summary(name: str, kind: str, rows: list[Row]) -> str:
    lines = []
    for source in dict.fromkeys(row["source"] for row in rows):
        own = [row for row in rows if row["source"] == source]
        error, held = mean(abs(row["estimate"] - row["wrong"]) for row in own), mean(row["holds"] for row in own)
        lines.append(f"{name:<14} {kind:<10} {source:<24} n {len(own):>3}  mean abs. error {error:.3f}  coverage {held:.0%}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
