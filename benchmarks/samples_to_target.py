"""How well samples to the target are predicted at batch sizes that were left out, on MLPerf's reference runs.

Reads `mlperf-rcp/` and `mlperf-training/` below --data, whatever benchmarks and rounds are there. Three splits:

    leave_one_out   each batch size from all others; benchmarks with four sizes or more in their newest round
    two_smallest    every larger size from the two smallest, same benchmarks
    submissions     what submitters needed, from the reference points of the same round

Error is the mean absolute percentage error, first over the points of a benchmark, then over benchmarks. Coverage is the
share inside scav's 90 % interval: of single runs in the first two splits, of submissions (means of 5 to 40 runs) in the
third. The model's beliefs before any run were set with these curves in view, and count most in the second split.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mlperf import Curve, ReferencePoint, load_reference_curves, load_submissions, newest_curves

from planner.columns import Floats, Prediction
from planner.models.convergence.model import ConvergenceModel

FEWEST_SIZES = 4
# Reference points count in epochs, samples or tokens; in steps (times the batch); or call the first epoch 1 (less one).
READINGS = ((0, 0.0), (1, 0.0), (0, -1.0))
SAME_UNIT = 1.5  # if the best reading is further off than this, it is not the same quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Points given, and those to be predicted from them."""

    split: str
    benchmark: str
    known: Curve
    asked: Curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    curves = load_reference_curves(arguments.data)
    cases = list(reference_cases(newest_curves(curves, FEWEST_SIZES)))
    if (arguments.data / "mlperf-training").is_dir():
        cases += submission_cases(curves, arguments.data)
    table = [row for case in cases for row in judge(case)]
    print(json.dumps({"rows": means(table)}, indent=2) if arguments.json else as_markdown(table))


def reference_cases(curves: dict[str, Curve]) -> Iterator[Case]:
    for benchmark, curve in curves.items():
        for i, point in enumerate(curve):
            yield Case(split="leave_one_out", benchmark=benchmark, known=curve[:i] + curve[i + 1 :], asked=(point,))
        yield Case(split="two_smallest", benchmark=benchmark, known=curve[:2], asked=curve[2:])


def submission_cases(curves: dict[tuple[str, str], Curve], data: Path) -> Iterator[Case]:
    """One per benchmark and round that has reference points and submissions in a unit that can be told."""
    rows = defaultdict(list)
    for row in load_submissions(data):
        rows[row["benchmark"], row["round"].removeprefix("v")].append(row)
    for (benchmark, edition), submitted in sorted(rows.items()):
        curve = curves.get((benchmark, edition), ())
        if len(curve) < 2:
            continue
        readings = [
            (known, asked)
            for power_of_batch, shift in READINGS
            for column in ("epochs_mean", "samples_mean")
            if (known := read(curve, power_of_batch, shift)) and (asked := submissions_as_points(submitted, column))
        ]
        known, asked = min(readings, key=lambda pair: typical_ratio(*pair), default=((), ()))
        if asked and typical_ratio(known, asked) < SAME_UNIT:
            yield Case(split="submissions", benchmark=benchmark, known=known, asked=asked)
        else:
            print(f"{benchmark} {edition}: submissions count in another unit, left out", file=sys.stderr)


def read(curve: Curve, power_of_batch: int, shift: float) -> Curve:
    points = tuple(
        ReferencePoint(
            batch=point.batch, runs=tuple(value * point.batch**power_of_batch + shift for value in point.runs)
        )
        for point in curve
    )
    return points if min(min(point.runs) for point in points) > 0 else ()


def submissions_as_points(rows: list[dict[str, str]], column: str) -> Curve:
    return tuple(
        ReferencePoint(batch=int(float(row["global_batch_size"])), runs=(float(row[column]),))
        for row in rows
        if float(row[column] or 0) > 0
    )


def typical_ratio(known: Curve, asked: Curve) -> float:
    """How far the asked are from the nearest known points, as a factor."""
    nearest = [min(known, key=lambda point: abs(math.log(point.batch / other.batch))) for other in asked]
    return math.exp(
        statistics.median(
            abs(math.log(point.samples / other.samples)) for point, other in zip(nearest, asked, strict=True)
        )
    )


def judge(case: Case) -> list[dict]:
    """One row per model and asked point."""
    batches = np.array([point.batch for point in case.asked])
    truth = np.array([point.samples for point in case.asked])
    found = scav(case.known, batches)
    inside = [
        statistics.fmean(low <= run <= high for run in point.runs)
        for point, low, high in zip(case.asked, found.p05, found.p95, strict=True)
    ]
    errors = {"scav": found.p50} | {name: model(case.known, batches) for name, model in BASELINES.items()}
    return [
        {
            "split": case.split,
            "benchmark": case.benchmark,
            "model": name,
            "error": 100 * abs(predicted[i] / truth[i] - 1),
            "inside": 100 * inside[i] if name == "scav" else None,
        }
        for name, predicted in errors.items()
        for i in range(len(batches))
    ]


def scav(known: Curve, batches: Floats) -> Prediction:
    """Every run counts, but with the olympic mean of its batch size: single runs can be typing errors."""
    points = [(float(point.batch), point.samples) for point in known for _ in point.runs]
    return ConvergenceModel().fit(points).predict(batches)


def hyperbola(known: Curve, batches: Floats) -> Floats:
    """Least squares on log samples over S_min and B_crit."""
    size, log_samples = columns(known)
    critical = np.exp(np.linspace(np.log(size.min()) - 6, np.log(size.max()) + 10, 2000))
    height = log_samples[:, None] - np.log1p(size[:, None] / critical)
    best = int(height.var(axis=0).argmin())
    return np.exp(height[:, best].mean()) * (1 + batches / critical[best])


def log_log(known: Curve, batches: Floats) -> Floats:
    """Straight lines between neighbours, the outermost ones prolonged."""
    size, log_samples = columns(known)
    left = np.clip(np.searchsorted(size, batches) - 1, 0, len(size) - 2)
    slope = np.diff(log_samples) / np.diff(np.log(size))
    return np.exp(log_samples[left] + slope[left] * np.log(batches / size[left]))


def power(known: Curve, batches: Floats) -> Floats:
    size, log_samples = columns(known)
    return np.exp(np.polyval(np.polyfit(np.log(size), log_samples, 1), np.log(batches)))


def constant(known: Curve, batches: Floats) -> Floats:
    return np.full(len(batches), np.exp(columns(known)[1].mean()))


BASELINES: dict[str, Callable[[Curve, Floats], Floats]] = {
    "hyperbola": hyperbola,
    "log_log": log_log,
    "power": power,
    "constant": constant,
}


def columns(known: Curve) -> tuple[Floats, Floats]:
    return np.array([point.batch for point in known], float), np.log([point.samples for point in known])


def means(table: list[dict]) -> list[dict]:
    """Over points, then over benchmarks."""
    groups: dict[tuple[str, str], dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for row in table:
        groups[row["split"], row["model"]][row["benchmark"]].append(row)
    return [
        {"split": split, "model": model, "mape": mean_of(benchmarks, "error")}
        | ({"coverage90": mean_of(benchmarks, "inside")} if model == "scav" else {})
        for (split, model), benchmarks in groups.items()
    ]


def mean_of(benchmarks: dict[str, list[dict]], key: str) -> float:
    return statistics.fmean(statistics.fmean(row[key] for row in rows) for rows in benchmarks.values())


def as_markdown(table: list[dict]) -> str:
    """A table per split, a row per benchmark."""
    models = ["scav", *BASELINES]
    lines = []
    for split in dict.fromkeys(row["split"] for row in table):
        rows = [row for row in table if row["split"] == split]
        lines += [f"### {split}", "", f"| benchmark | points | {' | '.join(models)} | inside 90 % |"]
        lines.append("|---|--:|" + "--:|" * (len(models) + 1))
        for benchmark in sorted({row["benchmark"] for row in rows}):
            own = [row for row in rows if row["benchmark"] == benchmark]
            lines.append(f"| {benchmark} | {len(own) // len(models)} | {cells(means(own))} |")
        lines += [f"| **mean** | {len(rows) // len(models)} | {cells(means(rows))} |", ""]
    return "\n".join(lines).rstrip()


def cells(rows: list[dict]) -> str:
    return " | ".join([*(f"{row['mape']:.1f}" for row in rows), f"{rows[0]['coverage90']:.0f} %"])


if __name__ == "__main__":
    main()
