"""A sweep as two plots, hours and dollars: in the terminal, or as SVG and PNG through Vega-Lite."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.plan import Forecast

HEIGHT = 14
INSTALL = 'drawing to a file needs Vega-Lite: pip install "scav-planner[report]"'


def sweep_plot(rows: Sequence[Forecast], sweep: str) -> str:
    """Hours, then dollars: o the middle, . both ends of the 90 % interval."""
    from planner.units import format_hours, format_usd

    hours = _panel(rows, sweep, "hours", format_hours)
    return hours + "\n" + _panel(rows, sweep, "usd", format_usd)


def _panel(rows: Sequence[Forecast], sweep: str, name: str, shown: Callable[[float], str]) -> str:
    import plotext

    from planner.plan import WIDTH

    places = [_place(row, sweep) for row in rows]
    intervals = [getattr(row, name) for row in rows]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(WIDTH, HEIGHT)
    label = {"hours": "hours", "usd": "dollars"}[name]
    plotext.title(f"{label} over {_axis(sweep)}: o p50, . p05 and p95")
    for quantile in ("p05", "p95"):
        plotext.scatter(places, [getattr(interval, quantile) for interval in intervals], marker=".")
    plotext.scatter(places, [interval.p50 for interval in intervals], marker="o")
    low, high = min(row.p05 for row in intervals), max(row.p95 for row in intervals)
    ticks = [low * (high / low) ** (step / 4) for step in range(5)]
    plotext.yticks(ticks, [shown(tick) for tick in ticks])
    named = places[:: math.ceil(len(places) / 10)]
    plotext.xticks(named, [f"{place:,}" for place in named])
    plotext.xscale("log")
    plotext.yscale("log")
    lines = plotext.uncolorize(plotext.build()).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def write_sweep_plot(file: Path, rows: Sequence[Forecast], sweep: str) -> None:
    from planner.errors import InputError
    from planner.outside import store

    try:
        import vl_convert
    except ImportError:
        raise InputError(INSTALL, key="--plot-file") from None
    specification = vega_lite(rows, sweep)
    if file.suffix == ".svg":
        store.write_text_atomically(file, vl_convert.vegalite_to_svg(specification))
    else:
        store.write_bytes_atomically(file, vl_convert.vegalite_to_png(specification, scale=2))
    click.echo(f"Wrote {file}", err=True)


def vega_lite(rows: Sequence[Forecast], sweep: str) -> dict[str, Any]:
    """The middle as a line over the band of its interval; open points are extrapolated."""
    values = [
        {"place": _place(row, sweep), "extrapolated": row.extrapolated}
        | {f"{name}_{q}": getattr(getattr(row, name), q) for name in ("hours", "usd") for q in ("p05", "p50", "p95")}
        for row in rows
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": f"{rows[0].instance_type}, {rows[0].market.replace('_', '-')}: 90 % intervals; open: extrapolated",
        "data": {"values": values},
        "vconcat": [_layers("hours", "hours", sweep), _layers("usd", "dollars", sweep)],
    }


def _layers(name: str, title: str, sweep: str) -> dict[str, Any]:
    def over(quantile: str) -> dict[str, Any]:
        scale = {"type": "log", "nice": False}
        return {"field": f"{name}_{quantile}", "type": "quantitative", "title": title, "scale": scale}

    across = {"field": "place", "type": "quantitative", "title": _axis(sweep), "scale": {"type": "log", "base": 2}}
    fill = {"condition": {"test": "datum.extrapolated", "value": "white"}, "value": "#4c78a8"}
    return {
        "width": 480,
        "height": 200,
        "encoding": {"x": across},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.2}, "encoding": {"y": over("p05"), "y2": {"field": f"{name}_p95"}}},
            {"mark": "line", "encoding": {"y": over("p50")}},
            {"mark": {"type": "point", "stroke": "#4c78a8"}, "encoding": {"y": over("p50"), "fill": fill}},
        ],
    }


def _place(row: Forecast, sweep: str) -> int:
    return row.node_count if sweep == "nodes" else row.global_batch


def _axis(sweep: str) -> str:
    return {"nodes": "nodes", "batch": "global batch"}[sweep]
