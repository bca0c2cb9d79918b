"""Rows of regret and price of probes, averaged and printed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

OBJECTIVES = ("cost", "time")
COLUMNS = ("probes", "regret", "probe_share")


def means(judged: Sequence[dict], keys: tuple[str, ...], columns: tuple[str, ...] = COLUMNS) -> list[dict]:
    """Over the seeds of an application, then over applications."""
    groups: dict[tuple, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for row in judged:
        groups[tuple(row[key] for key in keys)][row["app"]].append(row)
    return [
        dict(zip(keys, group, strict=True))
        | {
            column: statistics.fmean(statistics.fmean(row[column] for row in rows) for rows in apps.values())
            for column in columns
        }
        for group, apps in groups.items()
    ]


def by_method(judged: Sequence[dict]) -> list[dict]:
    return sorted(means(judged, ("method", "objective")), key=lambda row: OBJECTIVES.index(row["objective"]))


def by_job_size(judged: Sequence[dict]) -> list[dict]:
    rows = means(judged, ("job_usd", "method"))
    return [row | {"probe_share_plus_regret": row["probe_share"] + row["regret"]} for row in rows]


def as_markdown(judged: Sequence[dict], by_size: Sequence[dict], *, by_app: bool) -> str:
    lines = ["| method | objective | probes | regret % | probe_share % |", "|---|---|--:|--:|--:|"]
    lines += [f"| {row['method']} | {row['objective']} | {_numbers(row)} |" for row in by_method(judged)]
    lines += ["", "| job | method | probes | regret % | probe_share % | both % |", "|--:|---|--:|--:|--:|--:|"]
    lines += [
        f"| ${row['job_usd']:,.0f} | {row['method']} | {_numbers(row)} | {row['probe_share_plus_regret']:.1f} |"
        for row in by_job_size(by_size)
    ]
    return "\n".join([*lines, *(_by_app(judged, by_size) if by_app else ())])


def _by_app(judged: Sequence[dict], by_size: Sequence[dict]) -> list[str]:
    head = ["application | method | objective", "application | job | method"]
    lines = ["", f"| {head[0]} | probes | regret % | probe_share % |", "|---|---|---|--:|--:|--:|"]
    lines += [
        f"| {row['app']} | {row['method']} | {row['objective']} | {_numbers(row)} |"
        for row in means(judged, ("app", "method", "objective"))
    ]
    lines += ["", f"| {head[1]} | probes | regret % | probe_share % |", "|---|--:|---|--:|--:|--:|"]
    lines += [
        f"| {row['app']} | ${row['job_usd']:,.0f} | {row['method']} | {_numbers(row)} |"
        for row in means(by_size, ("app", "job_usd", "method"))
    ]
    return lines


def _numbers(row: dict) -> str:
    return f"{row['probes']:.1f} | {row['regret']:.2f} | {row['probe_share']:.2f}"
