"""What do a few checked labels add to an audit? And how far is p_mislabeled off, from one data set to the next?

    python benchmarks/checked_labels.py audits --folder FOLDER --data NAME ... --out results/audit/checked.csv
    python benchmarks/checked_labels.py widths SIGNS.npz

`audits` calls `mohs.audit` with default options on tables with known wrong labels (as `audit_suite.py --folder` reads and makes
them), lets the truth decide on some labels, and counts what is found then. One row per cell, way and number of checked labels:

    first        the first audit, nothing checked
    removed      its p_mislabeled as it is, without the checked labels
    calibrated   its p_mislabeled, calibrated by the checked labels (`recalibrate`)
    checked      a second audit with `checked`: as calibrated, by the labels of the column to_check
    corrected    a second audit of the corrected labels, with `corrected` and `previous`, as `mohs review` audits again

Labels are checked in the order of `labels_to_check`, or the most doubtful first. `widths` fits the prior of
`mohs.hardness.checked_labels` to draws that `train_judge.py cells` made, judged by networks that had not seen the data set.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import audit_suite
from audit_suite import Array, Cell

NUMBERS, PRECISION, REACHED = (5, 10, 20, 40), 0.8, 0.75
SHIFTS, SLOPES = np.linspace(-5, 5, 41), np.geomspace(0.2, 3, 25)  # grid of intercept and slope for `widths`


# Audits


def run_cell(cell: Cell) -> list[dict[str, Any]]:
    """All rows of a cell."""
    import torch

    import mohs
    from mohs.hardness.checked_labels import TO_CHECK, labels_to_check, recalibrate
    from mohs.hardness.judgment import choose_flags

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    inputs, labels, truth, about = audit_suite.labeled(cell)
    wrong = labels != truth
    made: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        audit_suite.write_labeled(inputs, labels, file)
        how: dict[str, Any] = {"open_as": {"label": "label"}}
        first = mohs.audit(file, out=Path(folder) / "first", **how)
        p = p_of(first)
        flagged = np.array([one == "mislabeled" for one in first.table.column("verdict").to_pylist()])
        made.append(about | {"way": "first", "choice": "", "checked": 0} | counts(wrong, p, flagged, np.empty(0, int)))
        for number in NUMBERS:
            choices = {"to_check": labels_to_check(p, flagged=int(flagged.sum()), number=number)}
            choices["top"] = np.argsort(-np.nan_to_num(p), kind="stable")[:number]
            for choice, own in choices.items():
                others = np.setdiff1d(np.arange(len(p)), own)
                for way, q in (("removed", p), ("calibrated", recalibrate(p, own, wrong[own]))):
                    flags = np.zeros(len(p), bool)
                    flags[others] = choose_flags(np.nan_to_num(q[others]), PRECISION)
                    made.append(about | {"way": way, "choice": choice, "checked": number} | counts(wrong, q, flags, own))
        places = first.table.column("to_check").to_pylist()
        own = np.array(sorted((row for row, place in enumerate(places) if place is not None), key=lambda row: places[row]))
        decisions = [decision(first, row, f"class {truth[row]}" if wrong[row] else "") for row in own.tolist()]
        second = mohs.audit(file, out=Path(folder) / "checked", checked=decisions, **how)
        corrected = Path(folder) / "labels.csv"
        mohs.write_labels(mohs.apply_decisions(first.table, decisions, first.data_hash)[0], corrected)
        third = mohs.audit(file, out=Path(folder) / "again", corrected=corrected, previous=Path(folder) / "first", **how)
        for way, result in (("checked", second), ("corrected", third)):
            flags = np.array([one == "mislabeled" for one in result.table.column("verdict").to_pylist()])
            flags[own] = False
            row = {"way": way, "choice": "to_check", "checked": TO_CHECK}
            made.append(about | row | counts(wrong, p_of(result), flags, own))
    return made


def decision(audited: Any, row: int, right: str) -> dict[str, str]:
    """The decision on a label of an audit: to keep it, or to change it to the right one."""
    id_, label = (str(audited.table.column(name)[row].as_py()) for name in ("id", "label"))
    return {
        "id": id_,
        "data_hash": audited.data_hash,
        "label": label,
        "decision": "change" if right else "keep",
        "new_label": right,
    }


def p_of(result: Any) -> Array:
    """p_mislabeled (N,) of an audit."""
    p: Array = result.table.column("p_mislabeled").to_numpy(zero_copy_only=False).astype(float)
    return p


def counts(wrong: Array, p: Array, flagged: Array, checked: Array) -> dict[str, Any]:
    """What was found by flags on labels that are not checked, and by checks; calibration error of the others."""
    others = np.setdiff1d(np.flatnonzero(~np.isnan(p)), checked)
    hits, found, number = int((flagged & wrong).sum()), int(wrong[checked].sum()), int(flagged.sum())
    every = number + found
    return {
        "found": found,
        "flagged": number,
        "hits": hits,
        "precision": hits / number if number else float("nan"),
        "precision_all": (hits + found) / every if every else float("nan"),
        "f1": 2 * (hits + found) / (every + wrong.sum()) if every + wrong.sum() else float("nan"),
        "ece": audit_suite.calibration_error(wrong[others], p[others]),
    }


def summarize(rows: list[dict[str, Any]]) -> str:
    """A table: what each way and number of checked labels finds, over all cells."""
    lines = [
        "way, checked, choice | flags reach .75 | of audits that flag | all found reach .75 | F1 | clean: flagged, most | ECE"
    ]
    number = {name: np.array([float(row[name]) for row in rows]) for name in ("rate", "flagged", "n", "f1", "ece")}
    reach, every = (np.array([float(row[name]) for row in rows]) for name in ("precision", "precision_all"))
    groups = np.array([f"{row['way']}, {row['checked']}, {row['choice']}" for row in rows])
    for group in dict.fromkeys(groups.tolist()):
        own, noisy = groups == group, number["rate"] > 0
        part, flags = own & noisy, own & noisy & (number["flagged"] > 0)
        found = part & ~np.isnan(every)
        clean = (number["flagged"] / number["n"])[own & ~noisy]
        spoiled = f"{clean.mean():.2%}, {clean.max():.1%}" if len(clean) else "-"
        lines.append(
            f"{group} | {(reach[flags] >= REACHED).mean():.1%} (< .50: {(reach[flags] < 0.5).mean():.1%}) | {flags.sum()} of "
            f"{part.sum()} | {(every[found] >= REACHED).mean():.1%} | {number['f1'][part].mean():.3f} | {spoiled} | "
            f"{number['ece'][own].mean():.4f}"
        )
    return "\n".join(lines)


def audits(options: argparse.Namespace) -> None:
    """Run the cells and write their rows."""
    from machine import machine

    known = audit_suite.of_folder(options.folder)
    if unknown := [one for one in options.data if one not in known]:
        raise SystemExit(f"--data {unknown[0]} is not in {options.folder}; it holds {', '.join(known[:10])}, ...")
    version, rows, began = machine()["commit"], [], time.perf_counter()
    grid = [Cell(name, options.size, kind, rate, 0) for name in options.data for kind, rate in
            (("none", 0.0), *((kind, options.rate) for kind in options.kinds))]  # fmt: skip
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(run_cell, cell): cell for cell in grid}
        for future in as_completed(waiting):
            try:
                rows += [row | {"git": version} for row in future.result()]
            except Exception as error:  # one cell must not cost the others
                print(f"{waiting[future]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            if rows:
                write(rows, options.out)
    print(summarize(rows), f"\n{len(waiting)} cells in {time.perf_counter() - began:.0f} s")


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Rows as a CSV, sorted by cell."""
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda one: (one["data"], one["rate"], one["kind"])):
            writer.writerow({name: f"{v:.4f}" if isinstance(v, float) and name != "rate" else v for name, v in row.items()})


# The prior


def widths(options: argparse.Namespace) -> None:
    """Print the widths of intercept and log slope, and their correlation, that draws with wrong labels make most likely."""
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    import train_judge

    x, wrong, cell, data, weight = train_judge.drawn(options.files, "table")
    tables = np.array([zlib.crc32(str(one).rsplit("-", 1)[0].encode()) % 4 for one in data])
    train_judge.NETWORKS = 2
    p = train_judge.unseen(x, wrong, cell, weight, tables[cell], None).clip(1e-6, 1 - 1e-6)
    odds, (shift, slope) = np.log(p / (1 - p)), (one.ravel() for one in np.meshgrid(SHIFTS, SLOPES, indexing="ij"))
    likely = []
    for own in np.split(np.arange(len(p)), np.flatnonzero(np.diff(cell)) + 1):
        if wrong[own].any():
            at = shift[:, None] + slope[:, None] * odds[own]
            likely.append(-np.logaddexp(0, np.where(wrong[own], -at, at)).sum(1))

    def loss(at: Array) -> float:
        """Minus the mean marginal log-likelihood."""
        u, v, r = shift / np.exp(at[0]), np.log(slope) / np.exp(at[1]), np.tanh(at[2])
        prior = -(u * u - 2 * r * u * v + v * v) / (2 * (1 - r * r))
        return -float(logsumexp(np.stack(likely) + prior - logsumexp(prior), axis=1).mean())

    wide, steep, together = minimize(loss, np.array([0.0, -1.0, 0.0]), method="Nelder-Mead").x
    wide, steep, together = np.exp(wide), np.exp(steep), np.tanh(together)
    pivot = -together * wide / steep
    print(f"{len(likely)} draws: intercept {wide:.2f}, log slope {steep:.2f}, correlation {together:.2f}")
    print(f"uncorrelated at log-odds of {pivot:.2f}, where the intercept has a width of {wide * np.sqrt(1 - together**2):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("audits")
    one.add_argument("--folder", type=Path, required=True, help="folder of tables, as packaged_tables.py makes it")
    one.add_argument("--data", nargs="+", required=True, help="tables, by name: a file's stem")
    one.add_argument("--size", type=int, default=500, help="rows of each")
    one.add_argument(
        "--kinds", nargs="+", default=["uniform", "instance"], choices=audit_suite.KINDS, help="kinds of wrong labels"
    )
    one.add_argument("--rate", type=float, default=0.1, help="share of wrong labels; each table is audited without any too")
    one.add_argument("--jobs", type=int, default=2, help="processes")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(do=audits)
    two = parts.add_parser("widths")
    two.add_argument("files", nargs="+", type=Path, help="draws of train_judge.py cells")
    two.set_defaults(do=widths)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
