"""Human hardness, second half: every score of the saved networks against the people of CIFAR-10H.

    MOHS_DATA=... python benchmarks/human_score.py --outputs FOLDER [--trained "..."] [--out results/avh/cifar10h.csv]

Reads FOLDER/human-<net>-<seed>.npz (from `human_train.py`), the test labels and the votes. A correlation is that of a
hardness score with human disagreement, 1 − the share of annotators who chose the label: positive where people and score
agree. Writes, beside each other: the CSV file (network × seed × score × kind), cifar10h-tests.csv (AVH against confidence
and margin, mean margin against confidence), cifar10h-bins.csv (within bins of agreement) and README.md. Nothing is fitted to
the votes: a combined score is a mean of ranks with equal weights. Ten minutes on one core, most of it Kendall's resamples.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from mohs.hardness.agreement import by_bins, correlation, fisher_z, human_agreement, paired_bootstrap, steiger
from mohs.hardness.correlation import KINDS, coefficients
from mohs.hardness.scores import SCORES

from cifar import images, votes
from human_text import TOGETHER, readme

COMBINED = {
    "avh + confidence": ("avh", "confidence"),
    "mean_margin + mean_avh": ("mean_margin", "mean_avh"),
    "margin + mean_margin": ("margin", "mean_margin"),
    "all scores": (),
}
PAIRS = (("avh", "confidence"), ("avh", "margin"), ("mean_margin", "confidence"))
BINNED = ("avh", "confidence")
Array = np.ndarray
Row = dict[str, object]
Network = tuple[str, str]  # its name and seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=Path, required=True, help="the folder that human_train.py wrote")
    parser.add_argument("--trained", default="not stated", help="hardware, versions and date of the trainings, for the README")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/avh/cifar10h.csv"))
    asked = parser.parse_args()
    labels = images("test")[1]
    agreement = human_agreement(votes(), labels)
    saved = {network(path): np.load(path) for path in sorted(asked.outputs.glob("human-*-*.npz"))}
    if not saved:
        raise SystemExit(f"{asked.outputs} has no human-<net>-<seed>.npz: run human_train.py first")
    scores = {key: hardnesses(file, labels) for key, file in saved.items()}
    names = [name for name in next(iter(scores.values())) if name in SCORES]
    together = with_combined({name: mean_of_ranks([table[name] for table in scores.values()]) for name in names})
    facts = {key: {"accuracy": float(file["accuracy"]), "mean_avh": float(file["avh"].mean())} for key, file in saved.items()}
    for key, file in saved.items():
        facts[key] |= {"mean_norm": float(file["norm"].mean()), "sure": float((file["confidence"] == 1).mean())}
    scores[TOGETHER, "all"] = together
    rows, tests, bins = [], [], []
    for key, table in scores.items():
        rows += correlations(key, table, 1 - agreement, asked.resamples)
        tests += comparisons(key, table, 1 - agreement, asked.resamples)
        bins += binned(key, table, agreement, asked.resamples) if key in saved else []
        print(*key, "done", flush=True)
    halves = split_half(scores, 1 - agreement)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    write(asked.out, rows)
    write(asked.out.with_name(f"{asked.out.stem}-tests.csv"), tests)
    write(asked.out.with_name(f"{asked.out.stem}-bins.csv"), bins)
    asked.out.with_name("README.md").write_text(readme(rows, tests, bins, facts, halves, agreement, asked.trained))


def network(path: Path) -> Network:
    """human-<net>-<seed>.npz -> (net, seed)."""
    name, seed = path.stem.removeprefix("human-").rsplit("-", 1)
    return name, seed


def hardnesses(file: np.lib.npyio.NpzFile, labels: Array) -> dict[str, Array]:
    """Every score that the file has, higher = harder, and the combined ones."""
    right = float((file["predicted"] == labels).mean())
    if abs(right - float(file["accuracy"])) > 1e-6:
        raise SystemExit(
            f"the predictions are right for {right:.4f} of the labels, not {float(file['accuracy']):.4f}: other order?"
        )
    single = {name: score.sign * file[score.column].astype(float) for name, score in SCORES.items() if score.column in file.files}
    return with_combined(single)


def with_combined(scores: dict[str, Array]) -> dict[str, Array]:
    """The scores with the combined ones beside them; no parts named: all single scores."""
    single = {name: values for name, values in scores.items() if name in SCORES}
    return single | {name: mean_of_ranks([single[part] for part in parts or single]) for name, parts in COMBINED.items()}


def mean_of_ranks(columns: list[Array]) -> Array:
    return np.mean([rankdata(values) for values in columns], axis=0)


def correlations(key: Network, table: dict[str, Array], disagreement: Array, resamples: int) -> list[Row]:
    rows = []
    for name, values in table.items():
        for kind in KINDS:
            found = correlation(values, disagreement, kind=kind, resamples=resamples)
            head = {"network": key[0], "seed": key[1], "score": name, "combined": int(name in COMBINED or key[0] == TOGETHER)}
            rows.append(head | {"kind": kind} | rounded(value=found.value, low=found.low, high=found.high) | {"n": found.n})
    return rows


def comparisons(key: Network, table: dict[str, Array], disagreement: Array, resamples: int) -> list[Row]:
    """Fisher's z (one-sided, as the paper has it), Steiger's (two-sided) and the paired bootstrap, for each of PAIRS."""
    rows = []
    for a, b in PAIRS:
        for kind in KINDS:
            first, second = coefficients([table[a], table[b]], disagreement, kind)
            (between,) = coefficients([table[a]], table[b], kind)
            fisher, paired = fisher_z(first, second, len(disagreement)), steiger(first, second, between, len(disagreement))
            gap = paired_bootstrap(table[a], table[b], disagreement, kind=kind, resamples=resamples)
            row = {"network": key[0], "seed": key[1], "first": a, "second": b, "kind": kind}
            row |= rounded(
                first_value=first, second_value=second, between=between, difference=gap.value, low=gap.low, high=gap.high
            )
            row |= {"p_bootstrap": f"{gap.p:.2g}", "z_fisher": round(fisher.z, 2), "p_fisher_one_sided": f"{fisher.p:.2g}"}
            row |= {"z_steiger": round(paired.z, 2), "p_steiger": f"{paired.p_two_sided:.2g}", "n": len(disagreement)}
            rows.append(row)
    return rows


def binned(key: Network, table: dict[str, Array], agreement: Array, resamples: int) -> list[Row]:
    rows = []
    for name in BINNED:
        for part in by_bins(-table[name], agreement, resamples=resamples):  # turned, so that positive means in accord here too
            found = part.correlation
            row = {"network": key[0], "seed": key[1], "score": name, "from": part.low, "to": part.high, "n": found.n}
            rows.append(row | rounded(mean_score=-part.mean_score, value=found.value, low=found.low, high=found.high))
    return rows


def split_half(tables: dict[Network, dict[str, Array]], disagreement: Array) -> list[Row]:
    """The best of all on one half of the images, and what it reaches on the other: the best of many is a little flattered."""
    names = [(key, name) for key, table in tables.items() for name in table]
    rows = []
    for chosen_on in (0, 1):
        here, there = np.arange(len(disagreement)) % 2 == chosen_on, np.arange(len(disagreement)) % 2 != chosen_on
        reached = [coefficients([tables[key][name][here]], disagreement[here], "spearman")[0] for key, name in names]
        key, name = names[int(np.argmax(reached))]
        other = coefficients([tables[key][name][there]], disagreement[there], "spearman")[0]
        rows.append({"network": key[0], "score": name, "chosen": max(reached), "other": other})
    return rows


def rounded(**values: float) -> Row:
    return {name: round(float(value), 4) for name, value in values.items()}


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
