"""A recipe: a paper's table or figure as data, one TOML file; its keys are the fields of a run and are checked at loading.

    [study]    id, paper, what, metric, select ("last" | "best" | "best_val"), seeds, direction ("higher" | "lower"), note,
               unit ("%": numbers are shown, and the paper's given, as 100 × the metric; the default of accuracies), like
               and rows: the rows of another recipe (`like.py`)
    [base]     the fields of a run that all rows share
    [smoke]    what to change for a trial in seconds (`--scale smoke`), beyond what SMOKE changes in every recipe
    [[row]]    label, fields of the run that differ; paper (the paper's number), deviation (how ours differs), against (the
               label of the row it is to beat), claim (ids of the register: a word or a list) and relabel_from (the label of
               an earlier row: trained after it, on its data with the labels that its network gives; the same seed),
               choose (a field whose value is chosen on held-out examples: `choose.py`)
    [[sweep]]  key ("noise.rate"), values: every row is repeated for each; several sweeps multiply
    [[measure]] name and its own fields: what is measured on each trained network, beside accuracy; label: what its numbers'
               names begin with, where one measure stands twice

"loss.q" = 0.5 changes one field of a spec. `open` may hold what `study/data.py` adds: limit, train_limit, holdout_classes, test.
No logic stands in a recipe: `sweep` is its grid, `choose` its only choice. A row's label may hold {key} of a sweep.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mohs._core.validation import check_choice
from mohs.studies.choose import Choice
from mohs.studies.inherit import completed, merged
from mohs.studies.run_measures import Named, named_measures
from mohs.train.run import Run, run_from

OWN = ("label", "paper", "deviation", "against", "claim", "relabel_from", "choose")
FILLED = ("label", "against", "claim", "relabel_from")
SELECT, DIRECTIONS, SCALES = ("last", "best", "best_val"), ("higher", "lower"), ("full", "smoke")
UNITS = ("", "%")
SMOKE: dict[str, Any] = {"seeds": 1, "epochs": 2, "batch": 32, "open.limit": 20}  # limit: of each class, in every part


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a recipe is about and how its rows are judged."""

    id: str
    paper: str
    what: str
    metric: str = "test_accuracy"
    select: str = "last"
    seeds: int = 3
    direction: str = "higher"
    note: str = ""
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.unit is None:
            object.__setattr__(self, "unit", "%" if self.metric.endswith("accuracy") else "")
        check_choice("unit", self.unit, UNITS)
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise ValueError(f"seeds must be a whole number of at least 1, got {self.seeds!r}")
        check_choice("select", self.select, SELECT)
        check_choice("direction", self.direction, DIRECTIONS)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a run without its seed, and what the paper says of it."""

    label: str
    run: Run
    paper: float | None = None
    deviation: str = ""
    against: str | None = None
    claim: Sequence[str] = ()
    relabel_from: str | None = None
    choose: Choice | None = None

    def __post_init__(self) -> None:
        if isinstance(self.choose, Mapping):
            if set(self.choose) != {"key", "values"}:
                raise ValueError(f"choose has key and values, got {self.choose!r}")
            object.__setattr__(self, "choose", Choice(**self.choose))
        if self.choose is not None and self.relabel_from is not None:
            raise ValueError("choose does not go with relabel_from: let the row that gives the labels choose")
        if isinstance(self.claim, str):  # a word stands for a list of one
            object.__setattr__(self, "claim", (self.claim,))
        if not all(isinstance(one, str) for one in self.claim):
            raise ValueError(f"claim must be an id of the register or a list of them, got {self.claim!r}")


@dataclass(frozen=True)
class Recipe:
    """A study, its rows, and what is measured on each network."""

    path: Path
    study: Study
    rows: list[Row]
    measures: list[Named] = field(default_factory=list)
    scale: str = "full"
    whole: bool = True  # every measure is there: a trial leaves out those whose files are not


def read_recipe(path: Path, *, scale: str = "full", seeds: int | None = None) -> Recipe:
    """The recipe in this file, whole or shrunk to a trial; an unknown key is an error that names the file."""
    check_choice("scale", scale, SCALES)
    given = completed(path, _toml(path), _toml)
    smoke = {**SMOKE, **given.get("smoke", {})} if scale == "smoke" else {}
    smoke = dict(sorted(smoke.items(), key=lambda change: "." in change[0]))  # a whole spec before one field of it
    fewer = smoke.pop("seeds", None)
    study = _study(path, given.get("study", {}), seeds=fewer if seeds is None else seeds)
    rows = [_row(path, study, merged(given.get("base", {}), row), smoke) for row in _swept(path, given)]
    _check_rows(path, rows)
    measures = named_measures(given.get("measure", []), where=str(path), smaller=scale == "smoke")
    return Recipe(Path(path), study, rows, measures, scale, whole=len(measures) == len(given.get("measure", [])))


def _toml(path: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(Path(path).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from error
    _check_keys(path, "the recipe", given, ("study", "base", "smoke", "row", "sweep", "measure"))
    return given


def narrowed(recipe: Recipe, only: Sequence[str]) -> Recipe:
    """The recipe with those rows whose label is one of these texts, or holds it where none is it, and the rows that they are to
    beat or take labels from."""
    known = {row.label for row in recipe.rows}
    wanted = [row for row in recipe.rows if any(row.label == text if text in known else text in row.label for text in only)]
    if not wanted:
        raise ValueError(
            f"{recipe.path}: no row's label holds {' or '.join(only)}; rows: {', '.join(r.label for r in recipe.rows)}"
        )
    labels = {row.label for row in wanted} | {row.against for row in wanted}
    for row in reversed(recipe.rows):  # sources stand before the rows they relabel
        labels |= {row.relabel_from} if row.label in labels else set()
    return dataclasses.replace(recipe, rows=[row for row in recipe.rows if row.label in labels])


def _study(path: Path, given: Mapping[str, Any], *, seeds: int | None) -> Study:
    known = dataclasses.fields(Study)
    _check_keys(path, "[study]", given, (*(f.name for f in known), "like", "rows"))
    for f in known:
        if f.default is dataclasses.MISSING and f.name not in given:
            raise ValueError(f"{path}: [study] needs {f.name}")
    try:
        return Study(**{**given, **({} if seeds is None else {"seeds": seeds})})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _swept(path: Path, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows, each for every combination of the sweeps."""
    sweeps = given.get("sweep", [])
    for sweep in sweeps:
        _check_keys(path, "[[sweep]]", sweep, ("key", "values"))
        if "key" not in sweep or not sweep.get("values"):
            raise ValueError(f"{path}: a [[sweep]] needs key and values, got {sweep}")
    for values in itertools.product(*(sweep["values"] for sweep in sweeps)):
        named = {sweep["key"]: value for sweep, value in zip(sweeps, values, strict=True)}
        for row in given.get("row", []):
            told = {key: _filled(row[key], named) for key in FILLED if key in row}
            yield {**named, **row, **told}


def _filled(text: Any, named: Mapping[str, Any]) -> Any:
    """The text, or each of a list of texts, with the values of the sweeps."""
    if isinstance(text, list):
        return [_filled(one, named) for one in text]
    for key, value in named.items():
        text = text.replace(f"{{{key}}}", f"{value:g}" if isinstance(value, float) else str(value))
    return text


def _row(path: Path, study: Study, given: dict[str, Any], smoke: Mapping[str, Any]) -> Row:
    own = {key: given.pop(key) for key in OWN if key in given}
    if "label" not in own:
        raise ValueError(f"{path}: a [[row]] has no label")
    where, paper = f"{path}, row {own['label']!r}", own.get("paper")
    if paper is not None and (isinstance(paper, bool) or not isinstance(paper, int | float)):
        raise ValueError(f"{where}: paper must be the paper's number, got {paper!r}; words go into deviation")
    if paper is not None and study.unit == "%" and 0 < paper < 1:
        raise ValueError(f'{where}: paper = {paper:g}, but this study is in %: write {100 * paper:g}, or set unit = ""')
    try:
        row = Row(run=run_from(merged(given, smoke), where=where), **own)
        if row.choose is not None:
            row.choose.settled(row.run, row.choose.values[0])  # an error where there is no such setting
        return row
    except ValueError as error:
        raise ValueError(str(error) if where in str(error) else f"{where}: {error}") from error


def _check_rows(path: Path, rows: list[Row]) -> None:
    labels = [row.label for row in rows]
    if not rows:
        raise ValueError(f"{path}: a recipe needs at least one [[row]]")
    for row in rows:
        if labels.count(row.label) > 1:
            raise ValueError(f"{path}: two rows are called {row.label!r}; a sweep needs its {{key}} in the label")
        if row.against is not None and row.against not in labels:
            raise ValueError(f"{path}: {row.label!r} is against {row.against!r}, which is no row; rows: {', '.join(labels)}")
        if row.relabel_from is not None:
            _check_source(path, row, rows[: labels.index(row.label)])


def _check_source(path: Path, row: Row, before: list[Row]) -> None:
    """Raise unless an earlier row of the same data is where this one takes its labels from."""
    source = next((one for one in before if one.label == row.relabel_from), None)
    where = f"{path}, row {row.label!r}: relabel_from = {row.relabel_from!r}"
    if source is None:
        raise ValueError(f"{where} is no row before it; those are: {', '.join(one.label for one in before) or 'none'}")
    if (source.run.data, source.run.open) != (row.run.data, row.run.open):
        raise ValueError(f"{where}: the two must have the same data and open")


def _check_keys(path: Path, where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{path}: {where} has an unknown key {key!r}; known: {', '.join(known)}")
