"""ResNet-20 on CIFAR-10 by the standard recipe: does `mohs.train_many` reach the published accuracy?

    MOHS_DATA=... python benchmarks/resnet20.py [--seeds 3] [--epochs 164] [--out results/train]

SGD with learning rate 0.1, momentum 0.9 and weight decay 1e-4, batch size 128; the learning rate is divided by 10 after 1/2 and
3/4 of the epochs; random crops with padding 4, and flips; all 50,000 training images. The test set is evaluated every tenth
epoch, and the accuracy of the last epoch is reported (He et al., "Deep residual learning", CVPR 2016: 91.25 %). On a GPU the
seeds train at once.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from pathlib import Path

import mohs

from machine import machine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=164)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--out", type=Path, default=Path("results/train"))
    args = parser.parse_args()
    shared = {
        "data": args.data,
        "model": "resnet20",
        "epochs": args.epochs,
        "batch": 128,
        "validation": 0.0,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
        "schedule": {"name": "step", "at": [0.5, 0.75], "factor": 0.1},
        "augment": [{"name": "crop_flip", "padding": 4}],
        "check_every": 10,
    }
    runs = [mohs.Run(**shared, seed=seed) for seed in range(args.seeds)]  # type: ignore[arg-type]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = mohs.train_many(runs, folder=folder)  # each run opens its data: those without a test set get one
    seconds = time.perf_counter() - began
    rows = [
        {
            "seed": one.run.seed,
            "epoch": line["epoch"],
            "loss": line["loss"],
            "accuracy": line["accuracy"],
            "test": line["test_accuracy"],
        }
        for one in done
        for line in one.history
        if "test_accuracy" in line
    ]
    last = [one.history[-1].get("test_accuracy", float("nan")) for one in done]
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "resnet20.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*(rows[0] if rows else ["seed"]), "git"])
        writer.writeheader()
        writer.writerows(row | {"git": machine()["commit"]} for row in rows)
    spread = statistics.stdev(last) if len(last) > 1 else 0.0
    about = {
        "machine": machine(),
        "run": shared,
        "test_accuracy": last,
        "mean": statistics.mean(last),
        "sd": spread,
        "seconds": seconds,
    }
    (args.out / "resnet20.json").write_text(json.dumps(about, indent=1) + "\n")
    print(json.dumps(about))


if __name__ == "__main__":
    main()
