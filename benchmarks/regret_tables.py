"""Rows of regret and price of probes, averaged and printed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

OBJECTIVES = ("cost", "time")
# Where scav can choose whole nodes only, the best of these is what its rule is judged by.
HEADS = {"probes": "probes", "regret": "regret %", "over_whole": "over whole nodes %", "probe_share": "probe_share %"}
JUDGED_BY = ("over_whole", "regret")  # the first of them that there is


def means(judged: Sequence[dict], keys: tuple[str, ...], columns: Sequence[str] | None = None) -> list[dict]:
    """Over the seeds of an application, then over applications."""
    columns = _columns(judged) if columns is None else columns
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
    """With the standard error over applications of the regret, over whole nodes if that is known."""
    judge = next(name for name in JUDGED_BY if name in _columns(judged))
    rows = [
        row | {f"{judge}_error": standard_error([each for each in judged if each.items() >= _key(row).items()], judge)}
        for row in means(judged, ("method", "objective"))
    ]
    return sorted(rows, key=lambda row: OBJECTIVES.index(row["objective"]))


def _key(row: dict) -> dict:
    return {key: row[key] for key in ("method", "objective")}


def standard_error(judged: Sequence[dict], column: str) -> float:
    """Of the mean over applications: how much another draw of them would move it."""
    apps = [row[column] for row in means(judged, ("app",), (column,))]
    return statistics.stdev(apps) / len(apps) ** 0.5 if len(apps) > 1 else 0.0


def by_job_size(judged: Sequence[dict]) -> list[dict]:
    rows = means(judged, ("job_usd", "method"))
    return [row | {"probe_share_plus_regret": row["probe_share"] + row["regret"]} for row in rows]


def as_markdown(judged: Sequence[dict], by_size: Sequence[dict], *, by_app: bool) -> str:
    heads = [HEADS[column] for column in _columns(judged)]
    judge = next(name for name in JUDGED_BY if name in _columns(judged))
    lines = _head(["method", "objective"], [*heads, f"± {HEADS[judge]}"])
    lines += [_line([row["method"], row["objective"]], row, f"{judge}_error") for row in by_method(judged)]
    lines += ["", *_head(["job", "method"], [*heads, "both %"])]
    lines += [
        _line([f"${row['job_usd']:,.0f}", row["method"]], row, "probe_share_plus_regret")
        for row in by_job_size(by_size)
    ]
    return "\n".join([*lines, *(_by_app(judged, by_size, heads) if by_app else ())])


def _by_app(judged: Sequence[dict], by_size: Sequence[dict], heads: list[str]) -> list[str]:
    lines = ["", *_head(["application", "method", "objective"], heads)]
    lines += [
        _line([row["app"], row["method"], row["objective"]], row)
        for row in means(judged, ("app", "method", "objective"))
    ]
    lines += ["", *_head(["application", "job", "method"], heads)]
    lines += [
        _line([row["app"], f"${row['job_usd']:,.0f}", row["method"]], row)
        for row in means(by_size, ("app", "job_usd", "method"))
    ]
    return lines


def _columns(judged: Sequence[dict]) -> list[str]:
    return [column for column in HEADS if column in judged[0]]


def _head(names: list[str], heads: list[str]) -> list[str]:
    return [f"| {' | '.join([*names, *heads])} |", "|---" * len(names) + "|--:" * len(heads) + "|"]


def _line(names: list[str], row: dict, *more: str) -> str:
    numbers = [f"{row[column]:.{1 if column == 'probes' else 2}f}" for column in (*_columns([row]), *more)]
    return f"| {' | '.join([*names, *numbers])} |"
