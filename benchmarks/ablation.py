"""What each part of the step-time model is worth: the nested scores of `step_time.py` with one part off at a time.

Reads `sia-sosp23/` below --data. A part is off while everything is done without it: the prior is estimated again from
the other applications, every fold is fitted again. A term of the form is off by the value at which it has no effect.
The gain is what the error grows by without the part: a mean over the splits of a group, then over groups, with its
standard error over groups. A part whose gain is below that has not been shown to help. Parts that only widen intervals
move no error, so all are also judged by the interval score: the width of the 90 % interval in log units, and twenty
times as much as a row lies outside of it, in percent.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import calibrate
import numpy as np
import step_time
import step_time_data
from step_time_data import SPLITS, Group, folds, load_groups

from planner.columns import Floats
from planner.models.step_time import correction, forest, formula, node_type, posterior
from planner.models.step_time.prior import Prior
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows

NOTHING = "(nothing)"
AFTER_THE_POSTERIOR = (NOTHING, "plain", "correction", "forest", "interval")
NEVER = -30.0  # as the logarithm of a quantity, or of odds: none of it
FAR = 1e3  # standard deviations
MISSED = 2 / (1 - node_type.COVERAGE)  # the interval score's price of a log unit outside

_FITTED: dict[bytes, posterior.Posterior] = {}

# Parameters of the form, and the value at which each has no effect.
TERMS = {
    "fixed": NEVER,
    "floor": NEVER,
    "batch_power": 0.0,
    "link_power": 0.0,
    "pair": 0.0,
    "width_power": 0.0,
    "overlap": NEVER,
    "pair_alone": 0.0,
    "balance_power": 0.0,
    "wait": NEVER,
}


class Score(NamedTuple):
    """Of one group, means over the folds of one split, in percent."""

    error: float
    inside: float
    interval: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--part", nargs="+", default=[""], help="only those whose name begins so")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    parts = [part for part in PARTS if part.startswith(tuple(arguments.part))]
    print("\n".join(_head(arguments.split)), flush=True)
    with ProcessPoolExecutor(arguments.workers) as pool:
        found = pool.map(scores_without, [NOTHING, *parts], repeat(arguments.data), repeat(arguments.split))
        whole = next(found)
        print(_line(NOTHING, whole, whole), flush=True)
        for part, left in zip(parts, found, strict=True):
            print(_line(part, whole, left), flush=True)


def scores_without(part: str, data: Path, splits: Sequence[str]) -> dict[tuple[str, str], Score]:
    groups = load_groups(data / "sia-sosp23")
    with ExitStack() as stack:
        if part.startswith(AFTER_THE_POSTERIOR):  # the same fits for all of these
            stack.enter_context(patch.object(node_type, "fit_posterior", _remembered))
        else:
            stack.enter_context(patch.dict(calibrate._POSTERIORS, clear=True))
        for each in PARTS.get(part, ()):
            stack.enter_context(each())
        return scores(groups, splits)


def _remembered(rows: MeasuredRows, prior: Prior) -> posterior.Posterior:
    columns = (rows.log_step, rows.placements.table(), prior.mean, prior.sd)
    key = b" ".join(column.tobytes() for column in columns)
    if key not in _FITTED:
        _FITTED[key] = posterior.fit_posterior(rows, prior)
    return _FITTED[key]


def _constant(module: Any, name: str, value: Any) -> Any:
    """A patch to be started later: one that was used cannot be used again."""
    return partial(patch.object, module, name, value)


def _term(name: str) -> tuple[Any, ...]:
    def log_step(theta: Floats, placements: Placements, reference_batch: float) -> tuple[Floats, Floats]:
        theta = theta.copy()
        theta[formula.NAMES.index(name)] = TERMS[name]
        return with_all(theta, placements, reference_batch)

    with_all = formula.log_step
    return tuple(_constant(module, "log_step", log_step) for module in (formula, posterior))


def _one_start(prior: Any) -> Iterator[Floats]:
    yield prior.mean


def _without_work(placements: Placements, step_seconds: Floats, _: Floats) -> MeasuredRows:
    return measured_rows(placements, step_seconds, None)


def _without_median(*arguments: Any) -> correction.Correction:
    """The variance stays: nearby rows still tell how sure it is."""
    found = correction.fit_correction(*arguments)
    return replace(found, solved=np.zeros_like(found.solved))


NO_FOREST = _constant(node_type, "fit_forest", lambda *_: None)

PARTS: dict[str, tuple[Any, ...]] = {
    "plain form where probes say nothing": (_constant(node_type, "PLAIN_SHARE", 0.0),),
    "correction and forest": (_constant(node_type, "fit_correction", _without_median), NO_FOREST),
    "correction: decays along the batch": (_constant(correction, "BATCH_REACH", FAR),),
    "forest": (NO_FOREST,),
    "forest: only if it earns it": (_constant(forest, "blend_share", lambda *_: 1.0),),
    "interval: doubt per doubling": (_constant(node_type, "DOUBT_PER_DOUBLING", 0.0),),
    "interval: stretched to its rows": (_constant(node_type, "conformal_stretch", lambda _: 1.0),),
    "prior from other jobs": (_constant(step_time, "calibrate", lambda _: calibrate.VAGUE),),
    "history of the node type (G)": (_constant(step_time, "pooled_prior", lambda _, prior: prior),),
    **{f"form: {name}": _term(name) for name in TERMS},
    "posterior: three starts": (_constant(posterior, "_starts", _one_start),),
    "posterior: middle of what is allowed": (_constant(posterior._Errors, "in_the_middle", lambda _, theta: theta),),
    "posterior: robust errors": (_constant(posterior, "ROBUST", FAR),),
    "posterior: work measured apart": (_constant(step_time_data, "measured_rows", _without_work),),
    "posterior: rows share a weight": (_constant(posterior, "EFFECTIVE_ROWS", np.inf),),
}


def scores(groups: Sequence[Group], splits: Sequence[str]) -> dict[tuple[str, str], Score]:
    """By group and split."""
    nested = step_time.Nested(groups)
    found = ((group, split, list(folds(group, split))) for split in splits for group in groups)
    return {
        (group.name, split): Score(*np.mean([_score(nested, group, split, fold) for fold in own], axis=0).tolist())
        for group, split, own in found
        if own
    }


def _score(nested: step_time.Nested, group: Group, split: str, fold: Any) -> tuple[float, float, float]:
    median, half_width = nested.scav(group, fold.fit, fold.test, split)
    error = median - np.log(group.step_seconds[fold.test])
    outside = np.maximum(np.abs(error) - half_width, 0.0)
    size = 100 * np.abs(np.expm1(error)).mean()
    return size, 100 * float((outside == 0).mean()), 100 * float((2 * half_width + MISSED * outside).mean())


def gain(whole: dict[tuple[str, str], Score], left: dict[tuple[str, str], Score], name: str) -> tuple[float, float]:
    """Mean over groups, and its standard error."""
    groups = dict.fromkeys(group for group, _ in whole)
    each = [
        statistics.fmean(getattr(left[key], name) - getattr(whole[key], name) for key in whole if key[0] == group)
        for group in groups
    ]
    return statistics.fmean(each), statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0


def _head(splits: Sequence[str]) -> tuple[str, str]:
    names = ("without", "error %", "gain ±", "inside 90 %", "interval score", "gain ±", *splits)
    return f"| {' | '.join(names)} |", "|---" + "|--:" * (len(names) - 1) + "|"


def _line(part: str, whole: dict[tuple[str, str], Score], left: dict[tuple[str, str], Score]) -> str:
    """Means over splits of the means over groups, and gains over the groups."""
    splits = dict.fromkeys(split for _, split in left)
    means = [np.mean([each for (_, own), each in left.items() if own == split], axis=0) for split in splits]
    error, inside, interval = np.mean(means, axis=0)
    errors, intervals = ("{:.2f} ± {:.2f}".format(*gain(whole, left, name)) for name in ("error", "interval"))
    if part == NOTHING:
        errors = intervals = ""
    cells = (part, f"{error:.2f}", errors, f"{inside:.1f}", f"{interval:.1f}", intervals)
    return f"| {' | '.join((*cells, *(f'{mean[0]:.1f}' for mean in means)))} |"


if __name__ == "__main__":
    main()
