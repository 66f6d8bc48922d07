"""Finding wrong labels, first half: train on CIFAR-10 with doubtful labels and save what the networks say (a GPU's work).

    MOHS_DATA=... python benchmarks/wrong_labels_train.py --sets worse aggre sym20 --seeds 0 1 2 --out FOLDER

For each set of labels and seed, one file FOLDER/<set>-<seed>.npz with the outputs of
  ce       cross-entropy on all of the data: what AUM reads (`aum_steps`: from the training steps, as its package does)
  gce      generalized cross-entropy (q = .7) on all of the data
  second   the same again, with labels that the first network holds for less likely than not (margin < 0) replaced
           by its prediction; scores still are those of the given labels
  folds    cross-entropy, five folds, out of sample: what cleanlab reads
The second half, `wrong_labels_score.py`, compares detectors on these files wherever cleanlab is installed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn.functional import normalize

import mohs

from cifar import given_labels, images
from machine import machine
from quick_train import DEVICE, Outcome, Recipe, outputs, prepare, train

FOLDS = 5
NEIGHBORS = 20


def saved(done: Outcome, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    """All that a run leaves for the scoring half, in half precision."""
    logits, features = outputs(done.net, x, flips=True)
    table = done.record.table()
    columns = {
        name: table.column(name).to_numpy() for name in ("aum", "mean_margin", "mean_confidence", "variability", "mean_avh")
    }
    columns |= {name: table.column(name).to_numpy() for name in ("forgetting", "first_learned")}
    columns |= {"logits": logits.cpu().numpy(), "neighbors": agreement(features, y)}
    if done.steps is not None:
        steps = done.steps.table()
        columns |= {
            f"{name}_steps": steps.column(name).to_numpy() for name in ("aum", "mean_margin", "mean_confidence", "variability")
        }
    return {name: value.astype(np.float16) for name, value in columns.items()}


@torch.no_grad()
def agreement(features: Tensor, y: Tensor) -> np.ndarray:
    """How many of the nearest neighbors (cosine) bear each class (N, K)."""
    unit = normalize(features).half() if DEVICE.type == "cuda" else normalize(features)
    counts = []
    for part, start in zip(unit.split(2000), range(0, len(unit), 2000), strict=True):
        near = part @ unit.T
        near[torch.arange(len(part), device=DEVICE), start + torch.arange(len(part), device=DEVICE)] = -2
        votes = y[near.topk(NEIGHBORS).indices]
        counts.append(torch.nn.functional.one_hot(votes, 10).sum(1))
    return torch.cat(counts).cpu().numpy()


def folds(x: Tensor, y: Tensor, recipe: Recipe) -> np.ndarray:
    """Out-of-fold logits (N, K) of cross-entropy."""
    part = torch.randperm(len(x), generator=torch.Generator().manual_seed(recipe.seed)).to(DEVICE) % FOLDS
    logits = torch.zeros(len(x), 10, device=DEVICE)
    for fold in range(FOLDS):
        held = part == fold
        quick = Recipe(**{**vars(recipe), "seed": recipe.seed * 100 + fold})
        done = train(x[~held], y[~held], mohs.CrossEntropyLoss(), quick, watch=(x[held][:256], y[held][:256]))
        logits[held] = outputs(done.net, x[held])[0]
    return logits.cpu().numpy().astype(np.float16)


def precision(name: str, wrong: np.ndarray, suspicion: np.ndarray) -> str:
    return f"{name} {average_precision_score(wrong, suspicion):.4f}"


def run(kind: str, seed: int, x: Tensor, clean: np.ndarray, test: tuple[Tensor, Tensor], asked: argparse.Namespace) -> None:
    """One set of labels and one seed: train, save, and say in a line how well the margins find the wrong labels."""
    given = given_labels(kind, clean, seed=seed)[: len(x)]
    wrong, y = given != clean[: len(x)], torch.from_numpy(given).to(DEVICE)
    labels, columns, told, began = y, {}, [], time.perf_counter()
    for name in asked.runs:
        loss = mohs.CrossEntropyLoss() if name == "ce" else mohs.GeneralizedCrossEntropyLoss(q=0.7)
        again = name == "second"
        recipe = Recipe(epochs=asked.epochs, seed=seed + 50 * again)
        done = train(x, labels if again else y, loss, recipe, watch=(x, y) if again else None, record_steps=not again)
        mine = saved(done, x, y)
        columns |= {f"{name}_{column}": value for column, value in mine.items()}
        logits = torch.from_numpy(mine["logits"]).float()
        m = mohs.margin(logits, torch.from_numpy(given))
        if name == "gce":
            labels = torch.where(m < 0, logits.argmax(1), torch.from_numpy(given)).to(DEVICE)
        accuracy = float((outputs(done.net, test[0])[0].argmax(1) == test[1]).float().mean())
        columns[f"{name}_test_accuracy"] = np.array(accuracy)
        told += [f"{name} test {accuracy:.4f}", precision("margin", wrong, -m.numpy()), precision("aum", wrong, -mine["aum"])]
    columns["folds_logits"] = folds(x, y, Recipe(epochs=asked.epochs, seed=seed))
    p = torch.softmax(torch.from_numpy(columns["folds_logits"]).float(), 1)[torch.arange(len(x)), torch.from_numpy(given)]
    print(
        f"{kind} {seed}: {'; '.join(told)}; {precision('folds', wrong, -p.numpy())}; {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    np.savez_compressed(asked.out / f"{kind}-{seed}.npz", given=given.astype(np.uint8), **columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["worse", "aggre", "sym20"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", nargs="+", default=["ce", "gce"], help="ce, gce, second (which needs gce before it)")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--examples", type=int, default=50_000, help="fewer for a smoke test")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    asked.out.mkdir(parents=True, exist_ok=True)
    pixels, clean = images("train")
    held, held_labels = images("test")
    x = prepare(pixels[: asked.examples])
    test = prepare(held[: asked.examples]), torch.from_numpy(held_labels[: asked.examples]).to(DEVICE)
    (asked.out / "machine.json").write_text(json.dumps({**machine(), "epochs": asked.epochs}, indent=1))
    for seed in asked.seeds:
        for kind in asked.sets:
            run(kind, seed, x, clean, test, asked)


if __name__ == "__main__":
    main()
