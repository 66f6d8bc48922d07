"""Charts that commands write to a file: emphasis curves and comparisons (the `report` extra).

Altair makes the Vega-Lite specification, vl-convert renders it as SVG or PNG without a browser or a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import altair

    from mohs.studies.compare import SettingCompared

SUFFIXES = (".svg", ".png")
# Okabe and Ito's color-blind safe palette; beyond eight curves, dashes distinguish those that share a color.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]


class Curve(TypedDict):
    """Emphasis of one loss over the label's probability."""

    loss: str
    focus: float
    p: list[float]
    emphasis: list[float]


def emphasis_chart(curves: list[Curve], *, relative: bool = False) -> altair.Chart:
    """w(p) of each loss, as in Gradient Rescaling's Figure 1 (whose values are doubled)."""
    import altair

    rows = [{"loss": c["loss"], "p": p, "emphasis": w} for c in curves for p, w in zip(c["p"], c["emphasis"], strict=True)]
    names = [c["loss"] for c in curves]
    colors = [COLORS[i % len(COLORS)] for i in range(len(names))]
    dashes = [DASHES[i // len(COLORS) % len(DASHES)] for i in range(len(names))]
    legend = altair.Legend(title=None, labelLimit=400, symbolSize=300, symbolStrokeWidth=2)
    encoding: dict[str, Any] = {
        "x": altair.X("p:Q", title="probability of the label, p", scale=altair.Scale(domain=[0, 1])),
        "y": altair.Y("emphasis:Q", title="emphasis w(p), relative to its maximum" if relative else "emphasis w(p)"),
        "color": altair.Color("loss:N", sort=names, scale=altair.Scale(domain=names, range=colors), legend=legend),
        "strokeDash": altair.StrokeDash("loss:N", sort=names, scale=altair.Scale(domain=names, range=dashes), legend=legend),
    }
    lines = altair.Chart({"values": rows}).mark_line().encode(**encoding)
    chart: altair.Chart = lines.properties(width=480, height=320, title="Emphasis of each loss", background="white")
    return chart


def comparison_chart(settings: Sequence[SettingCompared], *, title: str, metric: str) -> Any:
    """One line per setting, in the given order: a dot per seed, the mean, and its interval. Values are shown times 100."""
    import altair

    names = [one.name for one in settings]
    dots = [{"name": one.name, "value": 100 * value, "seed": seed} for one in settings for seed, value in one.values.items()]
    means = [{"name": one.name, "value": 100 * one.mean} for one in settings if one.n]
    spans = [{"name": one.name, "low": 100 * one.low, "high": 100 * one.high} for one in settings if not math.isnan(one.low)]
    y = altair.Y("name:N", sort=names, title=None, axis=altair.Axis(labelLimit=300))
    scale = altair.Scale(zero=False)

    def x(field: str) -> Any:
        return altair.X(f"{field}:Q", title=metric, scale=scale)

    bars = altair.Chart({"values": spans}).mark_rule(strokeWidth=6, opacity=0.35, color=COLORS[0])
    seeds = altair.Chart({"values": dots}).mark_point(filled=True, size=45, opacity=0.7, color=COLORS[6]).encode(x("value"), y)
    ticks = altair.Chart({"values": means}).mark_tick(thickness=3, size=18, color=COLORS[1]).encode(x("value"), y)
    layers: Any = altair.layer(bars.encode(x("low"), y, x2="high:Q"), seeds, ticks)
    heading = {"text": title, "subtitle": "dots: seeds; tick: mean; bar: 95 % interval of the mean"}
    return layers.properties(width=480, height=altair.Step(36), title=heading).configure(background="white")


def check_chart_path(path: Path) -> None:
    """Validate, before any work, that a chart can be written to this path."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: charts are written as {' or '.join(SUFFIXES)}; give the file one of these endings")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; create it first")
    import vl_convert  # noqa: F401  (a missing extra is an error now, not after the work)


def save_chart(chart: altair.Chart, path: Path) -> None:
    """Write the chart as SVG or PNG, depending on the suffix."""
    import vl_convert

    spec = chart.to_json()
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec))
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
