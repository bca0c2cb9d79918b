"""Hours against dollars as a small plot in the terminal, every point with its name below."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotext

from planner.plan import Plan, compared, quantile_heading
from planner.units import format_hours, format_usd

HEIGHT = 18
LEAST_WIDTH, MOST_WIDTH = 40, 120
_MOST_TRADES = 12  # named by a letter each


class PlottedPoint(NamedTuple):
    mark: str
    name: str
    hours: float
    usd: float


def pareto_plot(plan: Plan, width: int) -> str:
    """Hours to the right, dollars up. Plain text: colour would not survive a pipe."""
    points = [*_rows(plan), *_trades(plan)]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(max(width, LEAST_WIDTH), MOST_WIDTH), HEIGHT)
    plotext.title(f"hours against dollars ({quantile_heading(plan)})")
    for point in reversed(points):  # the choice last: nothing hides it
        plotext.scatter([point.hours], [point.usd], marker=point.mark)
    _ticks([point.hours for point in points], plotext.xticks, format_hours)
    _ticks([point.usd for point in points], plotext.yticks, format_usd)
    plotext.xscale("log")
    plotext.yscale("log")
    lines = plotext.uncolorize(plotext.build()).splitlines()
    return "\n".join([*(line.rstrip() for line in lines), *_names(points)]) + "\n"


def _rows(plan: Plan) -> list[PlottedPoint]:
    """Those of the table, by their numbers."""
    choice, at = plan.choice, compared(plan.estimate)
    name = f"{choice.node_count} x {choice.instance_type}, the choice"
    others = [
        PlottedPoint(f"{number}", f"{row.node_count} x {row.instance_type}", compared(row).hours, compared(row).usd)
        for number, row in enumerate(plan.alternatives, start=2)
    ]
    return [PlottedPoint("1", name, at.hours, at.usd), *others]


def _trades(plan: Plan) -> list[PlottedPoint]:
    """The best trades of all candidates; evenly, with both ends."""
    front = plan.pareto
    count = min(len(front), _MOST_TRADES)
    places = [round(place * (len(front) - 1) / max(count - 1, 1)) for place in range(count)]
    return [
        PlottedPoint(
            mark,
            f"{front[place].node_count} x {front[place].instance_type}, in closed form",
            compared(front[place]).hours,
            compared(front[place]).usd,
        )
        for mark, place in zip(string.ascii_lowercase, places, strict=False)
    ]


def _names(points: Sequence[PlottedPoint]) -> list[str]:
    return [
        f"{point.mark}  {format_hours(point.hours):>7}  {format_usd(point.usd):>7}  {point.name}" for point in points
    ]


def _ticks(
    values: Sequence[float], axis: Callable[[list[float], list[str]], None], shown: Callable[[float], str]
) -> None:
    """Five, evenly spaced on the logarithmic axis; fewer where two would read the same."""
    low, high = math.log(min(values)), math.log(max(values))
    places = [math.exp(low + (high - low) * step / 4) for step in range(5)]
    named = {shown(place): place for place in reversed(places)}
    axis(list(named.values()), list(named))
