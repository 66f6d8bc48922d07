"""`mohs emphasis`: how strongly each loss weights an example, by the probability of its label, as a table and a chart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from mohs.report.charts import Curve

SHOWN = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
STEPS = 200
EPILOG = """\b
Examples:
  mohs emphasis cross_entropy gce:q=0.5 gradient_rescaling
  mohs emphasis focal:gamma=2 mae --relative --out emphasis.svg"""


def emphasis(
    losses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOSS", help="Losses, as NAME or NAME:KEY=VALUE,...; default: every loss that depends on the margin alone."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Chart file to write (.svg or .png).")] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Divide each curve by its maximum, to compare shapes.")] = False,
    as_json: o.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the table only.")] = False,
) -> None:
    """Show the emphasis of losses: the gradient's magnitude on an example whose label has probability p."""
    from mohs.report.charts import check_chart_path, emphasis_chart, save_chart

    if out is not None:
        check_chart_path(out)
    curves = [_curve(text, relative) for text in losses or _defaults()]
    if as_json:
        typer.echo(json.dumps([{**c, "focus": None if math.isnan(c["focus"]) else c["focus"]} for c in curves]))
    else:
        _print_table(curves, relative)
    if out is not None:
        save_chart(emphasis_chart(curves, relative=relative), out)
        if not quiet:
            typer.echo(f"wrote {out}", err=True)


def _defaults() -> list[str]:
    from mohs.losses import LOSSES, own_fields

    return [name for name, loss in LOSSES.items() if hasattr(loss, "curve") and "required" not in own_fields(loss).values()]


def _curve(text: str, relative: bool) -> Curve:
    import torch

    from mohs._core.specs import as_spec, create_spec
    from mohs.emphasis import emphasis, focus
    from mohs.losses import LOSSES

    loss = create_spec(LOSSES, "loss", as_spec(text))
    p = sorted({*SHOWN, *(i / STEPS for i in range(STEPS + 1))})
    w = emphasis(loss, torch.tensor(p, dtype=torch.float64))
    return {"loss": text, "focus": focus(loss), "p": p, "emphasis": (w / w.max() if relative else w).tolist()}


def _print_table(curves: list[Curve], relative: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"emphasis w(p){', relative to its peak' if relative else ''}",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1),
    )
    table.add_column("p =", overflow="fold")
    for p in SHOWN:
        table.add_column(f"{p:g}", justify="right", no_wrap=True)
    table.add_column("focus", justify="right", no_wrap=True)
    for curve in curves:
        at = dict(zip(curve["p"], curve["emphasis"], strict=True))
        peak = "flat" if math.isnan(curve["focus"]) else f"{curve['focus']:.2f}"
        table.add_row(curve["loss"], *(f"{at[p]:.2f}" for p in SHOWN), peak)
    Console().print(table)
