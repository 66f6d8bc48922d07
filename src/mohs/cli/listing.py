"""`mohs list`: what there is to choose from."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn

Row = dict[str, str]
WIDEST = 44  # of a formula that is followed by a focus


def listing(
    kind: Annotated[str, typer.Argument(help="What to list; see below.")] = "losses",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List what there is to choose from: what each is, its settings and what it is for.

    KIND is one of losses, regularizers, heads, schedules (of a regularizer's weight), scores, models, data, noises,
    augmentations, optimizers, lr_schedules, attacks, degradations, measures, selections (of mohs adapt), recipes.
    """
    if kind not in KINDS:
        raise ValueError(f"cannot list {kind!r}; known: {', '.join(KINDS)}")
    rows = KINDS[kind]()
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        focus = f" focus {row['focus']}" if row.get("focus") else ""
        typer.echo(f"{row['name']:<22} {row['formula']:<{WIDEST}}{focus}".rstrip())
        for line in (row["for"], row["settings"]):
            if line:
                typer.echo(f"    {line}")


def losses() -> list[Row]:
    """The losses, with where each looks hardest."""
    from mohs.losses import LOSSES

    return [{**row, "focus": _focus(LOSSES[row["name"]])} for row in _pieces(LOSSES)]


def regularizers() -> list[Row]:
    """What may stand beside a loss."""
    from mohs.losses import REGULARIZERS

    return _pieces(REGULARIZERS)


def heads() -> list[Row]:
    """Heads on the sphere."""
    from mohs.heads import HEADS

    return _pieces(HEADS)


def schedules() -> list[Row]:
    """Schedules of a regularizer's weight."""
    from mohs.losses.weight_schedule import SCHEDULES

    return _pieces(SCHEDULES, formula="weight by epoch")


def scores() -> list[Row]:
    """Scores of hardness."""
    from mohs.hardness.scores import SCORES

    turned = {1: "higher is harder as it is", -1: "turned round, so that higher is harder"}
    return [
        {"name": name, "formula": f"from the column {score.column}", "for": score.meaning, "settings": turned[score.sign]}
        for name, score in SCORES.items()
    ]


def models() -> list[Row]:
    """Networks."""
    from mohs.models import MODELS

    return _pieces(MODELS)


def data() -> list[Row]:
    """Data sets with a name; all but digits lie in the folder that MOHS_DATA names."""
    from mohs.data.open_data import DATA
    from mohs.data.read_options import FOLDER

    where = f"its files are looked for in the folder that {FOLDER} names"
    return [
        {"name": name, "formula": "", "for": known.about, "settings": "" if name == "digits" else where}
        for name, known in DATA.items()
    ]


def noises() -> list[Row]:
    """Ways to make labels wrong on purpose."""
    from mohs.data.noise import NOISES

    return _pieces(NOISES)


def augmentations() -> list[Row]:
    """Augmentations of a batch."""
    from mohs.train.augment import AUGMENTATIONS

    return _pieces(AUGMENTATIONS)


def optimizers() -> list[Row]:
    """Optimizers."""
    from mohs.train.optimizers import OPTIMIZERS

    return _pieces(OPTIMIZERS)


def lr_schedules() -> list[Row]:
    """Schedules of the learning rate."""
    from mohs.train.learning_rate import LR_SCHEDULES

    return _pieces(LR_SCHEDULES)


def attacks() -> list[Row]:
    """Adversarial attacks, for the measure attack."""
    from mohs.evaluate.attack import ATTACKS

    return _pieces(ATTACKS)


def degradations() -> list[Row]:
    """Ways to degrade images, for the measure degrade."""
    from mohs.data.degrade import DEGRADATIONS

    return _pieces(DEGRADATIONS)


def measures() -> list[Row]:
    """What a recipe may measure on each trained network."""
    from mohs.studies.run_measures import MEASURES

    return _pieces(MEASURES)


def selections() -> list[Row]:
    """Which predictions self-training believes."""
    from mohs.adapt.selection import SELECTIONS

    return _pieces(SELECTIONS)


def recipes() -> list[Row]:
    """The recipes under ./recipes, or where there are none those of the source tree that the package runs from."""
    import mohs

    homes = [Path("recipes"), Path(mohs.__file__).parent / "recipes", Path(mohs.__file__).parents[2] / "recipes"]
    found = next((files for home in homes if (files := sorted(home.rglob("*.toml")))), [])
    if not found:
        raise ValueError("no recipes here: they are looked for in ./recipes, as the source tree of mohs has them")
    return [_recipe(path) for path in found]


KINDS: dict[str, Callable[[], list[Row]]] = {
    "losses": losses,
    "regularizers": regularizers,
    "heads": heads,
    "schedules": schedules,
    "scores": scores,
    "models": models,
    "data": data,
    "noises": noises,
    "augmentations": augmentations,
    "optimizers": optimizers,
    "lr_schedules": lr_schedules,
    "attacks": attacks,
    "degradations": degradations,
    "measures": measures,
    "selections": selections,
    "recipes": recipes,
}


def _pieces(table: Mapping[str, Any], formula: str = "") -> list[Row]:
    return [
        {
            "name": name,
            "formula": getattr(piece, "formula", "") or formula,
            "for": getattr(piece, "purpose", "") or _first_paragraph(piece),
            "settings": ", ".join(f"{key}={value}" for key, value in _settings(piece).items()),
        }
        for name, piece in table.items()
    ]


def _settings(piece: Any) -> dict[str, str]:
    from mohs.losses import own_fields

    own = own_fields(piece)
    made_anew = {f.name: str(f.default_factory()) for f in dataclasses.fields(piece) if callable(f.default_factory)}
    return own | {name: value for name, value in made_anew.items() if name in own}


def _focus(loss: type[nn.Module]) -> str:
    """Where the loss looks hardest at its default settings; empty where it has none."""
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


def _recipe(path: Path) -> Row:
    """What a recipe is about, read without loading what it would run."""
    try:
        given = tomllib.loads(path.read_text())
        study = given["study"]
        told = f"{len(given['row'])} row(s), {study.get('seeds', 3)} seeds, by {study.get('metric', 'test_accuracy')}"
        return {"name": str(path), "formula": str(study["paper"]), "for": str(study["what"]), "settings": told}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        return {"name": str(path), "formula": "", "for": f"cannot be read as a recipe ({error})", "settings": ""}
