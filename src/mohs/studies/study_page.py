"""A study's page: our numbers beside the paper's, and each row against the one it should beat, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mohs._core.checksums import refuse_folder
from mohs.evaluate.statistics import Summary, summary
from mohs.studies.collect import AFTER, BEFORE, CHOSEN, Result, by_seed, columns_of, merge_results, read_results, write_results
from mohs.studies.judge import Judgment, collapses, judge, judge_all, learned_only
from mohs.studies.recipe import Recipe, Row

SELECTED = {
    "last": "Numbers are from the last epoch.",
    "best_val": "Numbers are from the epoch with the best validation accuracy; test labels are not used for selection.",
    "best": "**Numbers are from the epoch with the best test accuracy, as in the paper: selected on the test labels, too high.**",
}
NOT_RUN = "not run"
COLLAPSED = (
    "Comparisons leave these runs, and those of the other row with the same seeds, out. A row with fewer than two others counts "
    "as not run."
)
HEAD = ("row", "ours", "95 % interval", "paper", "ours − paper", "against", "difference [95 %]", "p (Holm)", "verdict")


@dataclass(frozen=True)
class StudySummary:
    """The outcome of a study: the number of runs and failures, the files written, and a verdict per row that should beat another.

    verdicts: by "ROW against OTHER", each "holds", "fails", "draw" or "not run".
    """

    study: str
    runs: int
    failed: int
    results: Path
    page: Path
    verdicts: dict[str, str]


def write_study_page(recipe: Recipe, results: Sequence[Result], folder: str | Path = "results") -> StudySummary:
    """Judge the results of a study and write `<id>.csv` and `<id>.md`.

    Args:
        recipe: The whole recipe, even if only some of its rows were run.
        results: From `mohs.run_study`. Results that the CSV holds for other rows and seeds are kept.
        folder: Folder for both files.

    Returns:
        The files and the verdicts.

    Example:
        >>> recipe = mohs.read_recipe("recipes/gr/table3.toml", seeds=3)  # doctest: +SKIP
        >>> mohs.write_study_page(recipe, mohs.run_study(recipe)).verdicts  # doctest: +SKIP
    """
    table, page = (Path(folder) / f"{recipe.study.id}{ending}" for ending in (".csv", ".md"))
    results = merge_results(read_results(table) if table.exists() else [], results, recipe)
    write_results(results, table)
    results = read_results(table)  # as the file has them, rounded: the page is the same when it is written again
    refuse_folder(page)
    page.write_text(study_page(recipe, results))
    judged = verdicts(recipe, results)
    rivals = [row for row in recipe.rows if row.against is not None]
    outcome = {row.label: judged[row.label].verdict if row.label in judged else NOT_RUN for row in rivals}
    return StudySummary(
        study=recipe.study.id,
        runs=len(results),
        failed=sum(bool(one.get("error")) for one in results),
        results=table,
        page=page,
        verdicts={f"{row.label} against {row.against}": outcome[row.label] for row in rivals},
    )


def study_page(recipe: Recipe, results: Sequence[Result]) -> str:
    """The page of a study, as Markdown."""
    study, lines = recipe.study, _opening(recipe, results)
    lines += ["", table(HEAD, _rows(recipe, results))]
    cautions = [reason for row in recipe.rows if (reason := collapses(results, row.label))]
    if cautions:
        lines += ["", "## Collapsed runs", "", COLLAPSED, "", *(f"- {one}" for one in cautions)]
    deviations = [f"- {row.label}: {row.deviation}" for row in recipe.rows if row.deviation]
    if deviations:
        lines += ["", "## Deviations from the paper", "", *deviations]
    lines += _others(recipe, results)
    if study.note:
        lines += ["", "## Note", "", study.note.strip()]
    return "\n".join(lines) + "\n"


def verdicts(recipe: Recipe, results: Sequence[Result]) -> dict[str, Judgment]:
    """The judgment of every row that should beat another, by label; p is corrected over all of them by Holm's method.

    Runs that collapsed do not count.
    """
    metric, direction, results = recipe.study.metric, recipe.study.direction, learned_only(results)
    judged: dict[str, Judgment] = {}
    for row in recipe.rows:
        ours = by_seed(results, row.label, metric)
        theirs = by_seed(results, row.against, metric) if row.against is not None else {}
        if set(ours) & set(theirs):
            judged[row.label] = judge(ours, theirs, direction=direction)
    return dict(zip(judged, judge_all(list(judged.values())), strict=True))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; bars within cells are escaped."""
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in safe]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _opening(recipe: Recipe, results: Sequence[Result]) -> list[str]:
    study = recipe.study
    done = [one for one in results if not one.get("error")]
    seen = {name: sorted({str(one[name]) for one in done if name in one}) for name in ("hardware", "date", "versions")}
    unit = " in %" if study.unit == "%" else ""
    lines = [f"# {study.what}", "", f"`{study.id}` ({study.paper}), recipe `{recipe.path.name}`: {study.metric}{unit}, "]
    lines[-1] += f"{study.direction} is better, {study.seeds} seed(s). {SELECTED[study.select]}"
    if recipe.scale != "full":
        lines += ["", f"**A trial at scale {recipe.scale}: it checks that the study runs; its numbers mean nothing.**"]
    if done:
        days = " to ".join(dict.fromkeys((seen["date"][0], seen["date"][-1])))
        lines += ["", f"{len(done)} run(s) on {'; '.join(seen['hardware'])}, {days}; {'; '.join(seen['versions'])}."]
    lines += _choices(recipe, results)
    rule = "A row holds or fails against another if a paired t-test over shared seeds, corrected for the number of rows by "
    return [*lines, "", f"{rule}Holm's method, has p < 0.05; otherwise it is a draw."]


def _choices(recipe: Recipe, results: Sequence[Result]) -> list[str]:
    """Which settings rows select on held-out examples, and whether these results did."""
    chosen = {(row.choose.key, tuple(row.choose.values)) for row in recipe.rows if row.choose is not None}
    if not chosen:
        return []
    texts = [f"{key} from {', '.join(f'{value:g}' for value in values)}" for key, values in sorted(chosen)]
    older = not any(CHOSEN in one for one in results)
    note = " **These results are older: they were made with one value for all rows and have to be made anew.**" if older else ""
    return ["", f"Rows select {' and '.join(texts)} on held-out examples, by the first seed.{note}"]


def _rows(recipe: Recipe, results: Sequence[Result]) -> list[list[str]]:
    judged, show = verdicts(recipe, results), number_format(recipe.study.unit or "")
    return [
        _row(recipe, row, by_seed(results, row.label, recipe.study.metric), judged.get(row.label), show) for row in recipe.rows
    ]


def _row(recipe: Recipe, row: Row, values: dict[int, float], judged: Judgment | None, show: Callable[[float], str]) -> list[str]:
    finite = [value for value in values.values() if math.isfinite(value)]
    paper, times = "" if row.paper is None else f"{row.paper:g}", 100 if recipe.study.unit == "%" else 1
    if not finite:
        return [row.label, NOT_RUN, "", paper, "", row.against or "", "", "", NOT_RUN if row.against else ""]
    found = summary(finite)
    off = "" if row.paper is None else f"{times * found.mean - row.paper:+.2f}" if times > 1 else f"{found.mean - row.paper:+.3g}"
    made = [row.label, plus_minus(found, show), span(found.low, found.high, show), paper, off, row.against or ""]
    if judged is None:
        return [*made, "", "", NOT_RUN if row.against else ""]
    gap = f"{'+' if judged.difference > 0 else ''}{show(judged.difference)} {span(judged.low, judged.high, show)}".strip()
    return [*made, gap, "" if math.isnan(judged.p) else f"{judged.p:.2g}", f"**{judged.verdict}**"]


def _others(recipe: Recipe, results: Sequence[Result]) -> list[str]:
    """A second table with every other number, mean ± SD."""
    names = [name for name in columns_of(results) if name not in (*BEFORE, *AFTER, recipe.study.metric)]
    if not names:
        return []
    labels = [row.label for row in recipe.rows]
    cells = {(label, name): _mean(results, label, name) for label in labels for name in names}
    if len(labels) >= len(names):  # the longer side becomes the rows
        made = table(["row", *names], [[label, *(cells[label, name] for name in names)] for label in labels])
    else:
        made = table(["", *labels], [[name, *(cells[label, name] for label in labels)] for name in names])
    return ["", "## Other measurements", "", made]


def _mean(results: Sequence[Result], label: str, name: str) -> str:
    values = [value for value in by_seed(results, label, name).values() if math.isfinite(value)]
    return plus_minus(summary(values), number_format("")) if values else ""


def number_format(unit: str) -> Callable[[float], str]:
    """The function that formats numbers of this unit."""
    return (lambda value: f"{100 * value:.2f}") if unit == "%" else (lambda value: f"{value:.4g}")


def plus_minus(found: Summary, show: Callable[[float], str]) -> str:
    """mean ± SD (n)."""
    if found.n < 2:
        return f"{show(found.mean)} (1)"
    sd = 0.0 if found.sd < 1e-12 * abs(found.mean) else found.sd  # rounding error of identical runs
    return f"{show(found.mean)} ± {show(sd)} ({found.n})"


def span(low: float, high: float, show: Callable[[float], str]) -> str:
    """[low, high]; empty without an interval."""
    return "" if math.isnan(low) else f"[{show(low)}, {show(high)}]"
