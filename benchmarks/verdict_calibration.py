"""How right the verdict's probabilities are on data that played no part in making the rule: digits and Fashion-MNIST.

    MOHS_DATA=... python benchmarks/verdict_calibration.py [--seeds 5]

A small MLP trained with GCE on labels of which a known share was moved, at random ("symmetric") or to the next class
("next"); `mohs.verdict` on the record of its training steps. Mean ± SD over the seeds.
"""

from __future__ import annotations

import argparse
import gzip

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import mohs

from cifar import folder
from wrong_labels_score import calibration_error


def fashion(n: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder() / "fashion-mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[:n] / 255
    with gzip.open(folder() / "fashion-mnist" / "train-labels-idx1-ubyte.gz") as file:
        return pixels, np.frombuffer(file.read(), np.uint8, offset=8)[:n].astype(np.int64)


def digits() -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = load_digits(return_X_y=True)
    return pixels / 16, labels


def judge(pixels: np.ndarray, clean: np.ndarray, rate: float, kind: str, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    x, truth = torch.tensor(pixels, dtype=torch.float32), torch.tensor(clean)
    step = torch.randint(1, 10, truth.shape) if kind == "symmetric" else torch.ones_like(truth)
    y = torch.where(torch.rand(len(x)) < rate, (truth + step) % 10, truth)
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    loss, optimizer = mohs.GeneralizedCrossEntropyLoss(q=0.7), torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
    recorder = mohs.Recorder(len(x))
    for _ in range(20):
        for ids in torch.randperm(len(x)).split(64):
            logits = net(x[ids])
            optimizer.zero_grad()
            loss(logits, y[ids]).backward()
            optimizer.step()
            recorder.update(ids, logits, y[ids])
    p = mohs.verdict(recorder.table()).column("p_mislabeled").to_numpy()
    wrong, flagged = (y != truth).numpy(), p > 0.5
    recall = (wrong & flagged).sum() / max(wrong.sum(), 1)
    told = {
        "ap": average_precision_score(wrong, p) if wrong.any() else np.nan,
        "precision": wrong[flagged].mean() if flagged.any() else 1,
    }
    return told | {"recall": recall, "mean p": p.mean(), "calibration error": calibration_error(p, wrong)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    for name, (pixels, labels) in (("digits", digits()), ("fashion-mnist, 10,000", fashion())):
        for kind in ("symmetric", "next"):
            for rate in (0.0, 0.05, 0.1, 0.2, 0.4):
                runs = [judge(pixels, labels, rate, kind, seed) for seed in range(seeds)]
                cells = {key: [run[key] for run in runs] for key in runs[0]}
                told = "  ".join(f"{key} {np.mean(cell):.3f} ± {np.std(cell, ddof=1):.3f}" for key, cell in cells.items())
                print(f"{name:<22} {kind:<10} {rate:.2f}  {told}", flush=True)


if __name__ == "__main__":
    main()
