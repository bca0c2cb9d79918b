"""How dollars and hours are spread over simulated runs: in the terminal, or as SVG through Vega-Lite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.columns import Floats
    from planner.spot import PolicyResult

WIDTH, HEIGHT = 80, 12
BINS = 40
SHOWN = 0.99  # of the runs: a few that wait for weeks would squeeze all others into one bar


@dataclass(frozen=True, slots=True)
class Histogram:
    """Shares of runs between neighbouring edges; `beyond` is the share above the last one."""

    edges: list[float]
    shares: list[float]
    beyond: float


def histogram(values: Floats) -> Histogram:
    import numpy as np

    low, high = float(values.min()), float(np.quantile(values, SHOWN))
    high = high if high > low * (1 + 1e-9) else low * 1.01 + 1e-9
    counts, edges = np.histogram(values, bins=BINS, range=(low, high))
    return Histogram(edges.tolist(), (counts / len(values)).tolist(), 1 - float(counts.sum()) / len(values))


def histograms(result: PolicyResult) -> str:
    """Dollars, then hours."""
    from planner.units import format_hours, format_usd

    usd = _panel(f"dollars, {result.name}", histogram(result.runs.usd), format_usd)
    return usd + "\n" + _panel(f"hours, {result.name}", histogram(result.runs.hours), format_hours)


def _panel(title: str, spread: Histogram, shown: Callable[[float], str]) -> str:
    import plotext

    from planner.units import format_percent

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(WIDTH, HEIGHT)
    beyond = f"; {format_percent(spread.beyond)} beyond {shown(spread.edges[-1])}" if spread.beyond > 0 else ""
    plotext.title(f"{title}: share of runs{beyond}")
    middles = [(low + high) / 2 for low, high in zip(spread.edges[:-1], spread.edges[1:], strict=True)]
    # Without the empty ones: plotext draws even those one line high.
    bars = [(middle, share) for middle, share in zip(middles, spread.shares, strict=True) if share > 0]
    plotext.bar(*zip(*bars, strict=True), marker="#", width=(BINS - 1) / max(len(bars) - 1, 1))
    ticks = [spread.edges[0] + (spread.edges[-1] - spread.edges[0]) * step / 4 for step in range(5)]
    plotext.xticks(ticks, [shown(tick) for tick in ticks])
    heights = [max(spread.shares) * step / 2 for step in range(3)]
    plotext.yticks(heights, [f"{height * 100:.1f} %" for height in heights])
    lines = plotext.uncolorize(plotext.build()).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def write_histograms(file: Path, job: str, result: PolicyResult) -> None:
    from planner.cli.sweep_plot import INSTALL
    from planner.errors import InputError
    from planner.outside import store

    try:
        import vl_convert
    except ImportError:
        raise InputError(INSTALL, key="--svg") from None
    store.write_text_atomically(file, vl_convert.vegalite_to_svg(vega_lite(job, result)))
    click.echo(f"Wrote {file}", err=True)


def vega_lite(job: str, result: PolicyResult) -> dict[str, Any]:
    """Bars that are counted here, so that no other program's idea of a bin gets in."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": f"{job}, {result.name}: {result.runs.count:,} simulated runs",
        "vconcat": [
            _bars("dollars", histogram(result.runs.usd)),
            _bars("hours", histogram(result.runs.hours)),
        ],
    }


def _bars(name: str, spread: Histogram) -> dict[str, Any]:
    from planner.contract import six_digits

    rows = zip(spread.edges[:-1], spread.edges[1:], spread.shares, strict=True)
    beyond = f" ({spread.beyond:.1%} of runs are beyond)" if spread.beyond > 0 else ""
    across = {"field": "from", "type": "quantitative", "title": name + beyond, "scale": {"zero": False, "nice": False}}
    up = {"field": "share", "type": "quantitative", "title": "share of runs", "axis": {"format": "%"}}
    return {
        "width": 480,
        "height": 160,
        "data": {"values": six_digits([{"from": low, "to": high, "share": share} for low, high, share in rows])},
        "mark": {"type": "bar", "color": "#4c78a8"},
        "encoding": {"x": across, "x2": {"field": "to"}, "y": up, "y2": {"datum": 0}},
    }
