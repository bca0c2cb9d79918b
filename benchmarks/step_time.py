"""How far predicted step times are from measured ones, split by split, beside simpler models in the same run.

Reads `sia-sosp23/` below --data; splits A to I and P are those of the data's README, over every application found
there. Prints Markdown tables, or one JSON object with --json: mean absolute percentage error and coverage of nominal
90 % intervals, means over the groups of an application and a cluster.

scav is the model that `scav predict` and `scav plan` fit to a probed instance type (planner/models/step_time/
node_type.py), fitted to the fit rows of one group at a time. Exception, as the split asks: in G it also gets the other
applications' measurements on the same cluster, as `--history` gives them (`G without history` is the same without
them). Commands know more than this and ask for less: their priors begin at data sheets, and their nodes are whole.

What the scav column owes to the data: its priors, its few other constants (sizes of errors, reaches of the Gaussian
process, when the forest joins), the factor for pairs of nodes and the probe plan of P were chosen by looking at these
very scores on four applications. --leave-out-app estimates the pooled priors again for each application from the
others alone and prints that table too; the other constants stay, so even that table is not a fully untouched one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import step_time_baselines as baselines
from step_time_data import SPLITS, Group, folds, load_groups
from step_time_priors import VAGUE_PRIORS, population_priors

from planner.columns import Z95, Floats, Ints
from planner.models.step_time.node_type import NodeTypeModel, fit_node_types
from planner.models.step_time.pooling import pooled_priors
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.models.step_time.step_formula import DEFAULT_PRIORS, Prior

WITHOUT_HISTORY = "G without history"
Priors = Sequence[Prior]
Model = Callable[[Group, Ints, Ints, str], tuple[Floats, Floats]]


class Score(NamedTuple):
    split: str
    model: str
    mape: float
    coverage90: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--leave-out-app", action="store_true", help="also with each application's priors from others")
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--detail", action="store_true", help="also scav's error for every group")
    arguments = parser.parse_args()
    groups = load_groups(arguments.data / "sia-sosp23")
    history = History(groups)
    models: dict[str, Model] = {"scav": history.scav(lambda _app: DEFAULT_PRIORS), "physical": history.physical}
    models |= {name: baseline(name) for name in ("forest", "pollux", "ring", "ring+forest")}
    scores = score(groups, models, arguments.split, detail=arguments.detail)
    left_out: list[Score] = []
    if arguments.leave_out_app:
        others = {"scav, app left out": history.scav(history.priors_without)}
        left_out = score(groups, others, arguments.split, detail=arguments.detail)
    if arguments.json:
        print(json.dumps({"rows": [row._asdict() for row in (*scores, *left_out)]}, indent=2))
        return
    print(as_markdown(scores))
    if left_out:
        print("\nEverything pooled over applications estimated without the tested one:\n")
        print(as_markdown(left_out))


def baseline(name: str) -> Model:
    return lambda group, fit, test, _split: baselines.predict(name, group, fit, test)


class History:
    """Scav's model on a group, and what it may know of the other groups."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.known: dict[str, Posterior] = {}

    def scav(self, priors_of: Callable[[str], Priors]) -> Model:
        def predict(group: Group, fit: Ints, test: Ints, split: str) -> tuple[Floats, Floats]:
            priors = priors_of(group.app)
            if split == "G":
                priors = pooled_priors(self.others_on_cluster(group, priors), priors)
            median, sd = fit_node_type(measured(group, fit), priors).log_step(placements(group, test))
            return median, Z95 * sd

        return predict

    def physical(self, group: Group, fit: Ints, test: Ints, _split: str) -> tuple[Floats, Floats]:
        """The form alone: one law, no history, no residual."""
        posterior = fit_posterior(measured(group, fit), DEFAULT_PRIORS[:1])
        rest = np.log(group.step_seconds[fit]) - posterior.log_step(placements(group, fit))
        sd = np.sqrt(posterior.variance(placements(group, test)) + float(np.var(rest)))
        return posterior.log_step(placements(group, test)), Z95 * sd

    def others_on_cluster(self, group: Group, priors: Priors) -> list[Posterior]:
        """Fitted with the same priors, so that those without the tested application stay so."""
        others = [other for other in self.groups if other.cluster == group.cluster and other.app != group.app]
        return [fit_posterior(measured(other, np.arange(len(other))), priors) for other in others]

    def priors_without(self, app: str) -> Priors:
        others = [self.posterior(other) for other in self.groups if other.app != app]
        return population_priors(others, VAGUE_PRIORS)

    def posterior(self, group: Group) -> Posterior:
        """Of all rows of a group, fitted once."""
        if group.name not in self.known:
            self.known[group.name] = fit_posterior(measured(group, np.arange(len(group))), VAGUE_PRIORS)
        return self.known[group.name]


def measured(group: Group, rows: Ints) -> MeasuredRows:
    return measured_rows(placements(group, rows), group.step_seconds[rows], group.sync_seconds[rows])


def placements(group: Group, rows: Ints) -> Placements:
    return Placements(
        nodes=group.nodes[rows],
        workers=group.workers[rows],
        most_per_node=group.most_per_node[rows],
        gpu_batch=group.gpu_batch[rows],
        accumulation_steps=np.ones_like(rows),
    )


def fit_node_type(rows: MeasuredRows, priors: Priors) -> NodeTypeModel:
    """A single node type, of which nothing is known but its measurements."""
    return fit_node_types({"": rows}, {"": priors}, {"": np.zeros(0)})[""]


def score(groups: Sequence[Group], models: dict[str, Model], splits: Sequence[str], *, detail: bool) -> list[Score]:
    labels = [label for split in splits for label in ((split, WITHOUT_HISTORY) if split == "G" else (split,))]
    scores = []
    for label in labels:
        for name, model in models.items():
            if label == WITHOUT_HISTORY and not name.startswith("scav"):
                continue
            each = {group.name: found for group in groups if (found := _score_group(group, model, label)) is not None}
            if not each:
                continue
            mape, coverage = (statistics.mean(column) for column in zip(*each.values(), strict=True))
            scores.append(Score(label, name, round(mape, 2), round(coverage, 1)))
            if detail and name.startswith("scav"):
                cells = ", ".join(f"{key} {value:.1f} ({inside:.0f})" for key, (value, inside) in each.items())
                print(f"{label}: {cells}", file=sys.stderr)
    return scores


def _score_group(group: Group, model: Model, label: str) -> tuple[float, float] | None:
    """Mean absolute percentage error, and the share of rows inside their interval in percent; over all folds."""
    errors, inside = [], []
    for fold in folds(group, label[0]):
        median, half_width = model(group, fold.fit, fold.test, label)
        error = median - np.log(group.step_seconds[fold.test])
        errors.append(100 * float(np.mean(np.abs(np.expm1(error)))))
        inside.append(100 * float(np.mean(np.abs(error) <= half_width)))
    return (statistics.mean(errors), statistics.mean(inside)) if errors else None


def as_markdown(scores: Sequence[Score]) -> str:
    splits, models = ([*dict.fromkeys(row[column] for row in scores)] for column in (0, 1))
    cells = {(row.split, row.model): f"{row.mape:.1f} ({row.coverage90:.0f})" for row in scores}
    lines = [f"| error % (in 90 % interval) | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]
    lines += [f"| {split} | {' | '.join(cells.get((split, model), '') for model in models)} |" for split in splits]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
