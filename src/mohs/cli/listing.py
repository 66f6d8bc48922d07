"""`mohs list`: what there is to choose from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn

KINDS = ("losses", "regularisers", "heads", "schedules", "scores")


def listing(
    kind: Annotated[str, typer.Argument(help=f"What to list: {', '.join(KINDS)}.")] = "losses",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List losses, regularisers, heads, schedules or scores: what each is, its settings and what it is for."""
    if kind not in KINDS:
        raise ValueError(f"cannot list {kind!r}; known: {', '.join(KINDS)}")
    rows = _rows(kind)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        focus = f" focus {row['focus']}" if row.get("focus") else ""
        typer.echo(f"{row['name']:<22} {row['formula']:<44}{focus}".rstrip())
        for line in (row["for"], row["settings"]):
            if line:
                typer.echo(f"    {line}")


def _rows(kind: str) -> list[dict[str, str]]:
    if kind == "scores":
        from mohs.hardness.scores import SCORES

        turned = {1: "higher is harder as it is", -1: "turned round, so that higher is harder"}
        return [
            {"name": name, "formula": f"from the column {score.column}", "for": score.meaning, "settings": turned[score.sign]}
            for name, score in SCORES.items()
        ]
    if kind == "schedules":
        from mohs.losses.schedule import SCHEDULES

        return [_row(name, piece, "weight by epoch", _first_line(piece)) for name, piece in SCHEDULES.items()]
    from mohs.heads import HEADS
    from mohs.losses import LOSSES, REGULARISERS

    pieces = {"heads": HEADS, "losses": LOSSES, "regularisers": REGULARISERS}[kind]
    rows = [_row(name, piece, getattr(piece, "formula", ""), getattr(piece, "purpose", "")) for name, piece in pieces.items()]
    if kind == "losses":
        for row in rows:
            row["focus"] = _focus(LOSSES[row["name"]])
    return rows


def _row(name: str, piece: Any, formula: str, purpose: str) -> dict[str, str]:
    from mohs.losses import own_fields

    settings: Mapping[str, str] = own_fields(piece)
    return {"name": name, "formula": formula, "for": purpose, "settings": ", ".join(f"{k}={v}" for k, v in settings.items())}


def _focus(loss: type[nn.Module]) -> str:
    """Where the loss looks hardest at its default settings; empty where it has none."""
    from mohs.emphasis import focus
    from mohs.losses import own_fields

    if "required" in own_fields(loss).values():
        return ""
    at = focus(loss())
    return "flat" if math.isnan(at) else f"{at:.2f}"


def _first_line(piece: Any) -> str:
    return (piece.__doc__ or "").strip().splitlines()[0]
