"""A comparison as a picture: a dot a seed, the mean and its interval, one line a setting (the `report` extra)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mohs.report.charts import COLORS

if TYPE_CHECKING:
    from mohs.studies.compare import SettingCompared


def comparison_chart(settings: Sequence[SettingCompared], *, title: str, metric: str = "test accuracy in %") -> Any:
    """The settings from top to bottom in the order given; values are shown as 100 × what they are."""
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
    told = {"text": title, "subtitle": "dots: seeds; tick: mean; bar: its 95 % interval"}
    return layers.properties(width=480, height=altair.Step(36), title=told).configure(background="white")
