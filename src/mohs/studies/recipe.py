"""A recipe: a paper's table or figure as data, one TOML file whose keys are the fields of a run, checked when it is read.

    [study]    id, paper, what, metric, select ("last" | "best" | "best_val"), seeds, direction ("higher" | "lower"), note,
               unit ("%": numbers, ours and the paper's, are 100 × the metric; the default for accuracies), system (a key of
               SYSTEMS: rows hold its fields instead of those of a run; default: a run of `mohs train`)
    [base]     the fields of a run that all rows share
    [smoke]    changes for a trial that takes seconds (`--scale smoke`), in addition to SMOKE, which applies to every recipe
    [[row]]    label, and the fields of the run that differ; paper (the paper's number), deviation (how our run differs),
               against (label of the row it should beat), claim (id in the register of claims, or a list of ids),
               relabel_from (label of an earlier row: this row trains after it, with the same seed, on the labels that its
               network predicts) and choose (a setting selected on held-out examples, see below)
    [[sweep]]  key ("noise.rate") and values: every row is repeated for each value; several sweeps multiply
    [[measure]] name and fields of a measure of each trained network besides accuracy; label: prefix of its
               numbers, needed where a measure is used twice

"loss.q" = 0.5 changes one field of a spec. `open` may hold the keys of `train/run_data.py`: limit, train_limit,
holdout_classes, test. A label may contain {key} of a sweep.

Selecting a setting.

    choose = {key = "head.scale", values = [5, 10, 20]}                in a [[row]]
    choose = {key = "optimizer.lr", values = [0.03, 0.1, 0.3]}         in [base]: every row selects its own

Losses differ in the size of their gradients, so that a learning rate that suits one is too small or too large for another:
where losses are compared, each selects its own. The row is trained with every value, using the first seed. The value with the
best validation accuracy at the end (the first one if several are equal) is used for all seeds. Test labels are never used,
and a value whose training diverged is never selected.

Inheriting from another recipe.

    [study]    like = "table8.toml": a recipe in the same folder; rows: labels of the rows to take (default: all)
    [base]     what differs from its base; [smoke], [[measure]], [[sweep]] and [[row]] replace its own where given

Claim ids move to the new study's name: gr/table8/plain becomes gr/table8-fashion/plain.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mohs._core.specs import as_spec
from mohs._core.validation import check_choice, check_fields
from mohs.studies.run_measures import NamedMeasure, named_measures
from mohs.studies.systems.registry import SYSTEMS, system_from
from mohs.studies.systems.system import System
from mohs.train.run import Run, run_from

ROW_KEYS = ("label", "paper", "deviation", "against", "claim", "relabel_from", "choose")  # the rest are fields of the run
TEMPLATED = ("label", "against", "claim", "relabel_from")  # may contain {key} of a sweep
TABLES = ("row", "sweep", "measure")  # of which a recipe has several
INHERITED = ("smoke", "measure", "sweep", "row")
SELECT, DIRECTIONS, SCALES = ("last", "best", "best_val"), ("higher", "lower"), ("full", "smoke")
UNITS = ("", "%")
MOST_SEEDS = 10_000
SMOKE: dict[str, Any] = {"seeds": 1, "epochs": 2, "batch": 32, "open.limit": 12}  # limit: per class, in every part


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
    system: str | None = None

    def __post_init__(self) -> None:
        check_fields(Study, vars(self))
        if self.system is not None:
            check_choice("system", self.system, tuple(SYSTEMS))
        if self.unit is None:
            object.__setattr__(self, "unit", "%" if self.metric.endswith("accuracy") else "")
        check_choice("unit", self.unit, UNITS)
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be an integer of at least 1 and at most {MOST_SEEDS}, got {self.seeds}")
        check_choice("select", self.select, SELECT)
        check_choice("direction", self.direction, DIRECTIONS)


@dataclass(frozen=True)
class Choice:
    """A setting that a row selects on held-out examples: a field of the run, as recipes write it, and the candidate values."""

    key: str
    values: Sequence[float]

    def __post_init__(self) -> None:
        numbers = isinstance(self.values, list | tuple) and all(type(value) in (int, float) for value in self.values)
        if not isinstance(self.key, str) or not numbers or len(self.values) < 2:
            raise ValueError(f'choose needs key, such as "head.scale", and at least two numbers as values; got {self!r}')

    def apply(self, run: Run, value: float) -> Run:
        """The run with this value."""
        return run_from(override(run.plain(), {self.key: value}), where=f"choose {self.key} = {value}")

    def value_of(self, run: Mapping[str, Any]) -> float:
        """The value that a run, as described in its run.json, was trained with."""
        name, _, part = self.key.partition(".")
        return float(run[name][part] if part else run[name])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table: a run without its seed, and the paper's number for it."""

    label: str
    run: Run | System
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
        if self.choose is not None and not isinstance(self.choose, Choice):
            raise ValueError(f"choose has key and values, got {self.choose!r}")
        if self.choose is not None and self.relabel_from is not None:
            raise ValueError("choose does not go with relabel_from: put choose into the row that gives the labels")
        if isinstance(self.run, System) and (self.choose is not None or self.relabel_from is not None):
            raise ValueError("choose and relabel_from need a run of `mohs train`: this study trains another system")
        if not isinstance(self.claim, str | list | tuple):
            raise ValueError(f"claim must be an id of the register or a list of ids, got {self.claim!r}")
        if isinstance(self.claim, str):
            object.__setattr__(self, "claim", (self.claim,))
        if not all(isinstance(one, str) for one in self.claim):
            raise ValueError(f"claim must be an id of the register or a list of ids, got {self.claim!r}")
        check_fields(Row, {name: getattr(self, name) for name in ("label", "paper", "deviation", "against", "relabel_from")})


@dataclass(frozen=True)
class Recipe:
    """A study, its rows, and what is measured on each trained network."""

    path: Path
    study: Study
    rows: list[Row]
    measures: list[NamedMeasure] = field(default_factory=list)
    scale: str = "full"
    complete: bool = True  # False: a trial that skips measures whose files are missing


def read_recipe(path: str | Path, *, scale: str = "full", seeds: int | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: A TOML file, such as `recipes/gr/table3.toml`.
        scale: "full", or "smoke" for a trial of every part in seconds.
        seeds: Number of seeds; the recipe's own by default.

    Returns:
        The recipe, for `mohs.run_study`. An unknown key is an error that names the file.
    """
    path = Path(path)
    check_choice("scale", scale, SCALES)
    given = inherit(path, _toml(path))
    general = SMOKE if "system" not in given.get("study", {}) else {"seeds": SMOKE["seeds"]}
    smoke = {**general, **given.get("smoke", {})} if scale == "smoke" else {}
    smoke = dict(sorted(smoke.items(), key=lambda change: "." in change[0]))  # a whole spec before one field of it
    fewer = smoke.pop("seeds", None)
    study = _study(path, given.get("study", {}), seeds=fewer if seeds is None else seeds)
    rows = [_row(path, study, override(given.get("base", {}), row), smoke) for row in _swept(path, given)]
    _check_rows(path, rows)
    if study.system is not None and given.get("measure"):
        raise ValueError(f"{path}: [[measure]] needs runs of `mohs train`: {study.system} reports its own numbers")
    measures = named_measures(given.get("measure", []), where=str(path), smaller=scale == "smoke")
    return Recipe(path, study, rows, measures, scale, complete=len(measures) == len(given.get("measure", [])))


def find_recipes(paths: Sequence[str | Path]) -> list[Path]:
    """The recipe files among these paths; a folder stands for every .toml file below it."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise ValueError(f"{path}: no such recipe or folder of recipes")
        files = sorted(path.rglob("*.toml")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path}: no recipe (.toml) in this folder")
        found += files
    return found


def select_rows(recipe: Recipe, only: Sequence[str]) -> Recipe:
    """The recipe with some of its rows, and the rows that these should beat or take labels from.

    A text of `only` selects the row with that label; if there is none, every row whose label contains it.
    """
    known = {row.label for row in recipe.rows}
    selected = [row for row in recipe.rows if any(row.label == text if text in known else text in row.label for text in only)]
    if not selected:
        raise ValueError(
            f"{recipe.path}: no row's label contains {' or '.join(only)}; rows: {', '.join(r.label for r in recipe.rows)}"
        )
    labels = {row.label for row in selected} | {row.against for row in selected}
    for row in reversed(recipe.rows):  # sources stand before the rows they relabel
        labels |= {row.relabel_from} if row.label in labels else set()
    return dataclasses.replace(recipe, rows=[row for row in recipe.rows if row.label in labels])


def override(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the changes; "loss.q" changes one field of a spec, a whole spec replaces the old one."""
    made = dict(base)
    for key, value in changes.items():
        name, _, part = key.partition(".")
        old = made.get(name) or {}
        if part and not isinstance(old, str | Mapping):
            raise ValueError(f"{key}: {name} has no fields, it is {old!r}")
        made[name] = {**(as_spec(old) if isinstance(old, str) else old), part: value} if part else value
    return made


def inherit(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The recipe, completed from the one that `like` names; unchanged without `like`."""
    study = dict(given.get("study", {}))
    like, labels = study.pop("like", None), study.pop("rows", None)
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise ValueError(f"{path}: [study] rows must be a list of labels, got {labels!r}")
    if like is None:
        if labels is not None:
            raise ValueError(f"{path}: [study] rows selects rows of another recipe: it needs like")
        return given
    other_path = path.parent / str(like)
    if not other_path.is_file():
        raise ValueError(f"{path}: [study] like = {like!r}: no such file in the same folder")
    other = _toml(other_path)
    if "like" in other.get("study", {}):
        raise ValueError(f"{path}: [study] like = {like!r}, which itself inherits from another recipe: name that one")
    made = {**{key: other[key] for key in INHERITED if key in other}, **given, "study": study}
    made["base"] = override(other.get("base", {}), given.get("base", {}))
    if "row" in given and labels is not None:
        raise ValueError(f"{path}: [study] rows takes rows of {like}, and [[row]] gives others: use one of the two")
    if "row" not in given:
        old, new = str(other["study"].get("id")), str(study.get("id"))
        made["row"] = [_renamed_claims(row, old, new) for row in _inherited_rows(path, other, labels)]
    return made


def _inherited_rows(path: Path, other: Mapping[str, Any], labels: list[str] | None) -> list[dict[str, Any]]:
    rows = {str(row.get("label")): row for row in other.get("row", [])}
    for label in labels or ():
        if label not in rows:
            raise ValueError(f"{path}: [study] rows has {label!r}, which is not a row there; rows: {', '.join(rows)}")
    return list(rows.values()) if labels is None else [rows[label] for label in labels]


def _renamed_claims(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    claims = row.get("claim", [])
    listed = [claims] if isinstance(claims, str) else claims
    return {**row, "claim": [new + one[len(old) :] for one in listed if one == old or one.startswith(f"{old}/")]}


def _toml(path: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from error
    _check_keys(path, "the recipe", given, ("study", "base", "smoke", "row", "sweep", "measure"))
    for key, value in given.items():
        one = isinstance(value, dict)
        many = isinstance(value, list) and all(isinstance(part, dict) for part in value)
        if not (many if key in TABLES else one):
            wanted = f"tables [[{key}]]" if key in TABLES else f"a table [{key}]"
            raise ValueError(f"{path}: {key} must be {wanted}, got {value!r}")
    return given


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
        if not isinstance(sweep.get("key"), str) or not isinstance(sweep.get("values"), list) or not sweep["values"]:
            raise ValueError(f"{path}: a [[sweep]] needs key and values, a text and a list, got {sweep}")
    for values in itertools.product(*(sweep["values"] for sweep in sweeps)):
        named = {sweep["key"]: value for sweep, value in zip(sweeps, values, strict=True)}
        for row in given.get("row", []):
            filled = {key: _filled(row[key], named) for key in TEMPLATED if key in row}
            yield {**named, **row, **filled}


def _filled(text: Any, named: Mapping[str, Any]) -> Any:
    """The text, or a list of texts, with {key} replaced by the values of the sweeps."""
    if isinstance(text, list):
        return [_filled(one, named) for one in text]
    if not isinstance(text, str):
        return text  # reported when the row is made
    for key, value in named.items():
        text = text.replace(f"{{{key}}}", f"{value:g}" if isinstance(value, float) else str(value))
    return text


def _row(path: Path, study: Study, given: dict[str, Any], smoke: Mapping[str, Any]) -> Row:
    own = {key: given.pop(key) for key in ROW_KEYS if key in given}
    if smoke and isinstance(own.get("choose"), Mapping):  # a trial of the selection, not of every value
        own["choose"] = {**own["choose"], "values": list(own["choose"].get("values", ()))[:2]}
    if "label" not in own:
        raise ValueError(f"{path}: a [[row]] has no label")
    where, paper = f"{path}, row {own['label']!r}", own.get("paper")
    if paper is not None and (isinstance(paper, bool) or not isinstance(paper, int | float)):
        raise ValueError(f"{where}: paper must be a number, got {paper!r}; put text into deviation")
    if paper is not None and study.unit == "%" and 0 < paper < 1:
        raise ValueError(f'{where}: paper = {paper:g}, but this study is in %: write {100 * paper:g}, or set unit = ""')
    try:
        settings = override(given, smoke)
        run = run_from(settings, where=where) if study.system is None else system_from(study.system, settings)
        row = Row(run=run, **own)
        if row.choose is not None and isinstance(run, Run):
            row.choose.apply(run, row.choose.values[0])  # raises if there is no such setting
        return row
    except ValueError as error:
        raise ValueError(str(error) if where in str(error) else f"{where}: {error}") from error


def _check_rows(path: Path, rows: list[Row]) -> None:
    labels = [row.label for row in rows]
    if not rows:
        raise ValueError(f"{path}: a recipe needs at least one [[row]]")
    for row in rows:
        if labels.count(row.label) > 1:
            raise ValueError(f"{path}: two rows have the label {row.label!r}; a sweep needs its {{key}} in the label")
        if row.against is not None and row.against not in labels:
            raise ValueError(f"{path}: {row.label!r} is against {row.against!r}, which is not a row; rows: {', '.join(labels)}")
        if row.relabel_from is not None:
            _check_source(path, row, rows[: labels.index(row.label)])


def _check_source(path: Path, row: Row, before: list[Row]) -> None:
    """Validate that `relabel_from` names an earlier row with the same data."""
    source = next((one for one in before if one.label == row.relabel_from), None)
    where = f"{path}, row {row.label!r}: relabel_from = {row.relabel_from!r}"
    if source is None:
        raise ValueError(f"{where} is not an earlier row; earlier rows: {', '.join(one.label for one in before) or '(none)'}")
    ours, theirs = row.run, source.run
    if isinstance(ours, Run) and isinstance(theirs, Run) and (theirs.data, theirs.open) != (ours.data, ours.open):
        raise ValueError(f"{where}: both rows must have the same data and open")


def _check_keys(path: Path, where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{path}: {where} has an unknown key {key!r}; known: {', '.join(known)}")
