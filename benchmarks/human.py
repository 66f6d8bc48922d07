"""Which network predicts how many people would choose the label? Trained on the votes of CIFAR-10N, tested on CIFAR-10H.

    MOHS_DATA=... python benchmarks/human.py train OUT [--plan explore] [--minutes 6.5] [--smoke]
    MOHS_DATA=... python benchmarks/human.py table OUT
    MOHS_DATA=... python benchmarks/human.py file OUT OUT2 --resamples 1000        writes results/human.csv and human.json

`train` trains networks with `mohs.train` on the shares of the three votes (`random1..3`) of CIFAR-10N's training images, each on
four fifths of them, and writes their logits on the other fifth and on the test images, for each image as it is, with its mirror
image ("mirror"), and with shifted copies too ("views"). Everything is chosen on that held-out fifth: the votes of CIFAR-10H are
read by `table` and `file` alone. A network that would not fit into the remaining time is skipped.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

import mohs
from mohs._core.device import choose_device
from mohs.data.examples import Data, Examples
from mohs.data.votes import vote_shares
from mohs.evaluate.outputs import predict
from mohs.hardness.agreement import correlation, human_agreement
from mohs.studies.measures.human import votes_for
from mohs.train.ema import average_decay
from mohs.train.run_data import limited

from machine import machine

VOTES = "cifar10n.npz:random1,random2,random3"
FILE_BYTES = 14 << 20
SGD, ADAMW = {"name": "sgd", "lr": 0.3, "nesterov": True}, "adamw:lr=0.002,weight_decay=0.02"
CROP = "crop_flip:padding=4"


@dataclass(frozen=True)
class Variant:
    """One way to train; seconds: what it is expected to take on one H200; labels: on the labels, not the votes."""

    model: str
    epochs: int
    seconds: float
    labels: bool = False
    averaged: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def run(self, seed: int, examples: int) -> mohs.Run:
        """The run on this many examples."""
        lite = self.model.startswith("efficientnet")
        batch = min(256 if lite else 512, max(8, examples // 4))
        common = {"optimizer": ADAMW, "schedule": "cosine:warmup=0.2"} if lite else {"optimizer": SGD}
        chosen = {"augment": [CROP], "batch": batch, **common, **self.settings}
        ema = average_decay(self.epochs * max(1, examples // batch)) if self.averaged else None
        about = {"data": "cifar10", "model": self.model, "epochs": self.epochs, "ema": ema}
        return mohs.Run(**about, **chosen, validation=0.0, record=False, check_every=self.epochs, seed=seed)


def lite(net: str, size: int) -> str:
    return f"efficientnet_lite:net={net},size={size}"


MIXUP = {"augment": [CROP, "mixup:alpha=1.0"]}
VARIANTS = {
    "resnet9, labels": Variant("resnet9", 15, 14, labels=True),
    "resnet9": Variant("resnet9", 15, 14),
    "resnet9, last weights": Variant("resnet9", 15, 14, averaged=False),
    "resnet9, 8 epochs": Variant("resnet9", 8, 9),
    "resnet9, mixup": Variant("resnet9", 15, 14, settings=MIXUP),
    "resnet9, mixup, 30 epochs": Variant("resnet9", 30, 27, settings=MIXUP),
    "resnet18, mixup": Variant("resnet18", 15, 60, settings=MIXUP),
    "lite0 96": Variant(lite("lite0", 96), 4, 22),
    "lite0 128": Variant(lite("lite0", 128), 4, 32),
    "lite0 128, labels": Variant(lite("lite0", 128), 4, 32, labels=True),
    "lite0 128, 2 epochs": Variant(lite("lite0", 128), 2, 18),
    "lite0 128, 8 epochs, mixup": Variant(lite("lite0", 128), 8, 60, settings=MIXUP),
    "lite0 128, slow": Variant(lite("lite0", 128), 4, 32, settings={"optimizer": "adamw:lr=0.0005,weight_decay=0.02"}),
    "lite0 160": Variant(lite("lite0", 160), 4, 50),
    "lite2 128": Variant(lite("lite2", 128), 4, 55),
    "lite0 192": Variant(lite("lite0", 192), 4, 50),
    "lite2 192": Variant(lite("lite2", 192), 4, 70),
    "lite0 224": Variant(lite("lite0", 224), 4, 50),
    "lite2 224": Variant(lite("lite2", 224), 4, 62),
}


@dataclass(frozen=True)
class Plan:
    """Networks to train (variant and seed), in how many parts the training images fall, and the shifts of the views.

    The network with seed s holds out part s, or all of them part 0.
    """

    networks: list[tuple[str, int]]
    parts: int = 5
    rotate: bool = True
    shifts: tuple[tuple[int, int], ...] = ((0, 0), (2, 2), (-2, -2))

    def held(self, examples: int, seed: int) -> np.ndarray[Any, Any]:
        """Rows of the training images that a network with this seed does not see."""
        part = np.random.default_rng(0).permutation(examples) % self.parts
        return np.flatnonzero(part == (seed % self.parts if self.rotate else 0))


ENSEMBLES = {  # whose probabilities are averaged, over all seeds that held out the same images
    "lite0 128, lite2 128, lite0 160": ("lite0 128", "lite2 128", "lite0 160"),
    "lite0 128, lite2 128, lite0 160, resnet9": ("lite0 128", "lite2 128", "lite0 160", "resnet9"),
    "lite0 192, all seeds": ("lite0 192",),
    "lite2 192, all seeds": ("lite2 192",),
    "lite0 192, lite2 192, all seeds": ("lite0 192", "lite2 192"),
    "lite0 224, lite2 224, all seeds": ("lite0 224", "lite2 224"),
    "lite0 and lite2, 192 and 224, all seeds": ("lite0 192", "lite2 192", "lite0 224", "lite2 224"),
}
PLANS = {
    "explore": Plan(
        [
            *[(name, 0) for name in ("resnet9, labels", "resnet9", "resnet9, mixup", "lite0 128", "resnet9, last weights")],
            *[(name, 0) for name in ("lite0 128, 8 epochs, mixup", "resnet9, 8 epochs", "lite0 128, 2 epochs", "lite2 128")],
            *[(name, 0) for name in ("lite0 128, labels", "lite0 128, slow", "resnet9, mixup, 30 epochs", "lite0 160")],
            *[(name, 0) for name in ("lite0 96", "resnet18, mixup")],
            *[("resnet9, mixup", 1), ("resnet9, mixup", 2)],
        ]
    ),
    "final": Plan(
        [(name, seed) for seed in range(3) for name in ("lite2 192", "lite0 192")],
        parts=20,
        rotate=False,
        shifts=((0, 0), (3, 3), (-3, -3), (3, -3), (-3, 3)),
    ),
    "larger": Plan(
        [("lite2 224", 0), ("lite0 224", 0), ("lite2 224", 1), ("lite0 224", 1), ("lite2 224", 2)],
        parts=20,
        rotate=False,
        shifts=((0, 0),),
    ),
    "smoke": Plan([("resnet9, labels", 0), ("resnet9, mixup", 1), ("lite0 128", 0)]),
}


def train_all(args: argparse.Namespace) -> None:
    """Train what the plan names, as far as the time suffices, and write the logits as they come."""
    began, device, out = time.perf_counter(), choose_device("auto"), args.out[0]
    out.mkdir(parents=True, exist_ok=True)
    data = mohs.open_data("cifar10", votes=VOTES)
    if args.smoke:
        data = replace(data, train=limited(data.train, 20), test=limited(data.test, 10))
    plan_name = "smoke" if args.smoke else args.plan
    plan = PLANS[plan_name]
    writer, lines, pace = Writer(out), [], {}  # pace: seconds taken / expected of the last network of a model
    for name, seed in plan.networks:
        variant, start = smoked(VARIANTS[name]) if args.smoke else VARIANTS[name], time.perf_counter()
        family = variant.model[:6]
        if start - began + variant.seconds * pace.get(family, 1.0) > 60 * args.minutes:
            print(f"skipped: {name}, seed {seed}", flush=True)
            continue
        held = plan.held(len(data.train), seed)
        try:
            logits = trained_logits(variant, seed, data, held, device, plan.shifts)
        except (RuntimeError, ValueError) as error:  # one variant that fails must not cost the others
            print(f"failed: {name}, seed {seed}: {error}", flush=True)
            continue
        took = time.perf_counter() - start
        pace[family] = took / variant.seconds
        for view, both in logits.items():
            writer.add(f"{name}|{seed}|{view}", both)
        lines.append({"name": name, "seed": seed, "seconds": round(took, 1)})
        about = {"machine": machine(), "plan": plan_name, "networks": lines}
        (out / "about.json").write_text(json.dumps(about, indent=1))
        others = data.train.take(torch.from_numpy(held))
        rho = correlation(label_log_odds(logits["mirror"][: len(held)], others.labels), agreement_of(others), resamples=0).value
        print(f"{name:<28} seed {seed}  {took:6.1f} s  held-out Spearman {rho:.4f}", flush=True)
    writer.close()
    print(f"{time.perf_counter() - began:.0f} s in all", flush=True)
    if not args.smoke:
        table(args)


def smoked(variant: Variant) -> Variant:
    """The variant at a scale that a CPU can take."""
    return replace(variant, model=variant.model.replace("size=128", "size=32"), epochs=1, seconds=1)


def trained_logits(variant: Variant, seed: int, data: Data, held: Any, device: torch.device, shifts: Any) -> dict[str, Tensor]:
    """Logits of held-out and test images, one after the other, float16, by view."""
    seen = torch.from_numpy(np.setdiff1d(np.arange(len(data.train)), held))
    train = data.train.take(seen)
    train = replace(train, votes=None) if variant.labels else train
    with tempfile.TemporaryDirectory() as folder:
        trained = mohs.train(variant.run(seed, len(train)), Data(train), runs=folder)
    network = trained.network.to(device, memory_format=torch.channels_last)
    images = torch.cat([data.train.inputs[torch.from_numpy(held)], data.test.inputs])
    precision = "bf16" if device.type == "cuda" else "no"
    plain = predict(network, images, precision=precision).logits.float()
    mirrored = [predict(network, shifted(images, *by), precision=precision, mirror=True).logits.float() for by in shifts]
    views = torch.stack(mirrored).mean(0)
    return {"plain": plain.half(), "mirror": mirrored[0].half(), "views": views.half()}


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """uint8 images (N, C, H, W), moved by whole pixels, the border reflected."""
    most = max(abs(down), abs(right))
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (most, most), (most, most)), mode="reflect")
    height, width = images.shape[2:]
    top, left = most - down, most - right
    return torch.from_numpy(np.ascontiguousarray(padded[:, :, top : top + height, left : left + width]))


class Writer:
    """Logits by name in files of at most FILE_BYTES, rewritten as they fill."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.held = folder, 0, {}

    def add(self, name: str, logits: Tensor) -> None:
        if sum(one.nbytes for one in self.held.values()) + logits.nbytes > FILE_BYTES:
            self.close()
            self.number, self.held = self.number + 1, {}
        self.held[name] = logits.numpy()
        if name.endswith("views"):
            self.close()

    def close(self) -> None:
        np.savez(self.folder / f"logits-{self.number}.npz", **self.held)


def agreement_of(examples: Examples) -> np.ndarray[Any, Any]:
    """The share of an example's votes that are for its label (N,)."""
    shares = vote_shares(examples)
    return shares.gather(1, examples.labels[:, None])[:, 0].numpy()


def label_log_odds(logits: Tensor, labels: Tensor) -> np.ndarray[Any, Any]:
    """Log-odds of the label (N,)."""
    return mohs.margin(logits.float(), labels).numpy()


def read_logits(folder: Path) -> dict[str, Tensor]:
    """All logits that `train` wrote, by "variant|seed|view"."""
    made: dict[str, Tensor] = {}
    for file in sorted(folder.glob("logits-*.npz")):
        with np.load(file) as loaded:
            made |= {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    return made


READ_OUTS: dict[str, Callable[[Tensor, Tensor], Any]] = {  # probabilities (N, K), labels -> higher where more people agree
    "label": lambda probs, labels: probs.gather(1, labels[:, None])[:, 0].numpy(),
    "human": lambda probs, labels: mohs.predict_agreement(probs.numpy(), labels.numpy()),
    "top": lambda probs, labels: probs.amax(1).numpy(),
    "entropy": lambda probs, labels: (probs * probs.clamp(min=1e-12).log()).sum(1).numpy(),
}


@dataclass(frozen=True)
class Predicted:
    """Probabilities (N, K) of the held-out images of a plan and of the test images, and the code that made them."""

    probs: Tensor
    plan: Plan
    git: str


def table(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Correlations of each network, and of the means of several, with CIFAR-10N's and CIFAR-10H's votes.

    The last column is the average precision with which `mohs.judge_labels` finds the test labels that most people of CIFAR-10H
    contradict.
    """
    data = mohs.open_data("cifar10", votes=VOTES)
    counts, labels = votes_for(data.test, "cifar10h.npz"), data.test.labels
    people, contradicted = human_agreement(counts, labels), np.asarray(counts).argmax(1) != labels.numpy()
    networks = {}
    for folder in args.out:
        about = json.loads((folder / "about.json").read_text())
        plan, git = PLANS[about.get("plan", "explore")], about["machine"]["commit"]
        networks |= {key: Predicted(torch.softmax(z.double(), 1), plan, git) for key, z in read_logits(folder).items()}
    rows = []
    for key, found in together(networks).items():
        name, seed, view = key.split("|")
        held = torch.from_numpy(found.plan.held(len(data.train), int(seed) if seed.isdigit() else 0))
        others, own, given = data.train.take(held), found.probs[: len(held)], found.probs[len(held) :]
        for read_out, of in READ_OUTS.items():
            if read_out in ("top", "entropy") and view != "mirror":
                continue
            rho = correlation(of(own, others.labels), agreement_of(others), resamples=0).value
            test = correlation(of(given, labels), people, resamples=args.resamples)
            row = {
                "networks": name, "seed": seed, "training images": len(data.train) - len(held), "view": view,
                "read-out": read_out, "test accuracy": round((given.argmax(1) == labels).double().mean().item(), 4),
                "CIFAR-10N": round(rho, 4), "CIFAR-10H": round(test.value, 4), "low": round(test.low, 4),
                "high": round(test.high, 4), "contradictions": "", "git": found.git,
            }  # fmt: skip
            if read_out == "label" and view == "mirror":
                wrong = mohs.judge_labels(given.numpy(), labels.numpy()).p_mislabeled
                row["contradictions"] = round(float(average_precision_score(contradicted, wrong)), 4)
            rows.append(row)
            print({name: value for name, value in row.items() if name != "git"}, flush=True)
    return rows


def together(networks: dict[str, Predicted]) -> dict[str, Predicted]:
    """The networks, and the means of those that held out the same images: ENSEMBLES; the code is that of the last one."""
    made = dict(networks)
    for view, (name, members) in itertools.product(("mirror", "views"), ENSEMBLES.items()):
        keys = [key for key in networks if key.endswith(f"|{view}") and key.split("|")[0] in members]
        if {key.split("|")[0] for key in keys} == set(members) and len(keys) > 1:
            own = [networks[key] for key in keys]
            made[f"{name}|{len(own)} networks|{view}"] = replace(own[-1], probs=torch.stack([one.probs for one in own]).mean(0))
    return made


def file_results(args: argparse.Namespace) -> None:
    """Write results/human.csv and human.json."""
    rows = table(args)
    with (args.results / "human.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    runs = [json.loads((folder / "about.json").read_text()) for folder in args.out]
    settings = {name: VARIANTS[name].run(0, 40_000).plain() for name in {one["name"] for run in runs for one in run["networks"]}}
    kept = ("model", "epochs", "batch", "optimizer", "schedule", "augment", "ema")
    about = {
        "machine": runs[-1]["machine"],
        "networks": [{**one, "plan": run.get("plan", "explore")} for run in runs for one in run["networks"]],
        "settings": {name: {key: settings[name][key] for key in kept} for name in sorted(settings)},
    }
    (args.results / "human.json").write_text(json.dumps(about, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "table", "file"))
    parser.add_argument("out", type=Path, nargs="+", help="folder of the logits; several for table and file")
    parser.add_argument("--plan", choices=PLANS, default="explore")
    parser.add_argument("--minutes", type=float, default=6.5)
    parser.add_argument("--resamples", type=int, default=0, help="bootstrap resamples of the intervals")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--smoke", action="store_true", help="a few images and one epoch, on a CPU")
    args = parser.parse_args()
    {"train": train_all, "table": table, "file": file_results}[args.what](args)


if __name__ == "__main__":
    main()
