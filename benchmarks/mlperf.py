"""MLPerf's reference convergence points and submissions, as the benchmarks read them from --data DIR."""

from __future__ import annotations

import csv
import gzip
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePoint:
    """Runs of the reference at one batch size; samples in whatever unit the benchmark counts."""

    batch: int
    runs: tuple[float, ...]

    @property
    def samples(self) -> float:
        return olympic_mean(self.runs)


Curve = tuple[ReferencePoint, ...]


def olympic_mean(values: Sequence[float]) -> float:
    """Without the best and the worst when there are more than three."""
    ranked = sorted(values)
    return statistics.fmean(ranked[1:-1] if len(ranked) > 3 else ranked)


def load_reference_curves(data: Path) -> dict[tuple[str, str], Curve]:
    """By benchmark and round ("3.1"), batch sizes ascending."""
    runs: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(data / "mlperf-rcp" / "rcp_long.csv.gz", "rt", newline="") as stream:
        for row in csv.DictReader(stream):
            major, minor = re.findall(r"\d+", row["version"])[:2]
            by_batch = runs[row["benchmark"], f"{major}.{minor}"]
            by_batch[int(float(row["batch_size"]))].append(float(row["epochs_or_samples_to_converge"]))
    return {
        key: tuple(ReferencePoint(batch=batch, runs=tuple(values)) for batch, values in sorted(by_batch.items()))
        for key, by_batch in sorted(runs.items())
    }


def newest_curves(curves: dict[tuple[str, str], Curve], at_least: int) -> dict[str, Curve]:
    """Each benchmark as its newest round lists it; curves that share runs are one benchmark under two names.

    Points that a later round dropped are left out: units, models and targets change between rounds.
    """
    oldest_first = sorted(curves.items(), key=lambda item: [int(part) for part in item[0][1].split(".")])
    newest = {name: curve for (name, _), curve in oldest_first}
    found: dict[str, Curve] = {}
    for name, curve in sorted(newest.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(curve) >= at_least and not any(share_runs(curve, other) for other in found.values()):
            found[name] = curve
    return dict(sorted(found.items()))


def share_runs(one: Curve, other: Curve) -> bool:
    return not set(one).isdisjoint(other)


def load_runs(data: Path) -> dict[str, Curve]:
    """What submitters' single runs needed, by benchmark, in the unit that most of them state."""
    with gzip.open(data / "mlperf-training" / "mlperf_training_runs.csv.gz", "rt", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if _counts(row)]
    found = {}
    for benchmark in sorted({row["benchmark"] for row in rows}):
        own = [row for row in rows if row["benchmark"] == benchmark]
        unit = max(
            ("samples_to_converge", "epochs_to_converge"), key=lambda key: sum(_positive(row[key]) for row in own)
        )
        by_batch: dict[int, list[float]] = defaultdict(list)
        for row in own:
            if _positive(row[unit]):
                by_batch[int(float(row["global_batch_size"]))].append(float(row[unit]))
        found[benchmark] = tuple(ReferencePoint(batch=b, runs=tuple(runs)) for b, runs in sorted(by_batch.items()))
    return found


def _counts(row: dict[str, str]) -> bool:
    return bool(
        row["division"] == "closed" and row["status"] == "success" and not row["repeat_of"] and row["global_batch_size"]
    )


def _positive(text: str) -> bool:
    return float(text or 0) > 0


def load_submissions(data: Path) -> list[dict[str, str]]:
    """Closed division, each run counted in the round that first published it."""
    file = data / "mlperf-training" / "mlperf_training_submissions.csv"
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [row for row in rows if row["division"] == "closed" and not row["repeat_of"] and row["global_batch_size"]]
