"""How well samples to the target are predicted at batch sizes that were left out, MLPerf's and others.

Reads `mlperf-rcp/`, `mlperf-training/` and `sia-sosp23/` below --data, whatever benchmarks, rounds and jobs are there:

    leave_one_out   each batch size from all others; benchmarks with four sizes or more in their newest round
    two_smallest    every larger size from the two smallest, same benchmarks
    submissions     what submitters needed, from the reference points of the same round
    other …         the first two on curves from other worlds: runs of submitters where there are no reference points
                    (many submitters, each with its own settings), jobs of Sia, Scavenger's two clusters
    synthetic …     and on drawn ones that follow neither law, or have noisy targets (`samples_synthetic.py`)

Error is the mean absolute percentage error, first over the points of a benchmark, then over benchmarks. Coverage is the
share inside scav's 90 % interval: of single runs, but of submissions (means of 5 to 40 runs) in the third split. "scav"
is told nothing by the tested benchmark: what it believes before any run is estimated anew from the other reference
points (`calibrate_samples.py`). Beside it "shipped": with the constants of the product, estimated from all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from calibrate_samples import FEWEST_SIZES, sia_curves, without
from mlperf import Curve, ReferencePoint, load_reference_curves, load_runs, load_submissions, newest_curves
from samples_cases import Case, cases_of, predicted, shares_inside
from samples_synthetic import synthetic_curves
from scavenger_table import BATCHES as SCAVENGER_BATCHES
from scavenger_table import EPOCHS_BY_NODES

from planner.columns import Floats
from planner.models.convergence.laws import BELIEFS, Beliefs

OURS = ("scav", "shipped")
# Its batches count sentences for some submitters, tokens for others.
TWO_UNITS = {"transformer"}
# Reference points count in epochs, samples or tokens; in steps (times the batch); or call the first epoch 1 (less one).
READINGS = ((0, 0.0), (1, 0.0), (0, -1.0))
SAME_UNIT = 1.5  # if the best reading is further off than this, it is not the same quantity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    curves = load_reference_curves(arguments.data)
    references = newest_curves(curves, FEWEST_SIZES)
    cases = list(cases_of(references))
    if (arguments.data / "mlperf-training").is_dir():
        cases += submission_cases(curves, arguments.data)
    cases += cases_of(other_curves(arguments.data, {name for name, _ in curves}), "other ")
    drawn = cases_of(synthetic_curves(), "synthetic ")
    cases += [replace(case, benchmark=case.benchmark.partition(" ")[0]) for case in drawn]  # a row for each kind

    @cache
    def believed(benchmark: str) -> Beliefs:
        tested = [curve for (name, _), curve in curves.items() if name == benchmark]
        return without(references, benchmark, *tested)

    nothing_left_out = believed("")
    in_view = {name for name, _ in curves}
    table = [
        row
        for case in cases
        for row in judge(case, believed(case.benchmark) if case.benchmark in in_view else nothing_left_out)
    ]
    print(json.dumps({"rows": means(table)}, indent=2) if arguments.json else as_markdown(table))


def other_curves(data: Path, with_references: set[str]) -> dict[str, Curve]:
    """None of these says anything to `calibrate_samples.py`."""
    submitted = load_runs(data) if (data / "mlperf-training").is_dir() else {}
    found = {
        f"{name} (submitters)": curve
        for name, curve in submitted.items()
        if name not in with_references and name not in TWO_UNITS
    }
    found |= {f"{job} (Sia)": curve for job, curve in sia_curves(data).items()}
    for nodes, epochs in EPOCHS_BY_NODES.items():
        points = zip(SCAVENGER_BATCHES.tolist(), epochs, strict=True)
        found[f"{nodes} nodes (Scavenger)"] = tuple(
            ReferencePoint(batch=batch, runs=(needed,)) for batch, needed in points
        )
    return {name: curve for name, curve in found.items() if len(curve) >= FEWEST_SIZES}


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


def judge(case: Case, believed: Beliefs) -> list[dict]:
    """One row per model and asked point."""
    batches = np.array([point.batch for point in case.asked])
    truth = np.array([point.samples for point in case.asked])
    found = {"scav": predicted(case, believed), "shipped": predicted(case, BELIEFS)}
    inside = {name: shares_inside(case, each) for name, each in found.items()}
    medians = {name: each.p50 for name, each in found.items()}
    medians |= {name: model(case.known, batches) for name, model in BASELINES.items()}
    return [
        {
            "split": case.split,
            "benchmark": case.benchmark,
            "model": name,
            "error": 100 * abs(median[i] / truth[i] - 1),
            "inside": 100 * inside[name][i] if name in inside else None,
        }
        for name, median in medians.items()
        for i in range(len(batches))
    ]


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
        | ({"coverage90": mean_of(benchmarks, "inside")} if model in OURS else {})
        for (split, model), benchmarks in groups.items()
    ]


def mean_of(benchmarks: dict[str, list[dict]], key: str) -> float:
    return statistics.fmean(statistics.fmean(row[key] for row in rows) for rows in benchmarks.values())


def as_markdown(table: list[dict]) -> str:
    """A table per split, a row per benchmark."""
    models = [*OURS, *BASELINES]
    lines = []
    for split in dict.fromkeys(row["split"] for row in table):
        rows = [row for row in table if row["split"] == split]
        lines += [f"### {split}", "", f"| benchmark | points | {' | '.join(models)} | inside 90 % | shipped |"]
        lines.append("|---|--:|" + "--:|" * (len(models) + 2))
        for benchmark in sorted({row["benchmark"] for row in rows}):
            own = [row for row in rows if row["benchmark"] == benchmark]
            lines.append(f"| {benchmark} | {len(own) // len(models)} | {cells(means(own))} |")
        lines += [f"| **mean** | {len(rows) // len(models)} | {cells(means(rows))} |", ""]
    return "\n".join(lines).rstrip()


def cells(rows: list[dict]) -> str:
    covered = (f"{row['coverage90']:.0f} %" for row in rows if row["model"] in OURS)
    return " | ".join([*(f"{row['mape']:.1f}" for row in rows), *covered])


if __name__ == "__main__":
    main()
