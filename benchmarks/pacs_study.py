"""Domains that training never saw (AVH paper, Table 5): PACS at 64×64, train on three domains and test on the fourth.

    MOHS_DATA=... python benchmarks/pacs_study.py --out results/avh [--held photo sketch] [--seeds 0 1 2] [--scale smoke]

CNN-10 without pretraining, with a linear head and cross-entropy, the Encouraging Loss or Gradient Rescaling, and with the heads
NormFace, CosFace and AVH. The scale of each head is chosen with the first seed, by accuracy on a tenth of the source domains held
out; the domain that is tested takes no part in it. The last epoch counts. The paper starts from ImageNet at 224×224: numbers
here are lower for all. Writes pacs.csv (a line a domain, method and seed, and the mean over domains); called again, it
adds to it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mohs.data.domains import leave_one_out, open_domains
from mohs.data.examples import Data, Examples
from mohs.study.collect import Result
from mohs.study.data import limited
from mohs.train.many import train_many
from mohs.train.run import Run
from mohs.train.trained import Trained
from study_rows import headed, merged, table, verdicts

STUDY = "avh/pacs"
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
SMOKE_DOMAINS = ("digits", "digits:rotate=20")
SCALES = (5.0, 10.0, 20.0)
PLAIN: dict[str, dict[str, Any]] = {
    "cross-entropy": {},
    "encouraging": {"loss": "encouraging"},
    "gradient rescaling": {"loss": "gradient_rescaling"},
}
HEADS: dict[str, dict[str, Any]] = {
    "NormFace": {"name": "normface"},
    "CosFace": {"name": "cosface", "margin": 0.2},
    "AVH": {"name": "avh"},
}
FULL: dict[str, Any] = {
    "model": "cnn10",
    "epochs": 25,
    "batch": 64,
    "optimiser": "sgd:lr=0.03,weight_decay=0.0005",
    "augment": [{"name": "crop_flip", "padding": 6}],
}
SMOKE: dict[str, Any] = {"model": "cnn", "epochs": 1, "batch": 32, "augment": []}


def runs_of(held: str, scale: str, seed: int, methods: dict[str, dict[str, Any]]) -> dict[str, Run]:
    """A run for every method; its data are named by the domain that is held out."""
    settings = FULL if scale == "full" else SMOKE
    shared = {"data": f"without {held}", "seed": seed, "noise_seed": 0, "record": False, "check_every": settings["epochs"]}
    return {method: Run(**settings, **shared, **own) for method, own in methods.items()}


def with_scales() -> dict[str, dict[str, Any]]:
    """Every head with every scale."""
    return {f"{method} {scale:g}": {"head": {**head, "scale": scale}} for method, head in HEADS.items() for scale in SCALES}


def best_scales(done: dict[str, Trained]) -> dict[str, float]:
    """For each head the scale with the best accuracy on the held-out source; the smaller of equals."""
    found = {}
    for method in HEADS:
        value = {scale: done[f"{method} {scale:g}"].history[-1]["val_accuracy"] for scale in SCALES}
        found[method] = max(SCALES, key=lambda scale, value=value: value[scale])
    return found


def one_domain(domains: dict[str, Examples], held: str, asked: argparse.Namespace) -> list[Result]:
    """All methods and seeds with this domain held out."""
    others, test = leave_one_out(domains, held)
    data = Data(others, None, test)

    def trained(runs: dict[str, Run]) -> dict[str, Trained]:
        done = train_many(list(runs.values()), data, folder=asked.runs, together=asked.together)
        return dict(zip(runs, done, strict=True))

    first, *rest = asked.seeds
    done = {first: trained(runs_of(held, asked.scale, first, {**PLAIN, **with_scales()}))}
    chosen = best_scales(done[first])
    done[first] |= {method: done[first][f"{method} {scale:g}"] for method, scale in chosen.items()}
    methods = {**PLAIN, **{method: {"head": {**HEADS[method], "scale": scale}} for method, scale in chosen.items()}}
    later = {(method, seed): run for seed in rest for method, run in runs_of(held, asked.scale, seed, methods).items()}
    found = trained({f"{seed} {method}": run for (method, seed), run in later.items()})
    for method, seed in later:
        done.setdefault(seed, {})[method] = found[f"{seed} {method}"]
    return [line(held, method, seed, done[seed][method], chosen, asked.scale) for seed in asked.seeds for method in methods]


def line(held: str, method: str, seed: int, done: Trained, chosen: dict[str, float], scale: str) -> Result:
    """A line of pacs.csv."""
    last = done.history[-1]
    numbers = {name: last.get(name) for name in ("test_accuracy", "val_accuracy", "accuracy")}
    return headed(STUDY, held, method, seed, scale=scale, epochs=len(done.history), head_scale=chosen.get(method), **numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held", nargs="+", default=None)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--together", type=int, default=6, help="runs that share the GPU")
    parser.add_argument("--runs", type=Path, default=Path("runs/pacs"))
    parser.add_argument("--scale", choices=("full", "smoke"), default="full")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    names = DOMAINS if asked.scale == "full" else SMOKE_DOMAINS
    domains = open_domains("pacs" if asked.scale == "full" else list(names))
    if asked.scale == "smoke":
        domains = {name: limited(replace(part, keys=None), 20) for name, part in domains.items()}
    results: list[Result] = []
    for held in asked.held or names:
        began = time.perf_counter()
        results = merged(one_domain(domains, held, asked), asked.out / "pacs.csv", parts=names)
        print(f"without {held}: {time.perf_counter() - began:.0f} s", flush=True)
    methods = [*PLAIN, *HEADS]
    print(table(results, "test_accuracy", parts=names, methods=methods), end="\n\n")
    for worse in ("cross-entropy", "NormFace", "CosFace"):
        print(verdicts(results, "test_accuracy", "AVH", worse, parts=names))


if __name__ == "__main__":
    main()
