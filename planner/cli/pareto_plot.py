"""The Pareto front as a small plot in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotext

from planner.plan import WIDTH, Plan
from planner.units import format_hours, format_usd

HEIGHT = 18


def pareto_plot(plan: Plan) -> str:
    """Hours to the right, dollars up, both p50; the choice is marked. Plain text: colour would not survive a pipe."""
    front = plan.pareto
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(WIDTH, HEIGHT)
    plotext.title("hours against dollars (p50): o best trades, X the choice")
    plotext.scatter([row.hours.p50 for row in front], [row.usd.p50 for row in front], marker="o")
    plotext.scatter([plan.estimate.hours.p50], [plan.estimate.usd.p50], marker="X")
    _ticks([row.hours.p50 for row in front] + [plan.estimate.hours.p50], plotext.xticks, format_hours)
    _ticks([row.usd.p50 for row in front] + [plan.estimate.usd.p50], plotext.yticks, format_usd)
    plotext.xscale("log")
    plotext.yscale("log")
    lines = plotext.uncolorize(plotext.build()).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ticks(
    values: Sequence[float], axis: Callable[[list[float], list[str]], None], shown: Callable[[float], str]
) -> None:
    """Five, evenly spaced on the logarithmic axis."""
    low, high = math.log(min(values)), math.log(max(values))
    places = [math.exp(low + (high - low) * step / 4) for step in range(5)]
    axis(places, [shown(place) for place in places])
