"""Which hardness score ranks CIFAR-10's test images as people do? Correlations with the annotators of CIFAR-10H.

    MOHS_DATA=... python benchmarks/human_agreement.py [--models resnet9 resnet20 vgg] [--seeds 2] [--epochs 25] [--out FILE.csv]

Trains each network with `mohs.train`, computes the hardness scores of the test images and compares each with the share of
annotators who chose the label (`compare_scores`): Spearman's ρ with a bootstrap interval, and the difference to confidence with
paired tests. One row per network, seed and score. A GPU takes about a minute per network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import mohs
from mohs.hardness.agreement import compare_scores, human_agreement
from mohs.hardness.measure import measure
from mohs.studies.measures.human import votes_for
from mohs.studies.measures.test_outputs import outputs_of
from mohs.train.run_data import opened

from machine import machine, write_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["resnet9", "resnet20", "vgg"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--limit", type=int, help="examples per class, for a quick trial")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as runs:
        for model in args.models:
            for seed in range(args.seeds):
                rows += scored(model, seed, args, Path(runs))
    print(json.dumps(machine()))
    if args.out:
        write_rows([row | {"git": machine()["commit"]} for row in rows], args.out)


def scored(model: str, seed: int, args: argparse.Namespace, runs: Path) -> list[dict[str, object]]:
    """Train one network; the correlation of each of its scores with human agreement."""
    limit = {} if args.limit is None else {"limit": args.limit}
    settings = {"model": model, "epochs": args.epochs, "seed": seed, "validation": 0.0, "check_every": args.epochs}
    run = mohs.Run(data="cifar10", record=False, open=limit, **settings)
    trained = mohs.train(run, runs=runs)
    test = opened(run).test
    agreement = human_agreement(votes_for(test, "cifar10h.npz"), test.labels.numpy())
    out = outputs_of(trained, test)
    columns = measure(out.logits, test.labels, out.features, out.weight)
    scores = {name: columns[name] for name in mohs.SCORES if name in columns}
    found = compare_scores(scores, agreement, reference="confidence", resamples=args.resamples)
    about = {"model": model, "seed": seed, "test_accuracy": round(trained.history[-1]["test_accuracy"], 4)}
    for row in found:
        print(f"{model} {seed}  {row['score']:<16} {row['value']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]", flush=True)
    return [
        about | {name: round(value, 5) if isinstance(value, float) else value for name, value in row.items()} for row in found
    ]


if __name__ == "__main__":
    main()
