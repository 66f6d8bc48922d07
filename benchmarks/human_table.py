"""One row per network and seed from the long tables of human agreement, for the register of claims.

    python benchmarks/human_table.py [--tables results/avh] [--out results/avh/human.csv]

Reads `cifar10h.csv` (correlations), `cifar10h-tests.csv` (paired differences) and `cifar10h-bins.csv` (by human agreement),
all of single networks. Rows "NETWORK, bin I" hold the correlations within bin I of human agreement (1: people disagree most);
in the last bin all agree, and there are none. Every number but the last has its 95 % interval over resampled images beside it:

    KIND_SCORE                    correlation of a score with human disagreement, such as spearman_avh
    KIND_avh_minus_confidence     paired difference of two correlations
    ordered_avh                   Spearman's ρ of bin and mean AVH: −1 if AVH falls from bin to bin as people agree more
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mohs.studies.measures.trajectories import rising

STUDY = "avh/human"
ABOUT = {"hardware": "1 × NVIDIA H200 (training), AMD EPYC, 2 cores (scoring)", "date": "2026-11-15", "classes": "10"}
INTERVAL = ("", "_low", "_high")


def wide(folder: Path) -> list[dict[str, str]]:
    """The rows of the table, networks and seeds in the order of `cifar10h.csv`."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in lines(folder / "cifar10h.csv"):
        row = rows.setdefault((one["network"], one["seed"]), {"study": STUDY, "row": one["network"], "seed": one["seed"]})
        if one["combined"] == "0":
            row |= numbers(f"{one['kind']}_{one['score']}", one["value"], one["low"], one["high"])
        row |= {**ABOUT, "git": one["git"]}
    for one in lines(folder / "cifar10h-tests.csv"):
        name = f"{one['kind']}_{one['first']}_minus_{one['second']}"
        rows[one["network"], one["seed"]] |= numbers(name, one["difference"], one["low"], one["high"])
    means: dict[tuple[str, str], list[float]] = {}
    position = Counter[tuple[str, str, str]]()
    for one in lines(folder / "cifar10h-bins.csv"):
        at = one["network"], one["seed"]
        position[*at, one["score"]] += 1
        if one["value"] != "nan":
            name = f"{one['network']}, bin {position[*at, one['score']]}"
            row = rows.setdefault(
                (name, one["seed"]), {"study": STUDY, "row": name, "seed": one["seed"], **ABOUT, "git": one["git"]}
            )
            row |= numbers(f"spearman_{one['score']}", one["value"], one["low"], one["high"])
        if one["score"] == "avh":
            means.setdefault(at, []).append(float(one["mean_score"]))
    for at, curve in means.items():
        rows[at]["ordered_avh"] = f"{rising(np.asarray(curve)):g}"
    return list(rows.values())


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The lines about single networks."""
    with path.open(newline="") as file:
        yield from (one for one in csv.DictReader(file) if one["seed"] != "all")


def numbers(name: str, *values: str) -> dict[str, str]:
    """A number with both ends of its interval."""
    return {f"{name}{end}": value for end, value in zip(INTERVAL, values, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=Path("results/avh"))
    parser.add_argument("--out", type=Path, default=Path("results/avh/human.csv"))
    args = parser.parse_args()
    made = wide(args.tables)
    columns = [name for name in dict.fromkeys(name for one in made for name in one) if name not in (*ABOUT, "git")]
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, *ABOUT, "git"], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)


if __name__ == "__main__":
    main()
