"""How far predicted step times are from measured ones, split by split, beside simpler models in the same run.

Reads `sia-sosp23/` below --data; splits A to I and P are those of the data's README, over every application found
there. Prints Markdown tables, or one JSON object with --json: mean absolute percentage error and coverage of nominal
90 % intervals, means over the groups of an application and a cluster.

`scav` is the model that `scav predict` and `scav plan` fit to a probed instance type (planner/models/step_time/
node_type.py), fitted to the fit rows of one group at a time. Its prior is the one thing in it that is estimated from
other jobs. It is estimated again for each application from the others alone (calibrate.py); so is that of `physical`,
which is the same form without any correction. `scav, as shipped` has the prior of planner/models/step_time/prior.py,
which comes from all four applications that were given: on those it has seen the test. Exception, as the split asks: in
G both also get the other applications' measurements on the same cluster, as `--history` gives them (`G without history`
is the same without them). Commands know more than this and ask for less: their priors begin at data sheets, and their
nodes are whole.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import step_time_baselines as baselines
from calibrate import calibrate
from step_time_data import CLUSTERS, SPLITS, Group, folds, load_groups

from planner.columns import Z95, Floats, Ints
from planner.models.step_time.node_type import fit_node_type
from planner.models.step_time.pooling import pooled_prior
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.prior import USUAL, Prior

WITHOUT_HISTORY = "G without history"
SCAV, SHIPPED = "scav", "scav, as shipped"
Model = Callable[[Group, Ints, Ints, str], tuple[Floats, Floats]]


class Score(NamedTuple):
    """Means over groups, and the group that fares worst."""

    split: str
    model: str
    mape: float
    coverage90: float
    worst_median: float
    worst_group: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--cluster", nargs="+", default=CLUSTERS, help="others than those of the splits, too")
    parser.add_argument("--model", nargs="+", help="only these columns of the table")
    parser.add_argument("--detail", action="store_true", help="also scav's error for every group")
    arguments = parser.parse_args()
    groups = load_groups(arguments.data / "sia-sosp23", arguments.cluster)
    nested = Nested(groups)
    models: dict[str, Model] = {SCAV: nested.scav, SHIPPED: nested.shipped, "physical": nested.physical}
    models |= {name: baseline(name) for name in ("forest", "pollux", "ring", "ring+forest")}
    asked = {name: model for name, model in models.items() if name in (arguments.model or models)}
    scores = score(groups, asked, arguments.split, detail=arguments.detail)
    if arguments.json:
        print(json.dumps({"rows": [row._asdict() for row in scores]}, indent=2))
        return
    print(as_markdown(scores))
    if SCAV in asked:
        print("\nWorst group of scav, by the median of its errors: " + worst(scores))


def baseline(name: str) -> Model:
    return lambda group, fit, test, _split: baselines.predict(name, group, fit, test)


class Nested:
    """Scav's model on a group, with a prior from the other applications alone."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.prior_without = cache(self._prior_without)
        self.history = cache(self._history)

    def _prior_without(self, app: str) -> Prior:
        return calibrate([group for group in self.groups if group.app != app])

    def _history(self, app: str, cluster: str, *, shipped: bool) -> list[Posterior]:
        """Other applications on the cluster, fitted with the same prior: one without the tested one stays so."""
        prior = USUAL if shipped else self.prior_without(app)
        others = [group for group in self.groups if group.cluster == cluster and group.app != app]
        return [fit_posterior(other.measured(), prior) for other in others]

    def scav(self, group: Group, fit: Ints, test: Ints, split: str) -> tuple[Floats, Floats]:
        return self._fitted(self.prior_without(group.app), group, fit, test, split)

    def shipped(self, group: Group, fit: Ints, test: Ints, split: str) -> tuple[Floats, Floats]:
        return self._fitted(USUAL, group, fit, test, split)

    def _fitted(self, prior: Prior, group: Group, fit: Ints, test: Ints, split: str) -> tuple[Floats, Floats]:
        if split == "G":
            history = self.history(group.app, group.cluster, shipped=prior is USUAL)
            prior = pooled_prior(history, prior)
        median, sd = fit_node_type(group.measured(fit), prior).log_step(group.placements(test))
        return median, Z95 * sd

    def physical(self, group: Group, fit: Ints, test: Ints, _split: str) -> tuple[Floats, Floats]:
        """The form alone: no history, no correction."""
        posterior = fit_posterior(group.measured(fit), self.prior_without(group.app))
        rest = np.log(group.step_seconds[fit]) - posterior.log_step(group.placements(fit))
        where = group.placements(test)
        slope = posterior.slope(where)
        variance = np.einsum("ij,jk,ik->i", slope, posterior.covariance, slope)
        return posterior.log_step(where), Z95 * np.sqrt(variance + float(np.var(rest)))


def score(groups: Sequence[Group], models: dict[str, Model], splits: Sequence[str], *, detail: bool) -> list[Score]:
    labels = [label for split in splits for label in ((split, WITHOUT_HISTORY) if split == "G" else (split,))]
    scores = []
    for label in labels:
        for name, model in models.items():
            if label == WITHOUT_HISTORY and not name.startswith(SCAV):
                continue
            each = {group.name: found for group in groups if (found := _score_group(group, model, label)) is not None}
            if not each:
                continue
            mape, coverage, _ = (statistics.mean(column) for column in zip(*each.values(), strict=True))
            group, (_, _, median) = max(each.items(), key=lambda item: item[1][2])
            scores.append(Score(label, name, round(mape, 2), round(coverage, 1), round(median, 1), group))
            if detail and name.startswith(SCAV):
                cells = ", ".join(f"{key} {value:.1f} ({inside:.0f})" for key, (value, inside, _) in each.items())
                print(f"{label}, {name}: {cells}", file=sys.stderr, flush=True)
    return scores


def _score_group(group: Group, model: Model, label: str) -> tuple[float, float, float] | None:
    """Mean absolute error, rows inside their interval, median absolute error, in percent; means over all folds."""
    found = []
    for fold in folds(group, label[0]):
        median, half_width = model(group, fold.fit, fold.test, label)
        error = median - np.log(group.step_seconds[fold.test])
        size, inside = np.abs(np.expm1(error)), np.abs(error) <= half_width
        found.append((100 * size.mean(), 100 * inside.mean(), 100 * np.median(size)))
    if not found:
        return None
    mape, coverage, median_error = np.mean(found, axis=0).tolist()
    return mape, coverage, median_error


def as_markdown(scores: Sequence[Score]) -> str:
    splits, models = ([*dict.fromkeys(row[column] for row in scores)] for column in (0, 1))
    cells = {(row.split, row.model): f"{row.mape:.1f} ({row.coverage90:.0f})" for row in scores}
    lines = [f"| error % (in 90 % interval) | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]
    lines += [f"| {split} | {' | '.join(cells.get((split, model), '') for model in models)} |" for split in splits]
    return "\n".join(lines)


def worst(scores: Sequence[Score]) -> str:
    """Of scav, split by split."""
    return ", ".join(f"{row.split} {row.worst_group} {row.worst_median:.0f} %" for row in scores if row.model == SCAV)


if __name__ == "__main__":
    main()
