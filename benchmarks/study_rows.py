"""Results of studies that have drivers of their own: rows as `mohs.study` has them, merged over commands, with means.

A row is called PART: METHOD. Once a method has a seed's numbers of all parts, `mean: METHOD` gets their mean, so that claims over
all parts can be computed, paired by seed.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from mohs.study.collect import Result, by_seed, read_results, write_results
from mohs.study.judge import judge
from mohs.study.statistics import summary
from mohs.train.run_directory import surroundings

MEAN = "mean"


def headed(study: str, part: str, method: str, seed: int, *, scale: str, epochs: int, **numbers: float | None) -> Result:
    """A line of the results: what was run, its numbers, and where."""
    around = surroundings()
    told = {name: float(value) for name, value in numbers.items() if value is not None}
    head = {"study": study, "row": f"{part}: {method}", "seed": seed, "scale": scale, "select": "last", "epochs": epochs}
    versions = " ".join(f"{name} {version}" for name, version in around["versions"].items())
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {**head, **told, "hardware": around["hardware"], "date": day, "versions": versions, "git": around["git"] or ""}


def merged(new: Sequence[Result], path: Path, *, parts: Sequence[str]) -> list[Result]:
    """The new lines over those in the file, with the means over all parts; written back."""
    old = read_results(path) if path.exists() else []
    kept = {(one["row"], int(one["seed"])): one for one in [*old, *new] if not str(one["row"]).startswith(f"{MEAN}: ")}
    lines = sorted(kept.values(), key=lambda one: _place(one, parts))
    results = [*lines, *means(lines, parts)]
    write_results(results, path)
    return results


def _place(one: Result, parts: Sequence[str]) -> tuple[int, int]:
    part = str(one["row"]).partition(": ")[0]
    return (parts.index(part) if part in parts else len(parts), int(one["seed"]))


def means(lines: Sequence[Result], parts: Sequence[str]) -> list[Result]:
    """For every method and seed that has all parts, their mean."""
    by: dict[tuple[str, int], dict[str, Result]] = {}
    for one in lines:
        part, _, method = str(one["row"]).partition(": ")
        by.setdefault((method, int(one["seed"])), {})[part] = one
    made = []
    for (method, _), found in by.items():
        own = [found[part] for part in parts if part in found]
        if len(own) < len(parts):
            continue
        shared = [name for name, value in own[0].items() if isinstance(value, float) and all(name in one for one in own)]
        made.append({**own[0], "row": f"{MEAN}: {method}", **{name: sum(one[name] for one in own) / len(own) for name in shared}})
    return made


def table(results: Sequence[Result], metric: str, *, parts: Sequence[str], methods: Sequence[str]) -> str:
    """Mean ± SD over seeds in percent, a line a method and a column a part."""
    columns = [part for part in (*parts, MEAN) if any(str(one["row"]).startswith(f"{part}: ") for one in results)]
    lines = [f"{metric}, % " + " ".join(f"{part:>26}" for part in columns)]
    for method in methods:
        cells = []
        for part in columns:
            values = [100 * value for value in by_seed(results, f"{part}: {method}", metric).values()]
            one = summary(values) if values else None
            cells.append("" if one is None else f"{one.mean:.2f}" + (f" ± {one.sd:.2f} (n={one.n})" if one.n > 1 else ""))
        lines.append(f"{method:<20}" + " ".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)


def verdicts(results: Sequence[Result], metric: str, better: str, worse: str, *, parts: Sequence[str]) -> str:
    """The paired comparison of two methods, part by part and over all."""
    lines = []
    for part in (*parts, MEAN):
        sides = [by_seed(results, f"{part}: {method}", metric) for method in (better, worse)]
        if all(sides):
            one = judge(*sides)
            span = f"[{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
            lines.append(
                f"{part}: {better} − {worse} = {100 * one.difference:+.2f} {span}, p = {one.p:.3g}, n = {one.n}: {one.verdict}"
            )
    return "\n".join(lines)
