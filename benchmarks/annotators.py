"""Measure `mohs.consensus` beside majority vote, Dawid–Skene (crowd-kit, where it is installed) and cleanlab's multiannotator.

    MOHS_DATA=FOLDER python benchmarks/annotators.py --out results/annotators.json

Made annotators have known skills. CIFAR-10N has three votes for each of CIFAR-10's images; a logistic regression on the default
embedding, fitted in five folds to the majority vote, is the model that cleanlab and mohs both get. The last part starts from two
votes per example and asks for more: who gains accuracy fastest, by examples drawn at random, by cleanlab's scores, or by
`Consensus.next_examples`?
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import mohs
from audit_suite import out_of_fold_probs

from machine import machine

Array = np.ndarray[Any, Any]
NONE = -1
SETTINGS: dict[str, dict[str, Any]] = {
    "20 annotators, 3 votes": {},
    "20 annotators, 5 votes": {"votes": 5},
    "200 annotators, 3 votes": {"annotators": 200},
    "200 annotators who confuse neighboring classes, 5 votes": {"annotators": 200, "votes": 5, "pairs": True},
    "50 annotators, 10 classes, 2,000 examples": {"classes": 10, "annotators": 50, "size": 2000},
    "20 annotators of similar skill": {"skills": (0.55, 0.8)},
    "20 annotators, each weak in some classes": {"by_class": True},
}
ROUNDS, ASKED = 8, 100


def made_votes(
    seed: int,
    *,
    size: int = 1000,
    annotators: int = 20,
    classes: int = 5,
    votes: int = 3,
    skills: tuple[float, float] = (0.4, 0.95),
    pairs: bool = False,
    by_class: bool = False,
) -> dict[str, Any]:
    """True classes (N,), votes (N, A), a weak model's probabilities (N, K), the skills (A,), and a function that asks again."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=size)
    skill = np.repeat(rng.uniform(*skills, size=(annotators, 1)), classes, 1)
    if by_class:
        skill = np.where(rng.random((annotators, classes)) < 0.3, 0.3, skill)

    def ask(example: int, annotator: int) -> int:
        t = int(truth[example])
        if rng.random() < skill[annotator, t]:
            return t
        return (t + 1) % classes if pairs else int((t + rng.integers(1, classes)) % classes)

    given = np.full((size, annotators), NONE)
    for i in range(size):
        for a in rng.choice(annotators, votes, replace=False):
            given[i, a] = ask(i, int(a))
    z = 1.5 * (1.2 * np.eye(classes)[truth] + rng.normal(size=(size, classes)))
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return {"truth": truth, "votes": given, "probs": probs, "skill": skill.mean(1), "ask": ask, "rng": rng}


def majority(votes: Array, classes: int) -> Array:
    return np.array([np.bincount(row[row != NONE], minlength=classes).argmax() for row in votes])


def dawid_skene(votes: Array) -> Array | None:
    """crowd-kit's labels (N,); None if it is not installed."""
    try:
        from crowdkit.aggregation import DawidSkene
    except ImportError:
        return None
    example, annotator = np.nonzero(votes != NONE)
    rows = pd.DataFrame({"task": example, "worker": annotator, "label": votes[example, annotator]})
    labels: Array = DawidSkene(n_iter=100).fit_predict(rows).reindex(range(len(votes))).to_numpy()
    return labels


def cleanlab_consensus(votes: Array, probs: Array) -> tuple[Array, Array]:
    """cleanlab's labels (N,) and annotator quality (A,)."""
    from cleanlab.multiannotator import get_label_quality_multiannotator

    found = get_label_quality_multiannotator(pd.DataFrame(np.where(votes == NONE, np.nan, votes)), probs, verbose=False)
    quality = found["annotator_stats"].sort_index()["annotator_quality"].to_numpy()
    return found["label_quality"]["consensus_label"].to_numpy(), quality


def compared(votes: Array, probs: Array, truth: Array, skill: Array | None) -> dict[str, float]:
    """Accuracy of each consensus, and the mean error of each estimate of the annotators' skill."""
    plain, model = mohs.consensus(votes), mohs.consensus(votes, probs=probs)
    peer, peer_quality = cleanlab_consensus(votes, probs)
    kit = dawid_skene(votes)
    row = {
        "majority": float((majority(votes, probs.shape[1]) == truth).mean()),
        "crowd-kit": float("nan") if kit is None else float((kit == truth).mean()),
        "mohs": float((plain.labels == truth).mean()),
        "model alone": float((probs.argmax(1) == truth).mean()),
        "cleanlab with model": float((peer == truth).mean()),
        "mohs with model": float((model.labels == truth).mean()),
        "mean p_right": float(model.p_right.mean()),
    }
    if skill is None:
        skill = np.array([(votes[votes[:, a] != NONE, a] == truth[votes[:, a] != NONE]).mean() for a in range(votes.shape[1])])
    table = model.annotators
    low, high = (table.column(name).to_numpy() for name in ("low", "high"))
    return row | {
        "skill error, cleanlab": float(np.abs(peer_quality - skill).mean()),
        "skill error, mohs": float(np.abs(table.column("quality").to_numpy() - skill).mean()),
        "skill in its interval": float(((low <= skill) & (skill <= high)).mean()),
    }


def cifar10n(size: int) -> dict[str, Any]:
    """Three votes on images of CIFAR-10 and a model's probabilities."""
    import torch

    train = mohs.open_data("cifar10").train
    order = np.random.default_rng(0).permutation(len(train))[:size]
    train = train.take(torch.from_numpy(order))
    with np.load(Path(os.environ["MOHS_DATA"]) / "cifar10n.npz") as file:
        votes = np.stack([file[f"random{i}"][order] for i in (1, 2, 3)], 1).astype(np.int64)
    features = np.asarray(mohs.embed(mohs.Data(train)).features, dtype=np.float32)
    return {"truth": train.labels.numpy(), "votes": votes, "probs": out_of_fold_probs(features, majority(votes, 10), 0)}


def asked_by(how: str, votes: Array, probs: Array, rng: np.random.Generator) -> Array:
    """The examples to ask about, by a method's scores."""
    if how == "mohs":
        return mohs.consensus(votes, probs=probs).next_examples(ASKED)
    if how == "cleanlab":
        from cleanlab.multiannotator import get_active_learning_scores

        scores, _ = get_active_learning_scores(pd.DataFrame(np.where(votes == NONE, np.nan, votes)), probs)
        return np.argsort(scores, kind="stable")[:ASKED]
    return rng.choice(len(votes), ASKED, replace=False)


def active(seed: int) -> dict[str, list[float]]:
    """Accuracy of the consensus (each method's own) after each round of questions."""
    course: dict[str, list[float]] = {}
    for how in ("random", "cleanlab", "mohs"):
        made = made_votes(seed, votes=2)
        votes, truth, probs, rng = made["votes"].copy(), made["truth"], made["probs"], made["rng"]
        course[how] = []
        for _ in range(ROUNDS + 1):
            labels = cleanlab_consensus(votes, probs)[0] if how == "cleanlab" else mohs.consensus(votes, probs=probs).labels
            course[how].append(float((labels == truth).mean()))
            for i in asked_by(how, votes, probs, rng):
                free = np.flatnonzero(votes[i] == NONE)
                if len(free):
                    a = int(rng.choice(free))
                    votes[i, a] = made["ask"](int(i), a)
    return course


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the results")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the made annotators")
    parser.add_argument("--images", type=int, default=3000, help="images of CIFAR-10N, 0 to leave it out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {"machine": machine(), "seeds": options.seeds, "settings": {}, "active": {}}
    for name, setting in SETTINGS.items():
        rows = []
        for seed in range(options.seeds):
            made = made_votes(seed, **setting)
            rows.append(compared(made["votes"], made["probs"], made["truth"], made["skill"]))
        results["settings"][name] = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
        print(name, results["settings"][name], flush=True)
    courses = [active(seed) for seed in range(options.seeds)]
    for how in courses[0]:
        results["active"][how] = np.mean([course[how] for course in courses], 0).round(4).tolist()
        print("asking:", how, results["active"][how], flush=True)
    if options.images:
        data = cifar10n(options.images)
        row = compared(data["votes"], data["probs"], data["truth"], None)
        results["settings"][f"CIFAR-10N, 3 votes, {options.images:,} images"] = {
            key: round(value, 4) for key, value in row.items()
        }
        print("CIFAR-10N", row, flush=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
