"""`mohs list`: the names that options and recipes accept."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from torch import nn

Row = dict[str, str]
WIDEST = 44  # width of the formula column, if a focus follows
RECIPES = "recipes"
TABLES = {  # kind: module and name of its table, and what it lists
    "losses": ("mohs.losses", "LOSSES", "losses (--loss)"),
    "regularizers": ("mohs.losses", "REGULARIZERS", "regularizers (--regularizer)"),
    "heads": ("mohs.heads", "HEADS", "classification heads (--head)"),
    "schedules": ("mohs.losses.weight_schedule", "SCHEDULES", "schedules of a regularizer's weight"),
    "scores": ("mohs.hardness.scores", "SCORES", "hardness scores"),
    "models": ("mohs.models", "MODELS", "networks (--model)"),
    "data": ("mohs.data.open_single", "DATA", "named data sets (DATA)"),
    "noises": ("mohs.data.noise", "NOISES", "label noise (--noise)"),
    "embedders": ("mohs.embed.choose_embedder", "EMBEDDERS", "embedders of images and text (--embed, --with)"),
    "augmentations": ("mohs.train.augment", "AUGMENTATIONS", "augmentations (--augment)"),
    "optimizers": ("mohs.train.optimizers", "OPTIMIZERS", "optimizers (--optimizer)"),
    "lr_schedules": ("mohs.train.learning_rate", "LR_SCHEDULES", "learning-rate schedules (--schedule)"),
    "robust": ("mohs.train.robust", "RECIPES", "recipes of robust training (--recipe)"),
    "selections": ("mohs.adapt.selection", "SELECTIONS", "pseudo-label selections of mohs adapt (--selection)"),
    "measures": ("mohs.studies.run_measures", "MEASURES", "measures of a recipe"),
    "issues": ("mohs.issues.catalog", "ISSUES", "issues besides labels (mohs audit --issues, --gate)"),
    "attacks": ("mohs.evaluate.attack", "ATTACKS", "adversarial attacks, for the measure attack"),
    "degradations": ("mohs.data.degrade", "DEGRADATIONS", "image degradations, for the measure degrade"),
}
KINDS = {kind: what for kind, (_, _, what) in TABLES.items()} | {RECIPES: "recipes of mohs study"}
EPILOG = "\b\nKinds:\n" + "\n".join(f"  {kind:<15}{what}" for kind, what in KINDS.items())


def listing(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to list, one of the kinds below.")] = "losses",
    as_json: o.Json = False,
) -> None:
    """List the losses, networks, data sets and other names that options accept, with their settings."""
    if kind not in KINDS:
        raise ValueError(f"cannot list {kind!r}; known: {', '.join(KINDS)}")
    rows = recipes() if kind == RECIPES else entries(kind)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        focus = f" focus {row['focus']}" if row.get("focus") else ""
        typer.echo(f"{row['name']:<22} {row['formula']:<{WIDEST}}{focus}".rstrip())
        for line in (row["for"], row["settings"]):
            if line:
                typer.echo(f"    {line}")


def entries(kind: str) -> list[Row]:
    """The entries of one table: name, formula, purpose and settings with their defaults; losses have their focus too."""
    module, name, _ = TABLES[kind]
    table: Mapping[str, Any] = getattr(import_module(module), name)
    if kind == "scores":
        direction = {1: "higher is harder", -1: "lower is harder; the score is the negative"}
        return [_row(key, f"column {one.column}", one.meaning, direction[one.sign]) for key, one in table.items()]
    if kind == "data":
        return [_row(key, "", one.about, "" if "built in" in one.about else "files: in $MOHS_DATA") for key, one in table.items()]
    if kind == "embedders":
        extras = {key: f"pip install 'mohs[{one.extra}]'" if one.extra else "" for key, one in table.items()}
        return [_row(key, one.formula, one.purpose, extras[key]) for key, one in table.items()]
    if kind == "issues":
        return [
            _row(key, one.title, one.meaning, f"needs {', '.join(one.needs).replace('|', ' or ')}") for key, one in table.items()
        ]
    rows = [_piece(key, piece) for key, piece in table.items()]
    if kind == "losses":
        return [{**row, "focus": _focus(table[row["name"]])} for row in rows]
    return [{**row, "formula": row["formula"] or "weight by epoch"} for row in rows] if kind == "schedules" else rows


def recipes() -> list[Row]:
    """The recipes in ./recipes or, without that folder, those of the source tree that mohs runs from."""
    import mohs

    homes = [Path("recipes"), Path(mohs.__file__).parent / "recipes", Path(mohs.__file__).parents[2] / "recipes"]
    found = next((files for home in homes if (files := sorted(home.rglob("*.toml")))), [])
    if not found:
        raise ValueError("no recipes found: run this in a source tree of mohs, which has them in ./recipes")
    return [_recipe(path) for path in found]


def _row(name: str, formula: str, purpose: str, settings: str) -> Row:
    return {"name": name, "formula": formula, "for": purpose, "settings": settings}


def _piece(name: str, piece: Any) -> Row:
    settings = ", ".join(f"{key}={value}" for key, value in _settings(piece).items())
    return _row(name, getattr(piece, "formula", ""), getattr(piece, "purpose", "") or _first_paragraph(piece), settings)


def _settings(piece: Any) -> dict[str, str]:
    """The piece's own settings with their defaults, those of a default factory included."""
    from mohs.losses import own_fields

    own = own_fields(piece)
    factories = {f.name: str(f.default_factory()) for f in dataclasses.fields(piece) if callable(f.default_factory)}
    return own | {name: value for name, value in factories.items() if name in own}


def _focus(loss: type[nn.Module]) -> str:
    """The probability at which the loss, with its default settings, has the largest emphasis; empty if a setting is required."""
    from mohs.emphasis import focus
    from mohs.losses import own_fields

    if "required" in own_fields(loss).values():
        return ""
    at = focus(loss())
    return "flat" if math.isnan(at) else f"{at:.2f}"


def _first_paragraph(piece: Any) -> str:
    lines = (piece.__doc__ or "").strip().splitlines()
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    return " ".join(line.strip() for line in lines[:end])


def _inherited_rows(path: Path, study: dict[str, Any]) -> list[Any]:
    """The rows of the recipe that `like` names, or the labels of those that `rows` selects."""
    other = tomllib.loads((path.parent / study["like"]).read_text())["row"]
    rows: list[Any] = study.get("rows", other)
    return rows


def _recipe(path: Path) -> Row:
    """A recipe's subject, read without importing what it would run."""
    try:
        given = tomllib.loads(path.read_text())
        study = given["study"]
        rows = given["row"] if "row" in given or "like" not in study else _inherited_rows(path, study)
        size = f"{len(rows)} row(s), {study.get('seeds', 3)} seeds, by {study.get('metric', 'test_accuracy')}"
        return _row(str(path), str(study["paper"]), str(study["what"]), size)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        return _row(str(path), "", f"not a readable recipe ({error})", "")
