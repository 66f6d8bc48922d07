"""A study's page: ours beside the paper's numbers, each row against the one it should beat, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mohs.evaluate.statistics import Summary, summary
from mohs.studies.collect import AFTER, BEFORE, Result, by_seed, columns_of
from mohs.studies.judge import Judgment, judge, judge_all
from mohs.studies.recipe import Recipe, Row
from mohs.studies.trained_at_all import of_learned, unlearned

CHOSEN = {
    "last": "Numbers are those of the last epoch.",
    "best_val": "The epoch with the best validation accuracy counts; the test labels choose nothing.",
    "best": "**The epoch with the best test accuracy counts, as in the paper: it is chosen on the test labels, and too high.**",
}
HEAD = ("row", "ours", "95 % interval", "paper", "ours − paper", "against", "difference [95 %]", "p (Holm)", "verdict")


def report(recipe: Recipe, results: Sequence[Result]) -> str:
    """The page of these results, as Markdown."""
    study, lines = recipe.study, _opening(recipe, results)
    lines += ["", table(HEAD, _rows(recipe, results))]
    cautions = [reason for row in recipe.rows if (reason := unlearned(results, row.label))]
    if cautions:
        lines += ["", "## Caution", "", "Comparisons with these rows count as not run.", "", *(f"- {one}" for one in cautions)]
    told = {row.label: row.deviation for row in recipe.rows if row.deviation}
    if told:
        lines += ["", "## How ours deviates from the paper", "", *(f"- {label}: {text}" for label, text in told.items())]
    failed = [f"- {one['row']}, seed {one['seed']}: {one['error']}" for one in results if one.get("error")]
    if failed:
        lines += ["", "## Runs that failed", "", *failed]
    lines += _others(recipe, results)
    if study.note:
        lines += ["", "## Note", "", study.note.strip()]
    return "\n".join(lines) + "\n"


def verdicts(recipe: Recipe, results: Sequence[Result]) -> dict[str, Judgment]:
    """The judgment of every row that is to beat another, by label; p corrected over all of them by Holm's method."""
    metric, direction = recipe.study.metric, recipe.study.direction
    judged: dict[str, Judgment] = {}
    for row in recipe.rows:
        ours = by_seed(results, row.label, metric)
        theirs = by_seed(results, row.against, metric) if row.against is not None else {}
        if set(ours) & set(theirs):
            judged[row.label] = judge(ours, theirs, direction=direction)
    return dict(zip(judged, judge_all(list(judged.values()), direction=direction), strict=True))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in safe]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _opening(recipe: Recipe, results: Sequence[Result]) -> list[str]:
    study = recipe.study
    done = [one for one in results if not one.get("error")]
    seen = {name: sorted({str(one[name]) for one in done if name in one}) for name in ("hardware", "date", "versions")}
    unit = " in %" if study.unit == "%" else ""
    lines = [f"# {study.what}", "", f"`{study.id}` ({study.paper}), recipe `{recipe.path.name}`: {study.metric}{unit}, "]
    lines[-1] += f"{study.direction} is better, {study.seeds} seed(s). {CHOSEN[study.select]}"
    if recipe.scale != "full":
        lines += ["", f"**A trial at scale {recipe.scale}: it shows that the study runs; its numbers mean nothing.**"]
    if done:
        days = " to ".join(dict.fromkeys((seen["date"][0], seen["date"][-1])))
        lines += ["", f"{len(done)} run(s) on {'; '.join(seen['hardware'])}, {days}; {'; '.join(seen['versions'])}."]
    lines += ["", "A row holds or fails against another where a paired t-test over shared seeds, corrected by Holm's method "]
    lines[-1] += "for the number of rows, has p < .05; else it is a draw."
    return lines


def _rows(recipe: Recipe, results: Sequence[Result]) -> list[list[str]]:
    judged, show = verdicts(recipe, of_learned(results)), shown(recipe.study.unit or "")
    return [
        _row(recipe, row, by_seed(results, row.label, recipe.study.metric), judged.get(row.label), show) for row in recipe.rows
    ]


def _row(recipe: Recipe, row: Row, values: dict[int, float], judged: Judgment | None, show: Callable[[float], str]) -> list[str]:
    finite = [value for value in values.values() if math.isfinite(value)]
    paper, times = "" if row.paper is None else f"{row.paper:g}", 100 if recipe.study.unit == "%" else 1
    if not finite:
        return [row.label, "not run", "", paper, "", row.against or "", "", "", "not run" if row.against else ""]
    found = summary(finite)
    off = "" if row.paper is None else f"{times * found.mean - row.paper:+.2f}" if times > 1 else f"{found.mean - row.paper:+.3g}"
    made = [row.label, plus_minus(found, show), span(found.low, found.high, show), paper, off, row.against or ""]
    if judged is None:
        return [*made, "", "", "not run" if row.against else ""]
    gap = f"{'+' if judged.difference > 0 else ''}{show(judged.difference)} {span(judged.low, judged.high, show)}".strip()
    return [*made, gap, "" if math.isnan(judged.p) else f"{judged.p:.2g}", f"**{judged.verdict}**"]


def _others(recipe: Recipe, results: Sequence[Result]) -> list[str]:
    """A second table: every other number, mean ± SD."""
    names = [name for name in columns_of(results) if name not in (*BEFORE, *AFTER, recipe.study.metric)]
    if not names:
        return []
    labels = [row.label for row in recipe.rows]
    cells = {(label, name): _mean(results, label, name) for label in labels for name in names}
    if len(labels) >= len(names):  # the longer side goes down the page
        made = table(["row", *names], [[label, *(cells[label, name] for name in names)] for label in labels])
    else:
        made = table(["", *labels], [[name, *(cells[label, name] for label in labels)] for name in names])
    return ["", "## Everything else that was measured", "", made]


def _mean(results: Sequence[Result], label: str, name: str) -> str:
    values = [value for value in by_seed(results, label, name).values() if math.isfinite(value)]
    return plus_minus(summary(values), shown("")) if values else ""


def shown(unit: str) -> Callable[[float], str]:
    """How a number of this unit is written."""
    return (lambda value: f"{100 * value:.2f}") if unit == "%" else (lambda value: f"{value:.4g}")


def plus_minus(found: Summary, show: Callable[[float], str]) -> str:
    """mean ± SD (n)."""
    if found.n < 2:
        return f"{show(found.mean)} (1)"
    sd = 0.0 if found.sd < 1e-12 * abs(found.mean) else found.sd  # rounding, of runs that are all alike
    return f"{show(found.mean)} ± {show(sd)} ({found.n})"


def span(low: float, high: float, show: Callable[[float], str]) -> str:
    """[low, high], nothing where there is no interval."""
    return "" if math.isnan(low) else f"[{show(low)}, {show(high)}]"
