"""Human hardness, first half: networks trained on CIFAR-10 with clean labels, and what they say of every test image.

    MOHS_DATA=... python benchmarks/human_train.py --nets resnet9 resnet20 vgg --seeds 0 1 --out FOLDER

One file FOLDER/human-<net>-<seed>.npz: measurements at the end of training and averaged over its epochs, by column.
The second half, `human_score.py`, correlates them with CIFAR-10H.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import mohs
from mohs.hardness.angular import avc, avh
from mohs.hardness.snapshot import measure_logits, norm, norm_in_class

from cifar import images
from quick_train import DEVICE, Recipe, outputs, prepare, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=["resnet9", "resnet20", "vgg"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--examples", type=int, default=50_000, help="fewer for a smoke test")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    asked.out.mkdir(parents=True, exist_ok=True)
    (pixels, labels), (held, held_labels) = images("train"), images("test")
    x, y = prepare(pixels[: asked.examples]), torch.from_numpy(labels[: asked.examples]).to(DEVICE)
    test, truth = prepare(held[: asked.examples]), torch.from_numpy(held_labels[: asked.examples]).to(DEVICE)
    for seed in asked.seeds:
        for name in asked.nets:
            began = time.perf_counter()
            done = train(x, y, mohs.CrossEntropyLoss(), Recipe(net=name, epochs=asked.epochs, seed=seed), watch=(test, truth))
            logits, features = outputs(done.net, test)
            weight, length = done.net.head.weight.detach(), norm(features)
            columns = measure_logits(logits, truth)
            columns |= {"avh": avh(features, weight, truth), "avc": avc(features, weight)}
            columns |= {"norm": length, "norm_in_class": norm_in_class(length, truth)}
            table = done.record.table()
            kept = ("aum", "mean_margin", "mean_confidence", "variability", "mean_avh", "forgetting", "first_learned")
            arrays = {key: value.float().cpu().numpy() for key, value in columns.items()}
            arrays |= {key: table.column(key).to_numpy().astype(np.float32) for key in kept}
            accuracy = float((logits.argmax(1) == truth).float().mean())
            print(f"{name} {seed}: accuracy {accuracy:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
            np.savez_compressed(asked.out / f"human-{name}-{seed}.npz", accuracy=accuracy, **arrays)


if __name__ == "__main__":
    main()
