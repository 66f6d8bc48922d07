"""`mohs list`: what there is to choose from."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

KINDS = ("losses",)


def listing(
    kind: Annotated[str, typer.Argument(help=f"What to list: {', '.join(KINDS)}.")] = "losses",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List the losses: name, formula, emphasis focus, settings and what each is for."""
    if kind not in KINDS:
        raise ValueError(f"cannot list {kind!r}; known: {', '.join(KINDS)}")
    rows = _losses()
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        typer.echo(f"{row['name']:<20} {row['formula']:<44} focus {row['focus']}\n    {row['for']}")
        if row["settings"]:
            typer.echo(f"    {row['settings']}")


def _losses() -> list[dict[str, str]]:
    from mohs.emphasis import focus
    from mohs.losses import LOSSES, create_loss, own_fields

    rows = []
    for name, loss in LOSSES.items():
        at = focus(create_loss(name))
        rows.append(
            {
                "name": name,
                "formula": str(getattr(loss, "formula", "")),
                "focus": "flat" if math.isnan(at) else f"{at:.2f}",
                "settings": ", ".join(f"{key}={value}" for key, value in own_fields(name).items()),
                "for": str(getattr(loss, "purpose", "")),
            }
        )
    return rows
