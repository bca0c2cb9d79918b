"""Estimates what scav believes of samples to the target before any run, and prints it: `Beliefs` in `laws.py`.

From MLPerf's reference convergence points below --data, the newest round of each benchmark with four batch sizes or
more. Where the critical batch lies, what laws miss and over which distance: the largest marginal likelihood of all
runs. The chance of a law: benchmarks whose runs it makes likelier, and half a one more. What laws miss is then widened
until 90 % of left-out runs lie inside their interval in both splits of `samples_cases`, each benchmark predicted with
what the others say.

`without` does all of it without a benchmark, for whoever wants to test on it; the table prints what that changes.
How far a gradient noise scale is from the critical batch comes from Sia's jobs: each stage of training at the smallest
batch, against the critical batch that the runs at all batches show; the median over jobs.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
from mlperf import Curve, ReferencePoint, load_reference_curves, newest_curves, share_runs
from regret_data import iterations_to_target
from samples_cases import cases_of, predicted, runs_of, shares_inside
from scipy.optimize import minimize

from planner.models.convergence.laws import NOISE_SCALE_LOG_SD, Beliefs
from planner.models.convergence.model import ConvergenceModel
from planner.models.convergence.runs import SCALE_DEGREES, RunsToTarget

FEWEST_SIZES = 4
NOMINAL = 0.9
# Where the search for the largest likelihood begins, and may go.
SEARCHED = {
    "critical_ratio": (10.0, 2.0, 200.0),
    "critical_log_sd": (1.2, 0.5, 2.5),
    "miss_log_sd": (0.05, 0.01, 0.2),
    "miss_log_range": (0.4, 0.1, 1.5),
}
WIDER = tuple(1 + step / 10 for step in range(21))
FEWEST_REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    curves = newest_curves(load_reference_curves(arguments.data), FEWEST_SIZES)
    rows = {"all": calibrated(curves)} | {f"without {name}": without(curves, name, curves[name]) for name in curves}
    noise = noise_log_sd(arguments.data, rows["all"])
    if arguments.json:
        print(json.dumps({"beliefs": {k: asdict(row) for k, row in rows.items()}, "noise_log_sd": noise}, indent=2))
    else:
        print(as_markdown(rows, noise))


def without(curves: Mapping[str, Curve], benchmark: str, *tested: Curve) -> Beliefs:
    """From the other benchmarks alone, and from none under another name that shares runs with what is tested."""
    return calibrated(
        {
            name: curve
            for name, curve in curves.items()
            if name != benchmark and not any(share_runs(curve, other) for other in tested)
        }
    )


def calibrated(curves: Mapping[str, Curve]) -> Beliefs:
    others = {name: estimated(tuple(curve for other, curve in curves.items() if other != name)) for name in curves}
    factor = next((factor for factor in WIDER if covers(others, curves, factor)), WIDER[-1])
    return widened(estimated(tuple(curves.values())), factor)


def covers(beliefs: Mapping[str, Beliefs], curves: Mapping[str, Curve], factor: float) -> bool:
    """Whether enough runs lie inside their interval: means over points, then over benchmarks, in each split."""
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in cases_of(curves):
        found = predicted(case, widened(beliefs[case.benchmark], factor))
        shares[case.split][case.benchmark] += shares_inside(case, found)
    means = [statistics.fmean(statistics.fmean(each) for each in split.values()) for split in shares.values()]
    return min(means) >= NOMINAL


def widened(beliefs: Beliefs, factor: float) -> Beliefs:
    return replace(beliefs, miss_log_sd=rounded(beliefs.miss_log_sd * factor))


@cache
def estimated(curves: tuple[Curve, ...]) -> Beliefs:
    """The likeliest, before anything is widened."""
    beliefs = Beliefs(hyperbola=0.5, run_log_sd=rounded(usual_scatter(curves)))
    for _ in range(2):  # the chance of a law depends on the others, and they on it
        beliefs = likeliest(beliefs, curves)
        beliefs = replace(beliefs, hyperbola=rounded(chance_of_hyperbola(beliefs, curves)))
    return beliefs


def usual_scatter(curves: Iterable[Curve]) -> float:
    """The median over benchmarks of how much runs with other seeds differ."""
    return statistics.median(
        scatter(curve) for curve in curves if sum(len(point.runs) for point in curve) >= len(curve) + FEWEST_REPEATS
    )


def scatter(curve: Curve) -> float:
    """Between the runs of one benchmark alone: what is usual taken out of their number again."""
    repeats = sum(len(point.runs) for point in curve) - len(curve)
    variance = float(RunsToTarget.pooled(runs_of(curve), np.zeros(1)).variance[0])
    return math.sqrt(variance * (SCALE_DEGREES + repeats) / repeats)


def likeliest(beliefs: Beliefs, curves: Iterable[Curve]) -> Beliefs:
    points = [runs_of(curve) for curve in curves]
    start, low, high = (np.log([bounds[i] for bounds in SEARCHED.values()]) for i in range(3))

    def at(position: np.ndarray) -> Beliefs:
        return replace(beliefs, **dict(zip(SEARCHED, map(rounded, np.exp(position)), strict=True)))

    def cost(position: np.ndarray) -> float:
        smooth = replace(beliefs, **dict(zip(SEARCHED, np.exp(position).tolist(), strict=True)))
        return -sum(weighed(smooth, each).log_evidence_ for each in points)

    options = {"xtol": 0.05, "ftol": 1e-4, "maxiter": 5}
    return at(minimize(cost, start, method="Powell", bounds=list(zip(low, high, strict=True)), options=options).x)


def chance_of_hyperbola(beliefs: Beliefs, curves: Sequence[Curve]) -> float:
    """Which law makes more of a benchmark's runs, whatever was believed of laws before."""
    even = replace(beliefs, hyperbola=0.5)
    won = sum(weighed(even, runs_of(curve)).law_weights_["hyperbola"] > 0.5 for curve in curves)
    return (won + 0.5) / (len(curves) + 1)


def weighed(beliefs: Beliefs, points: list[tuple[float, float]]) -> ConvergenceModel:
    return ConvergenceModel(beliefs).weigh(points, None, NOISE_SCALE_LOG_SD)


def noise_log_sd(data: Path, beliefs: Beliefs) -> float | None:
    jobs = [(folder, curve) for folder, curve in sia_curves(data).items() if len(curve) >= FEWEST_SIZES]
    return rounded(statistics.median(noise_error(data, *job, beliefs) for job in jobs)) if jobs else None


def noise_error(data: Path, job: str, curve: Curve, beliefs: Beliefs) -> float:
    """Root mean square over the stages of training, less what is not known of the critical batch itself."""
    model = weighed(replace(beliefs, hyperbola=1 - 1e-9), runs_of(curve))
    law = model.laws_[0]
    weight = model.weight_.sum(axis=0)[: len(law.parameter)]
    critical = float(weight @ law.parameter)
    unknown = float(weight @ (law.parameter - critical) ** 2)
    smallest = curve[0].batch
    with (data / "sia-sosp23" / job / f"validation-{smallest}.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if float(row["grad_sqr"]) > 0]
    stages = np.log([float(row["grad_var"]) / float(row["grad_sqr"]) for row in rows])  # times the smallest batch
    return math.sqrt(max(float(((stages - critical) ** 2).mean()) - unknown, 0.0))


def sia_curves(data: Path) -> dict[str, Curve]:
    """One run for each batch."""
    folders = sorted(path for path in (data / "sia-sosp23").glob("*") if path.is_dir())
    found = {folder.name: iterations_to_target(folder) for folder in folders}
    return {
        job: tuple(ReferencePoint(batch=size, runs=(size * steps[size],)) for size in sorted(steps))
        for job, steps in found.items()
    }


def rounded(value: float) -> float:
    """To two digits: no more of it is known."""
    return float(f"{value:.2g}")


def as_markdown(rows: Mapping[str, Beliefs], noise: float | None) -> str:
    names = list(asdict(rows["all"]))
    lines = [f"| benchmarks | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
    lines += [
        f"| {name} | {' | '.join(f'{value:g}' for value in asdict(row).values())} |" for name, row in rows.items()
    ]
    return "\n".join([*lines, "", f"A gradient noise scale: log standard deviation {noise:g}." if noise else ""])


if __name__ == "__main__":
    main()
