"""From run folders to a table of results, one line per row and seed; collecting only reads.

    study, row, seed, scale, select, epochs, classes   what was run; select: the epoch that counts; classes: their number
    test_accuracy, val_accuracy, ...            the history at that epoch, then the numbers of the measures
    chosen                                      the value of the setting that the row selected
    error                                       why a run has no numbers
    run, hardware, date, versions, git          provenance; git: a commit, or tree: and a hash (`_core/code_version.py`)

select "last" is the last epoch, "best_val" the epoch with the best validation accuracy (the first one if several are equal), and
"best" the epoch with the best test accuracy, which is selected on the test labels: study pages say so.
"""

from __future__ import annotations

import csv
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mohs._core.checksums import read_json, refuse_folder
from mohs._core.code_version import code_version
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs.studies.plan import RunIndex, plan
from mohs.studies.recipe import Recipe
from mohs.studies.run_measures import stored_measures
from mohs.train.directory import RunDirectory

Result = dict[str, Any]
BEFORE = ("study", "row", "seed", "scale", "select", "epochs", "classes")
AFTER = ("error", "run", "hardware", "date", "versions", "git")
CHOSEN = "chosen"
UNKNOWN = "unknown"  # the code of a run made before it was recorded
REPAIR = "correct it, or remove this file and run the study again"
TEXT_COLUMNS = ("study", "row", "scale", "select", *AFTER)
INTEGER_COLUMNS = ("seed", "epochs", "classes")
HISTORY_COLUMNS = ("test_accuracy", "val_accuracy", "accuracy")
SELECTED_BY = {"best": "test_accuracy", "best_val": "val_accuracy"}


def collect(recipe: Recipe, *, runs: Path) -> list[Result]:
    """The results available so far, rows in the recipe's order; a run that is not finished has no line."""
    entries = RunIndex(runs, recipe.study.id).read()
    order = {row.label: i for i, row in enumerate(recipe.rows)}
    made = []
    for one in sorted(plan(recipe), key=lambda one: (order[one.row.label], one.seed)):
        entry = entries.get(one.key)
        if entry is None:
            continue
        head = {"study": recipe.study.id, "row": one.row.label, "seed": one.run.seed, "scale": recipe.scale}
        head["select"] = recipe.study.select
        if "folder" in entry:
            folder = runs / entry["folder"]
            made.append(head | from_folder(folder, recipe))
            if one.row.choose is not None:
                made[-1][CHOSEN] = one.row.choose.value_of(RunDirectory(folder).about["run"])
        else:
            made.append(head | {"error": entry["error"], "git": code_version()})  # failed runs are tried again every time
    return made


def from_folder(folder: Path, recipe: Recipe) -> Result:
    """The numbers of a finished run, with their provenance."""
    directory = RunDirectory(folder)
    if not directory.done:
        raise DataError(f"{folder} is not finished, or was removed: run the study again")
    history, about = directory.metrics(), directory.about
    line = select_epoch(history, recipe.study.select) if history else {}
    names = HISTORY_COLUMNS if recipe.study.system is None else [name for name in line if name != "epoch"]
    numbers = {name: line[name] for name in names if name in line}
    day = datetime.datetime.fromtimestamp((folder / "DONE").stat().st_mtime, tz=datetime.UTC).date().isoformat()
    return {
        "epochs": len(history),
        **({"classes": len(about["classes"])} if "classes" in about else {}),
        **numbers,
        **stored_measures(folder, recipe.measures),
        "run": about["hash"],
        "hardware": about["hardware"],
        "date": about.get("date", day),
        "versions": " ".join(f"{name} {version}" for name, version in about["versions"].items()),
        "git": about["git"] or UNKNOWN,
    }


def select_epoch(history: Sequence[Mapping[str, Any]], select: str) -> Mapping[str, Any]:
    """The epoch whose numbers count."""
    if select == "last":
        return history[-1]
    by = SELECTED_BY[select]
    if by not in history[-1]:
        raise DataError(f'select = "{select}" needs {by}, which the runs do not have: do the data have that split?')
    return max((line for line in history if by in line), key=lambda line: line[by])  # evaluation may skip epochs


def columns_of(results: Sequence[Result]) -> list[str]:
    """All columns of the results; numbers in the order in which they first appear."""
    numbers = {name: None for one in results for name in one if name not in (*BEFORE, *AFTER)}
    return [*BEFORE, *numbers, *AFTER]


def merge_results(before: Sequence[Result], now: Sequence[Result], recipe: Recipe) -> list[Result]:
    """The new results, and the old ones of rows and seeds that were not run now, in the recipe's order."""
    order = {row.label: i for i, row in enumerate(recipe.rows)}
    new = {(one["row"], int(one["seed"])) for one in now}
    old = [one for one in before if (one["row"], int(one["seed"])) not in new and one["row"] in order]
    return sorted([*old, *now], key=lambda one: (order[one["row"]], int(one["seed"])))


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write the results as CSV; numbers with six significant digits."""
    with written_whole(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns_of(results), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in one.items()} for one in results
        )


def read_results(path: Path) -> list[Result]:
    """Read the results in a CSV file; empty cells are omitted."""
    refuse_folder(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            for name in ("row", "seed"):
                if name not in (lines.fieldnames or ()):
                    raise DataError(
                        f"{path}: no column {name!r}; results of a study have the columns study, row, seed and numbers; {REPAIR}"
                    )
            return [_result(line, path, lines.line_num) for line in lines]
    except (UnicodeDecodeError, csv.Error, AttributeError) as error:
        raise DataError(f"{path}: cannot be read as CSV in UTF-8 ({error}); {REPAIR}") from error


def _result(line: dict[Any, Any], path: Path, number: int) -> Result:
    """A line of the CSV file as a result."""
    if None in line or None in line.values():
        raise DataError(f"{path}: line {number} has {'more' if None in line else 'fewer'} cells than there are columns; {REPAIR}")
    return {name: _value(text, path, name) for name, text in line.items() if text}


def read_benchmark(path: Path) -> list[Result]:
    """Read the rows of a benchmark's JSON file as results: `name` is the row, and its n-th measurement has seed n − 1."""
    loaded = read_json(path, lost="its measurements are lost", repair="run the benchmark again")
    about, seen, made = loaded["machine"], Counter[str](), []
    for one in loaded["rows"]:
        numbers = {name: float(value) for name, value in one.items() if isinstance(value, int | float)}
        where = {"hardware": about["cpu"], "date": about["date"], "git": about["commit"]}
        made.append({"row": one["name"], "seed": seen[one["name"]], **numbers, **where})
        seen[one["name"]] += 1
    return made


def by_seed(results: Sequence[Result], row: str, metric: str) -> dict[int, float]:
    """The metric of one row, by seed; runs without it are skipped."""
    return {int(one["seed"]): float(one[metric]) for one in results if one["row"] == row and metric in one}


def _value(text: str, path: Path, name: str) -> str | float | int:
    if name in TEXT_COLUMNS:
        return text
    try:
        return int(text) if name in INTEGER_COLUMNS else float(text)
    except ValueError:
        raise DataError(f"{path}: {name} is {text!r}, which is not a number; {REPAIR}") from None
