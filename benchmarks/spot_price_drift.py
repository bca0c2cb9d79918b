"""What the cheapest zone of a region costs some days later, over what it cost: where the spot price interval is from.

Reads `skypilot-catalog/aws_gpu_price_history_*.csv.gz` below --data. Prints a Markdown table, or JSON with --json.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

DAYS = (1, 7, 30, 90)
DAY_SECONDS = 86_400
Series = list[tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    regions = load_prices(arguments.data)
    rows = [quantiles(days, ratios(regions, days)) for days in DAYS]
    print(json.dumps({"rows": rows}, indent=2) if arguments.json else as_markdown(rows))


def load_prices(data: Path) -> list[dict[str, Series]]:
    """For each instance type and region: zone -> (time, price), in the order of time."""
    found: dict[tuple[str, str], dict[str, Series]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(data.glob("skypilot-catalog/aws_gpu_price_history_*.csv.gz")):
        with gzip.open(file, "rt", newline="") as stream:
            for row in csv.DictReader(stream):
                if row["spot_usd_h"] and row["event"] != "gone":
                    zones = found[row["instance"], row["region"]]
                    zones[row["zone"]].append((float(row["epoch_s"]), float(row["spot_usd_h"])))
    return [{zone: sorted(series) for zone, series in zones.items()} for zones in found.values()]


def ratios(regions: list[dict[str, Series]], days: int) -> list[float]:
    """Once a month, choose the cheapest zone and look at it again `days` later."""
    result = []
    for zones in regions:
        now = max(series[0][0] for series in zones.values())
        end = min(series[-1][0] for series in zones.values()) - days * DAY_SECONDS
        while now < end:
            cheapest = min(zones, key=lambda zone: price_at(zones[zone], now))
            later = price_at(zones[cheapest], now + days * DAY_SECONDS)
            result.append(later / price_at(zones[cheapest], now))
            now += 30 * DAY_SECONDS
    return sorted(result)


def price_at(series: Series, when: float) -> float:
    """A price holds until the next one."""
    return series[bisect.bisect_right(series, (when, float("inf"))) - 1][1]


def quantiles(days: int, values: list[float]) -> dict[str, float]:
    found = {f"p{percent:02}": values[int(percent / 100 * len(values))] for percent in (5, 50, 95)}
    return {"days": days, "choices": len(values), **found}


def as_markdown(rows: list[dict[str, float]]) -> str:
    lines = ["| days later | choices | p05 | p50 | p95 |", "|--:|--:|--:|--:|--:|"]
    lines += [f"| {r['days']} | {r['choices']:,} | {r['p05']:.2f} | {r['p50']:.2f} | {r['p95']:.2f} |" for r in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
