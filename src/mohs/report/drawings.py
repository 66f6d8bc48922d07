"""The report's charts as Vega-Lite specifications, made by Altair (the `report` extra).

A drawing takes the rows of a figure and returns a chart. The data are stored separately from the specification, so that the page
holds them once; colors that depend on light or dark mode come from the page's style sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mohs.hardness.table import VERDICTS
from mohs.report.charts import COLORS
from mohs.report.figures import Figure, Rows
from mohs.report.verdict_labels import label_of

if TYPE_CHECKING:
    import altair

Drawing = Any  # an Altair chart, plain or layered
HEIGHT, CELL = 240, 26
SHORT = 3  # axis labels of up to this many characters stay horizontal
WRITTEN = 12  # with up to this many classes, a heat map writes its numbers into the cells
GRAY = "#8A949E"


def specification(figure: Figure) -> dict[str, Any]:
    """The figure's Vega-Lite as a dict that names its data; the page fills them in."""
    chart = DRAWINGS[figure.drawn_by](figure.rows)
    spec: dict[str, Any] = chart.properties(width="container", description=f"{figure.title}. {figure.meaning}").to_dict()
    spec.pop("datasets", None)
    spec.pop("config", None)  # the page has its own, light and dark
    spec["data"] = {"name": "rows"}
    for layer in spec.get("layer", []):
        layer.pop("data", None)
    return spec


def heat_map(rows: Rows) -> Drawing:
    """Counts of pairs: first key by row, second key by column."""
    import altair

    down, across, _ = rows[0]
    names = list(dict.fromkeys(row[down] for row in rows))
    turn = -40 if max(map(len, names)) > SHORT else 0
    x = altair.X(f"{across}:N", sort=names, title=across, axis=altair.Axis(labelAngle=turn, labelLimit=110, grid=False))
    y = altair.Y(f"{down}:N", sort=names, title=down, axis=altair.Axis(labelLimit=110, grid=False))
    color = altair.Color("examples:Q", title="examples", scale=altair.Scale(domainMin=0), legend=None)
    tip = [f"{down}:N", f"{across}:N", "examples:Q"]
    cells = altair.Chart({"values": rows}).mark_rect(cornerRadius=2, strokeWidth=2).encode(x=x, y=y, color=color, tooltip=tip)
    height = max(CELL * len(names), 120)
    if len(names) > WRITTEN:
        return cells.properties(height=height)
    numbers = altair.Chart({"values": rows}).mark_text(fontSize=11).encode(x=x, y=y, text="examples:Q", tooltip=tip)
    return altair.layer(cells, numbers.transform_filter("datum.examples > 0")).properties(height=height)


def class_bars(rows: Rows) -> Drawing:
    """Stacked shares per class, the worst verdict first."""
    import altair

    names, verdicts = (list(dict.fromkeys(row[key] for row in rows)) for key in ("class", "verdict"))
    encoding = {
        "y": altair.Y("class:N", sort=names, title=None, axis=altair.Axis(labelLimit=140)),
        "x": altair.X("share:Q", title="share of the class", axis=altair.Axis(format="%", tickCount=5)),
        "color": _verdict(verdicts),
        "order": altair.Order("rank:Q"),
        "tooltip": ["class:N", "verdict:N", altair.Tooltip("share:Q", format=".1%"), "examples:Q"],
    }
    bars = altair.Chart({"values": rows}).mark_bar().encode(**encoding).properties(height=max(20 * len(names), 120))
    return bars.transform_calculate(rank=f"indexof({verdicts}, datum.verdict)")


def grade_bars(rows: Rows) -> Drawing:
    """Verdicts within each grade."""
    import altair

    encoding = {
        "x": altair.X("grade:O", title="grade, from 1 (easiest) to 10 (hardest)", axis=altair.Axis(labelAngle=0)),
        "y": altair.Y("examples:Q", title="examples", axis=altair.Axis(tickCount=5)),
        "color": _verdict(),
        "tooltip": ["grade:O", "verdict:N", "examples:Q"],
    }
    return altair.Chart({"values": rows}).mark_bar().encode(**encoding).properties(height=HEIGHT)


def margin_bars(rows: Rows) -> Drawing:
    """A histogram with given bins."""
    import altair

    encoding = {
        "x": altair.X("from:Q", title="margin (log-odds of the given label)", bin="binned"),
        "x2": "to:Q",
        "y": altair.Y("examples:Q", title="examples", stack="zero", axis=altair.Axis(tickCount=5)),
        "color": _verdict(),
        "tooltip": [altair.Tooltip("from:Q", format=".2f"), altair.Tooltip("to:Q", format=".2f"), "verdict:N", "examples:Q"],
    }
    bars = altair.Chart({"values": rows}).mark_bar(binSpacing=0.5).encode(**encoding)
    zero = altair.Chart({"values": rows}).mark_rule(strokeDash=[4, 3]).encode(x=altair.datum(0))
    return altair.layer(bars, zero).properties(height=HEIGHT)


def doubt_bars(rows: Rows) -> Drawing:
    """A histogram from 0 to 1 that shows small counts next to large ones."""
    import altair

    encoding = {
        "x": altair.X("from:Q", title="probability that the label is wrong", bin="binned", axis=altair.Axis(format="%")),
        "x2": "to:Q",
        "y": altair.Y("examples:Q", title="examples", scale=altair.Scale(type="sqrt"), axis=altair.Axis(tickCount=5)),
        "tooltip": [altair.Tooltip("from:Q", format=".0%"), altair.Tooltip("to:Q", format=".0%"), "examples:Q"],
    }
    bars = altair.Chart({"values": rows}).mark_bar(binSpacing=0.5, color=label_of("mislabeled").color)
    return bars.encode(**encoding).properties(height=HEIGHT)


def emphasis_lines(rows: Rows) -> Drawing:
    """Emphasis of the loss over a histogram of examples, both from 0 to 1."""
    import altair

    losses = [part for part in dict.fromkeys(row["part"] for row in rows) if part != "examples"]
    x = altair.X("p:Q", title="probability of the given label, p", scale=altair.Scale(domain=[0, 1]))
    tip = [altair.Tooltip("p:Q", format=".2f"), "part:N", altair.Tooltip("value:Q", format=".3f")]
    y = altair.Y("value:Q", title="relative emphasis; share of examples", scale=altair.Scale(domain=[0, 1]))
    bars = altair.Chart({"values": rows}).mark_rect(opacity=0.4, color=GRAY)
    bars = bars.transform_filter("datum.part == 'examples'").encode(x=x, x2="to:Q", y=y, y2=altair.datum(0), tooltip=tip)
    colors = [label_of("mislabeled").color, GRAY][: len(losses)]
    lines = altair.Chart({"values": rows}).mark_line(strokeWidth=2.5).transform_filter("datum.part != 'examples'")
    scale = altair.Scale(domain=losses, range=colors)
    dash = altair.Scale(domain=losses, range=[[1, 0], [5, 4]][: len(losses)])
    color, dashes = altair.Color("part:N", title=None, scale=scale), altair.StrokeDash("part:N", title=None, scale=dash)
    return altair.layer(bars, lines.encode(x=x, y=y, color=color, strokeDash=dashes)).properties(height=HEIGHT)


def course_lines(rows: Rows) -> Drawing:
    """One line per hardness group; the page's color ramp goes from easy to hard."""
    import altair

    encoding = {
        "x": altair.X("epoch:Q", title="epoch", axis=altair.Axis(tickMinStep=1)),
        "y": altair.Y("value:Q", title=None, scale=altair.Scale(zero=False), axis=altair.Axis(tickCount=5)),
        "color": altair.Color("bin:O", title="hardness group"),
        "tooltip": ["epoch:Q", "bin:O", altair.Tooltip("value:Q", format=".3g")],
    }
    return altair.Chart({"values": rows}).mark_line(point={"size": 18}).encode(**encoding).properties(height=HEIGHT - 30)


def history_lines(rows: Rows) -> Drawing:
    """One line per series."""
    import altair

    names = list(dict.fromkeys(row["series"] for row in rows))
    scale = altair.Scale(domain=names, range=[COLORS[i % 6] for i in range(len(names))])
    encoding = {
        "x": altair.X("epoch:Q", title="epoch", axis=altair.Axis(tickMinStep=1)),
        "y": altair.Y("value:Q", title=None, scale=altair.Scale(zero=False), axis=altair.Axis(tickCount=5)),
        "color": altair.Color("series:N", title=None, scale=scale),
        "tooltip": ["epoch:Q", "series:N", altair.Tooltip("value:Q", format=".4g")],
    }
    return altair.Chart({"values": rows}).mark_line(point={"size": 18}).encode(**encoding).properties(height=HEIGHT - 30)


def reliability_dots(rows: Rows) -> Drawing:
    """Accuracy over confidence; dot size shows the share of examples, the dashed line perfect calibration."""
    import altair

    unit = altair.Scale(domain=[0, 1])
    x, y = altair.X("confidence:Q", title="confidence", scale=unit), altair.Y("accuracy:Q", title="accuracy", scale=unit)
    tip = [altair.Tooltip(f"{name}:Q", format=".3f") for name in ("confidence", "accuracy", "share")]
    size = altair.Size("share:Q", title="share of examples", scale=altair.Scale(range=[30, 400]), legend=None)
    dots = altair.Chart({"values": rows}).mark_circle(opacity=0.85, color=COLORS[0]).encode(x=x, y=y, size=size, tooltip=tip)
    line = altair.Chart({"values": rows}).mark_line(strokeWidth=1.5, color=COLORS[0]).encode(x=x, y=y)
    perfect = altair.Chart({"values": rows}).mark_rule(strokeDash=[4, 3])
    perfect = perfect.encode(x=altair.datum(0), y=altair.datum(0), x2=altair.datum(1), y2=altair.datum(1))
    return altair.layer(perfect, line, dots).properties(height=HEIGHT + 20)


def _verdict(names: Sequence[str] = VERDICTS) -> altair.Color:
    import altair

    scale = altair.Scale(domain=list(names), range=[label_of(name).color for name in names])
    return altair.Color("verdict:N", title=None, scale=scale)


DRAWINGS: dict[str, Callable[[Rows], Drawing]] = {
    "heat_map": heat_map,
    "class_bars": class_bars,
    "grade_bars": grade_bars,
    "margin_bars": margin_bars,
    "doubt_bars": doubt_bars,
    "emphasis_lines": emphasis_lines,
    "course_lines": course_lines,
    "history_lines": history_lines,
    "reliability_dots": reliability_dots,
}
