"""Charts as Vega-Lite, made by Altair and turned into SVG or PNG without a browser or a network (the `report` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import altair

SUFFIXES = (".svg", ".png")
# Okabe and Ito's colors, told apart by color-blind readers; dashes tell the second round of eight from the first.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]


class Curve(TypedDict):
    """One loss's emphasis, for the table and the chart."""

    loss: str
    focus: float
    p: list[float]
    emphasis: list[float]


def emphasis_chart(curves: list[Curve], *, relative: bool = False) -> altair.Chart:
    """w(p) of each loss, as Gradient Rescaling's Figure 1 draws it (there doubled)."""
    import altair

    rows = [{"loss": c["loss"], "p": p, "emphasis": w} for c in curves for p, w in zip(c["p"], c["emphasis"], strict=True)]
    names = [c["loss"] for c in curves]
    colors = [COLORS[i % len(COLORS)] for i in range(len(names))]
    dashes = [DASHES[i // len(COLORS) % len(DASHES)] for i in range(len(names))]
    legend = altair.Legend(title=None, labelLimit=400, symbolSize=300, symbolStrokeWidth=2)
    encoding: dict[str, Any] = {
        "x": altair.X("p:Q", title="probability of the label, p", scale=altair.Scale(domain=[0, 1])),
        "y": altair.Y("emphasis:Q", title="emphasis w(p), relative to its peak" if relative else "emphasis w(p)"),
        "color": altair.Color("loss:N", sort=names, scale=altair.Scale(domain=names, range=colors), legend=legend),
        "strokeDash": altair.StrokeDash("loss:N", sort=names, scale=altair.Scale(domain=names, range=dashes), legend=legend),
    }
    lines = altair.Chart({"values": rows}).mark_line().encode(**encoding)
    chart: altair.Chart = lines.properties(width=480, height=320, title="What each loss pays attention to", background="white")
    return chart


def check_chart_path(path: Path) -> None:
    """Raise, before any work, unless a chart can be written there."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: charts are written as {' or '.join(SUFFIXES)}; give the file one of these endings")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; make it first")
    import vl_convert  # noqa: F401  (the extra that draws: missing, it is an error before the work, not after)


def save_chart(chart: altair.Chart, path: Path) -> None:
    """Write the chart as SVG or PNG, by the file's ending."""
    import vl_convert

    spec = chart.to_json()
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec))
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
