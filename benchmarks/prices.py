"""Planned with the spot prices of a day, paid with those of the day and of the month after it.

Reads `skypilot-catalog/*price_history*.csv.gz` below --data. Once a fortnight, for every instance type and region, the
plan takes the cheapest zone of the snapshot; what it pays is that zone's mean price over the run. Beside it: the usual
"70 % off", and the zone that was cheapest in hindsight. Prints a Markdown table, or JSON with --json.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.spot.price import spot_price_drift

RUN_DAYS = (1.0, 30.0)
EVERY_DAYS = 14.0
DAY_SECONDS = 86_400.0
LONGEST_SILENCE_DAYS = 5.0  # no price of any type moved: the recorder stood still, not the market
USUAL_DISCOUNT = 0.7


@dataclass(frozen=True, slots=True)
class Prices:
    """One zone's prices, each held until the next; also as a running integral, so that any mean is two look-ups."""

    seconds: np.ndarray
    usd: np.ndarray
    paid: np.ndarray

    @classmethod
    def of(cls, rows: list[tuple[float, float]]) -> Prices:
        seconds, usd = np.array(sorted(rows)).T
        return cls(seconds, usd, np.concatenate(([0.0], np.cumsum(usd[:-1] * np.diff(seconds)))))

    def at(self, when: float) -> float:
        return float(self.usd[max(int(np.searchsorted(self.seconds, when, side="right")) - 1, 0)])

    def mean(self, start: float, end: float) -> float:
        return (self._until(end) - self._until(start)) / (end - start)

    def _until(self, when: float) -> float:
        index = max(int(np.searchsorted(self.seconds, when, side="right")) - 1, 0)
        return float(self.paid[index] + self.usd[index] * (when - self.seconds[index]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    spot, on_demand = load_prices(arguments.data)
    if not spot:
        parser.error(f"no price history below {arguments.data}")
    rows = [row for days in RUN_DAYS for row in rows_for(days, spot, on_demand)]
    print(json.dumps({"rows": rows}, indent=2) if arguments.json else as_markdown(rows))


Market = dict[tuple[str, str], dict[str, Prices]]


def load_prices(data: Path) -> tuple[Market, dict[tuple[str, str], Prices]]:
    """Spot by instance type and region, then zone; on-demand by instance type and region."""
    spot: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    on_demand: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for file in sorted(data.rglob("*price_history*.csv.gz")):
        with gzip.open(file, "rt", newline="") as stream:
            for row in csv.DictReader(stream):
                if row["event"] == "gone":
                    continue
                key, when = (row["instance"], row["region"]), float(row["epoch_s"])
                if row["spot_usd_h"] and float(row["spot_usd_h"]) > 0:
                    spot[key][row["zone"]].append((when, float(row["spot_usd_h"])))
                if row["price_usd_h"] and float(row["price_usd_h"]) > 0:
                    on_demand[key].append((when, float(row["price_usd_h"])))
    prices = {key: {zone: Prices.of(rows) for zone, rows in zones.items()} for key, zones in spot.items()}
    return prices, {key: Prices.of(rows) for key, rows in on_demand.items()}


def silences(spot: Market) -> list[tuple[float, float]]:
    moments = np.unique(np.concatenate([zone.seconds for zones in spot.values() for zone in zones.values()]))
    long = np.flatnonzero(np.diff(moments) > LONGEST_SILENCE_DAYS * DAY_SECONDS)
    return [(float(moments[index]), float(moments[index + 1])) for index in long]


def rows_for(days: float, spot: Market, on_demand: dict[tuple[str, str], Prices]) -> list[dict[str, object]]:
    holes, paid_over_planned, usual, hindsight = silences(spot), [], [], []
    for key, zones in spot.items():
        now = max(zone.seconds[0] for zone in zones.values())
        last = min(zone.seconds[-1] for zone in zones.values()) - days * DAY_SECONDS
        for start in np.arange(now, last, EVERY_DAYS * DAY_SECONDS):
            end = start + days * DAY_SECONDS
            if any(start < stop and end > begin for begin, stop in holes):
                continue
            chosen = min(zones, key=lambda zone: zones[zone].at(start))
            paid = zones[chosen].mean(start, end)
            paid_over_planned.append(paid / zones[chosen].at(start))
            hindsight.append(paid / min(zone.mean(start, end) for zone in zones.values()))
            if key in on_demand:
                usual.append(paid / ((1 - USUAL_DISCOUNT) * on_demand[key].at(start)))
    interval = spot_price_drift(days)
    low, high = float(interval.p05[0]), float(interval.p95[0])
    return [
        _row(days, "scav: snapshot of the day", paid_over_planned, low, high),
        _row(days, f"{USUAL_DISCOUNT:.0%} off on-demand", usual, low, high),
        _row(days, "chosen zone over the best in hindsight", hindsight, None, None),
    ]


def _row(days: float, plan: str, ratios: list[float], low: float | None, high: float | None) -> dict[str, object]:
    values = np.array(ratios)
    p05, p50, p95 = (float(value) for value in np.quantile(values, [0.05, 0.5, 0.95]))
    covered = None if low is None or high is None else float(((values >= low) & (values <= high)).mean())
    error = float(np.abs(values - 1).mean())
    columns = {"p05": p05, "p50": p50, "p95": p95, "mean_error": error, "covered90": covered}
    return {"days": days, "plan": plan, "choices": len(values), **columns}


def as_markdown(rows: list[dict[str, object]]) -> str:
    columns = ("days", "plan", "choices", "p05", "p50", "p95", "mean_error", "covered90")
    lines = ["Paid over planned.", "", f"| {' | '.join(columns)} |", "|--" * len(columns) + "|"]
    lines += ["| " + " | ".join(_cell(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
