"""The prior of the sharded step time, the one thing in it that is estimated from other people's trainings.

Reads `llm-tables/` and `llm-foundry-tput/` below --data and prints what stands in
planner/models/sharded_step_time/prior.py; --without FAMILY leaves a table out, as `sharded_step_time.py` does for each
one that it tests. It begins with what the physics of each term allows (VAGUE), which counts as one more family; every
family has parameters of its own, and the prior is their mean and spread (empirical Bayes, by expectation and
maximisation).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sharded_data import Table, load_tables

from planner.columns import Floats
from planner.models.sharded_step_time.formula import NAMES, to_values
from planner.models.sharded_step_time.posterior import ShardedPosterior, StepRows, fit_posterior
from planner.models.sharded_step_time.prior import ShardedPrior

VAGUE = ShardedPrior.of(
    noise_sd=0.08,
    gemm=(0.70, 0.7),
    elementwise=(2.5, 0.8),  # what is kept is written and read once a pass, and half as much that is not kept
    attention=(1.5, 0.4),
    scores=(2.6, 0.4),  # written twice, dropped and read between two products: 13 bytes a pass, for 5 in the form
    host=(0.002, 0.5),
    latency=(5e-5, 1.0),
    link=(0.70, 0.8),
    network=(0.60, 0.8),
    overlap=(1.0, 1.0),
    optimizer=(1.0, 0.4),
    fixed=(0.01, 1.0),
    low_precision=(0.70, 0.7),
)
# A property of the script: other people's say nothing about it.
OWN = np.array([name == "fixed" for name in NAMES])
ROUNDS = 6  # of fitting the families, then pooling them
SPREAD_ROUNDS = 20
BELIEF = 3.0  # families that VAGUE's spreads count as: half a dozen cannot tell theirs alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--without", metavar="FAMILY")
    arguments = parser.parse_args()
    tables = load_tables(arguments.data)
    print(as_code(calibrate([table for table in tables if table.family != arguments.without])))


def calibrate(tables: Sequence[Table]) -> ShardedPrior:
    """What these families say about another one."""
    prior, rows = VAGUE, [as_rows(table) for table in tables]
    for _ in range(ROUNDS if rows else 0):
        prior = _pooled([fit_posterior(each, prior) for each in rows], prior)
    return prior


def _pooled(families: Sequence[ShardedPosterior], before: ShardedPrior) -> ShardedPrior:
    """Each family's likelihood is taken as normal: what its posterior knows beyond the prior that it was given."""
    told = [np.linalg.inv(family.covariance) - np.diag(before.sd**-2) for family in families]
    pulls = [np.linalg.solve(family.covariance, family.theta) - before.mean / before.sd**2 for family in families]
    mean, sd = before.mean, before.sd
    for _ in range(SPREAD_ROUNDS):
        mean = _centre(told, pulls, sd)
        second = [_second_moment(*each, mean, sd) for each in zip(told, pulls, strict=True)]
        square = (np.sum(second, axis=0) + BELIEF * VAGUE.sd**2) / (len(families) + BELIEF)
        sd = np.minimum(np.sqrt(square), VAGUE.sd)
    noise = sum(family.noise_sd**2 for family in families) + BELIEF * VAGUE.noise_sd**2
    return ShardedPrior(mean, sd, float(np.sqrt(noise / (len(families) + BELIEF))))


def _centre(told: Sequence[Floats], pulls: Sequence[Floats], sd: Floats) -> Floats:
    """Weighted by what each family tells; VAGUE counts as one that tells everything."""
    weight, pull = np.diag(VAGUE.sd**-2), VAGUE.mean / VAGUE.sd**2
    for known, towards in zip(told, pulls, strict=True):
        shrunk = np.eye(len(sd)) + known * sd**2
        weight, pull = weight + np.linalg.solve(shrunk, known), pull + np.linalg.solve(shrunk, towards)
    centre = np.linalg.solve(weight, pull)
    return np.where(OWN, VAGUE.mean, centre)


def _second_moment(told: Floats, pull: Floats, mean: Floats, sd: Floats) -> Floats:
    """Of a family's parameters around the mean, given both."""
    covariance = np.linalg.inv(told + np.diag(sd**-2))
    off = covariance @ (pull + mean / sd**2) - mean
    return np.asarray(off**2 + np.diag(covariance))


def as_rows(table: Table) -> StepRows:
    return StepRows(table.layout, table.hardware, table.log_step, np.ones(len(table)))


def as_code(prior: ShardedPrior) -> str:
    """As it stands in prior.py."""
    rows = zip(NAMES, to_values(prior.mean), prior.sd, strict=True)
    lines = (f"    {name}=({value:.2g}, {sd:.2f})," for name, value, sd in rows)
    return "\n".join(("POOLED = ShardedPrior.of(", f"    noise_sd={prior.noise_sd:.3f},", *lines, ")"))


if __name__ == "__main__":
    main()
