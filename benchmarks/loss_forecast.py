"""Forecasts of samples to a target metric from the first part of a training run, on the validation curves of Sia.

Each application has one target, which all its batch sizes reach: the least of what they reach in their last tenth. Of
each curve the first 25, 50 and 75 % of the samples that it needs are shown. "scav, no plan" knows nothing else; "scav,
plan" also what `ConvergenceModel` says of this batch from one run, at the application's smallest other batch, as most
plans do. Beside them, a plain power law with offset, fitted by least squares, with its covariance as interval; and the
plan alone.

Both constants of `CurveBeliefs` come from the other applications alone: the share of belief with the lowest interval
score there, and the stretch that puts 90 % of their forecasts inside.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit

from planner.columns import Quantiles
from planner.models.convergence.model import ConvergenceModel
from planner.models.loss_curve import LEAST_POINTS, Curve, CurveBeliefs, first_reached, forecast_curve

SHARES = (0.25, 0.5, 0.75)
ELSEWHERE = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
MISSING = 1000.0  # a "not reached" end, as a factor of the samples so far, where a number is needed
DRAWS = 400


class Answer(NamedTuple):
    """Samples to the target; None is "not reached"."""

    p05: float
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    application: str
    batch: int
    share: float
    seen: Curve
    target: float  # lower is better
    truth: float
    planned: Quantiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds sia-sosp23")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    curves = load_curves(arguments.data / "sia-sosp23")
    cases = [case for name, of_batch in curves.items() for case in cases_of(name, of_batch)]
    rows = list(judged(cases))
    beliefs = {what: calibrated(cases, with_plan=what == "with plan") for what in ("no plan", "with plan")}
    result = {
        "cases": len(cases),
        "too_few_points": sorted({f"{case.application} {case.share:.0%}" for case in cases if too_short(case)}),
        "rows": rows,
        "all_applications": {
            what: {"elsewhere": found.elsewhere, "stretch_log": found.stretch_log} for what, found in beliefs.items()
        },
    }
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result))


def load_curves(folder: Path) -> dict[str, dict[int, Curve]]:
    """Those with more than a handful of epochs; real samples (steps times batch), and the metric turned round."""
    found: dict[str, dict[int, Curve]] = {}
    for path in sorted(folder.glob("*/validation-*.csv")):
        batch = int(path.stem.rpartition("-")[2])
        with path.open() as stream:
            rows = list(csv.DictReader(stream))
        if len(rows) > LEAST_POINTS:
            samples = np.array([max(float(row["iteration"]), 1.0) * batch for row in rows])
            metric = np.array([float(row["metric"]) for row in rows])
            found.setdefault(path.parent.name, {})[batch] = Curve(samples, -metric)
    return found


def cases_of(application: str, curves: dict[int, Curve]) -> Iterator[Case]:
    target = max(float(np.median(curve.loss[-max(len(curve.loss) // 10, 3) :])) for curve in curves.values())
    truth = {batch: first_reached(curve, target) for batch, curve in curves.items()}
    for batch, curve in sorted(curves.items()):
        reference = min(other for other in curves if other != batch)  # all that a plan usually knows
        reached = truth[batch]
        assert reached is not None
        plan = ConvergenceModel().fit([(float(reference), truth[reference] or 0.0)]).predict(np.array([batch]))
        planned = Quantiles(float(plan.p05[0]), float(plan.p50[0]), float(plan.p95[0]))
        for share in SHARES:
            shown = curve.samples <= share * reached
            yield Case(
                application=application,
                batch=batch,
                share=share,
                seen=Curve(curve.samples[shown], curve.loss[shown]),
                target=target,
                truth=reached,
                planned=planned,
            )


def too_short(case: Case) -> bool:
    return len(case.seen.samples) < LEAST_POINTS


def judged(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    applications = sorted({case.application for case in cases})
    answers: dict[str, list[tuple[Case, Answer]]] = {}
    for tested in applications:
        others = [case for case in cases if case.application != tested]
        alone, planned = calibrated(others, with_plan=False), calibrated(others, with_plan=True)
        for case in cases:
            if case.application != tested or too_short(case):
                continue
            answers.setdefault("scav, no plan", []).append((case, answered(case, alone, with_plan=False)))
            answers.setdefault("scav, plan", []).append((case, answered(case, planned, with_plan=True)))
            answers.setdefault("power law", []).append((case, power_law(case)))
            answers.setdefault("plan alone", []).append((case, Answer(*case.planned)))
    for method, given in answers.items():
        for name in ("all", *applications):
            for share in SHARES:
                chosen = [(c, a) for c, a in given if c.share == share and name in ("all", c.application)]
                if chosen:
                    yield {"method": method, "application": name, "share": share, **figures(chosen)}


def figures(given: Sequence[tuple[Case, Answer]]) -> dict[str, Any]:
    """A median that is "not reached" counts as an error of its own: all these runs get there."""
    errors = [abs(answer.p50 / case.truth - 1) for case, answer in given if answer.p50 is not None]
    widths = [(a.p95 or MISSING * c.seen.samples[-1]) / a.p05 for c, a in given]
    return {
        "runs": len(given),
        "said_not_reached": len(given) - len(errors),
        "median_error": float(np.median(errors)) if errors else None,
        "coverage": float(np.mean([inside(case, answer) for case, answer in given])),
        "median_width": float(np.median(widths)),
    }


def inside(case: Case, answer: Answer) -> bool:
    return answer.p05 <= case.truth and (answer.p95 is None or case.truth <= answer.p95)


def answered(case: Case, beliefs: CurveBeliefs, *, with_plan: bool) -> Answer:
    found = forecast_curve(case.seen, case.target, case.planned if with_plan else None, beliefs)
    return Answer(found.p05, found.p50, found.p95)


def calibrated(cases: Sequence[Case], *, with_plan: bool) -> CurveBeliefs:
    usable = [case for case in cases if not too_short(case)]
    best: tuple[float, CurveBeliefs] | None = None
    for elsewhere in ELSEWHERE:
        plain = CurveBeliefs(elsewhere=elsewhere, stretch_log=0.0)
        given = [(case, answered(case, plain, with_plan=with_plan)) for case in usable]
        beliefs = CurveBeliefs(elsewhere=elsewhere, stretch_log=stretch_needed(given))
        score = float(np.mean([interval_score(case, answered(case, beliefs, with_plan=with_plan)) for case in usable]))
        if best is None or score < best[0]:
            best = score, beliefs
    assert best is not None
    return best[1]


def stretch_needed(given: Sequence[tuple[Case, Answer]]) -> float:
    """The distance outside that nine in ten keep, with one case more counted as a miss (split conformal)."""
    outside = sorted(max(np.log(a.p05 / c.truth), np.log(c.truth / _end(c, a))) for c, a in given)
    rank = min(int(np.ceil(0.9 * (len(outside) + 1))), len(outside)) - 1
    return round(max(float(outside[rank]), 0.0), 3)


def interval_score(case: Case, answer: Answer) -> float:
    """Width of the 90 % interval in log samples, and 20 times what the truth is outside of it."""
    low, high, truth = np.log(answer.p05), np.log(_end(case, answer)), np.log(case.truth)
    return float(high - low + 20 * (max(low - truth, 0.0) + max(truth - high, 0.0)))


def _end(case: Case, answer: Answer) -> float:
    return answer.p95 if answer.p95 is not None else MISSING * float(case.seen.samples[-1])


def power_law(case: Case) -> Answer:
    """y = a + b * n^-d with b and d above 0, as anybody would fit it; the interval by its covariance."""
    now, scale = float(case.seen.samples[-1]), float(np.ptp(case.seen.loss)) or 1.0
    n, y = case.seen.samples / now, case.seen.loss / scale
    start, bounds = (float(y[-1]), 0.5, 0.5), ((-np.inf, 1e-6, 1e-3), (np.inf, np.inf, 5.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        best, covariance = curve_fit(lambda x, a, b, d: a + b * x**-d, n, y, p0=start, bounds=bounds, maxfev=20_000)
    middle = _crossing(best[None, :], case.target / scale)[0]
    if not np.isfinite(covariance).all():
        return _answer(now, middle, middle, middle)
    draws = np.random.default_rng(0).multivariate_normal(best, covariance, DRAWS, method="svd")
    low, high = np.quantile(_crossing(draws, case.target / scale), (0.05, 0.95), method="inverted_cdf")
    return _answer(now, low, middle, high)


def _crossing(parameters: np.ndarray[Any, Any], target: float) -> np.ndarray[Any, Any]:
    a, b, d = parameters.T
    with np.errstate(all="ignore"):
        found = ((target - a) / b) ** (-1 / d)
    return np.where(np.isfinite(found) & (b > 0) & (d > 0) & (target > a), found, np.inf)


def _answer(now: float, low: float, middle: float, high: float) -> Answer:
    low, middle, high = (max(value, 1.0) for value in (low, middle, high))
    end = [None if value > MISSING else float(value) * now for value in (middle, high)]
    return Answer(now * min(low, MISSING), *end)


def as_markdown(result: dict[str, Any]) -> str:
    lines = [
        "| method | application | shown | runs | says not reached | median error | in 90 % interval | median width |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['method']} | {row['application']} | {row['share']:.0%} | {row['runs']} | {row['said_not_reached']} "
        f"| {'-' if row['median_error'] is None else format(row['median_error'], '.0%')} | {row['coverage']:.0%} "
        f"| {row['median_width']:,.1f} x |"
        for row in result["rows"]
    ]
    short = ", ".join(result["too_few_points"])
    lines += ["", f"{result['cases']} cases; fewer than {LEAST_POINTS} points, and no forecast, in some of {short}."]
    lines += [f"From all applications: {json.dumps(result['all_applications'])}"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
