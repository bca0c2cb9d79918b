"""The prior of the step-time model, the one thing in it that is estimated from other jobs.

Reads `sia-sosp23/` below --data and prints what stands in planner/models/step_time/prior.py; --without APP leaves an
application out, as `step_time.py` does for each one that it tests. It begins with what the physics of each term allows
(VAGUE) and is narrowed where jobs on all kinds of node types agree. What is not here was not chosen by scores, or made
no difference to them that is larger than their noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from step_time_data import Group, load_groups

from planner.models.step_time.formula import NAMES, positions
from planner.models.step_time.pooling import estimates
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.prior import Prior

VAGUE = Prior.of(
    scale=(0.0, 1.0),
    fixed=(0.0, 5.0),
    floor=(-1.0, 1.0),
    link=(-2.0, 2.0),
    network=(-1.5, 2.0),
    batch_power=(0.0, 0.1),
    link_power=(0.0, 0.6),
    pair=(0.0, 0.6),
    width_power=(0.0, 0.5),
    overlap=(-2.0, 1.5),
    pair_alone=(0.0, 0.5),
    balance_power=(0.0, 0.6),
    wait=(-4.0, 1.5),
)
# Properties of the job's own network and script: other jobs say nothing about them.
OWN = positions("scale", "fixed", "floor", "batch_power")
ROUNDS = 20  # of finding a centre and who is far from it
_POSTERIORS: dict[str, Posterior] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--without", metavar="APP")
    arguments = parser.parse_args()
    groups = load_groups(arguments.data / "sia-sosp23")
    print(as_code(calibrate([group for group in groups if group.app != arguments.without])))


def calibrate(groups: Sequence[Group]) -> Prior:
    """What these groups, on all kinds of node types, say about another one: robust means and spreads."""
    mean, sd = VAGUE.mean.copy(), VAGUE.sd.copy()
    history = [_posterior(group) for group in groups]
    for index in range(len(NAMES)):
        if index in OWN or not history:
            continue
        value, _, told = estimates(history, VAGUE, index)
        centre, spread = VAGUE.mean[index], VAGUE.sd[index]
        for _ in range(ROUNDS):
            weight = told / np.maximum(1.0, 2 * np.abs(value - centre) / spread)
            centre = (weight @ value + VAGUE.mean[index]) / (weight.sum() + 1)  # the start counts as one more job
        square = (weight @ (value - centre) ** 2 + spread**2) / (weight.sum() + 1)
        mean[index], sd[index] = centre, min(np.sqrt(square), spread)
    return Prior(mean, sd)


def _posterior(group: Group) -> Posterior:
    """Of all rows of a group, fitted once."""
    if group.name not in _POSTERIORS:
        _POSTERIORS[group.name] = fit_posterior(group.measured(), VAGUE)
    return _POSTERIORS[group.name]


def as_code(prior: Prior) -> str:
    """As it stands in prior.py."""
    rows = zip(NAMES, prior.mean, prior.sd, strict=True)
    return "\n".join(("USUAL = Prior.of(", *(f"    {name}=({mean:.2f}, {sd:.2f})," for name, mean, sd in rows), ")"))


if __name__ == "__main__":
    main()
