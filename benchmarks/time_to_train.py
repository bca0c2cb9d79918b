"""Minutes to train of MLPerf submissions, predicted from the same submitter's other cluster sizes.

Reads `mlperf-training/` below --data. A family is one benchmark, round, submitter and accelerator; it counts when three
cluster sizes or more were submitted. Each size in turn is predicted from the others: minutes = samples(B) / B x step,
samples by scav's convergence model, a step of work shared by the accelerators and a part that is not. Beside it: the
same with constant samples; constant samples and linear scaling; a plain random forest that also sees all other
families, trained without a twentieth of the cluster sizes at a time. Error is the mean absolute percentage error over
the submissions of a benchmark, then over benchmarks.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mlperf import load_submissions
from scipy.optimize import nnls
from sklearn.ensemble import RandomForestRegressor

from planner.columns import Flags, Floats
from planner.models.convergence.model import ConvergenceModel

FEWEST_SIZES = 3
FOLDS = 20
MODELS = ("scav", "constant samples", "constant samples, linear scaling", "forest")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Columns, one row per submission."""

    name: tuple[str, ...]
    accelerators: Floats
    batch: Floats
    samples: Floats
    minutes: Floats

    @property
    def benchmark(self) -> str:
        return self.name[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    families = load_families(arguments.data)
    large = [family for family in families if len(set(family.accelerators)) >= FEWEST_SIZES]
    predicted = [leave_sizes_out(family) for family in large]
    for columns, minutes in zip(predicted, forest(families, large), strict=True):
        columns["forest"] = minutes
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for family, columns in zip(large, predicted, strict=True):
        for model in MODELS:
            errors[model][family.benchmark] += list(100 * np.abs(columns[model] / family.minutes - 1))
    rows = [{"model": model, "mape": mean_of_means(errors[model])} for model in MODELS]
    print(json.dumps({"rows": rows}, indent=2) if arguments.json else as_markdown(errors, len(large)))


def load_families(data: Path) -> list[Family]:
    groups: dict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    columns = ("accelerators", "global_batch_size", "samples_mean", "minutes_olympic_mean")
    for row in load_submissions(data):
        values = [float(row[column] or 0) for column in columns]
        if min(values) > 0:
            groups[row["benchmark"], row["round"], row["submitter"], row["accel_norm"]].append(values)
    return [
        Family(name=name, accelerators=table[0], batch=table[1], samples=table[2], minutes=table[3])
        for name, table in ((name, np.array(rows).T) for name, rows in sorted(groups.items()))
    ]


def leave_sizes_out(family: Family) -> dict[str, Floats]:
    found = {model: np.empty(len(family.minutes)) for model in MODELS}
    for size in set(family.accelerators):
        asked = family.accelerators == size
        curve = samples_needed(family, asked)
        level = np.exp(np.log(family.samples[~asked]).mean())
        seconds = step_seconds(family, asked)
        found["scav"][asked] = curve / family.batch[asked] * seconds / 60
        found["constant samples"][asked] = level / family.batch[asked] * seconds / 60
        work = np.exp(np.log(family.minutes[~asked] * family.accelerators[~asked]).mean())
        found["constant samples, linear scaling"][asked] = work / size
    return found


def samples_needed(family: Family, asked: Flags) -> Floats:
    points = list(zip(family.batch[~asked], family.samples[~asked], strict=True))
    return ConvergenceModel().fit(points).predict(family.batch[asked].astype(int)).p50


def step_seconds(family: Family, asked: Flags) -> Floats:
    """Work in proportion to the samples per accelerator, and a fixed part; relative errors, no term below zero."""
    measured = 60 * family.minutes * family.batch / family.samples
    terms = np.stack((family.batch / family.accelerators, np.ones_like(family.batch)), axis=1)
    weights, _ = nnls(terms[~asked] / measured[~asked, None], np.ones(int((~asked).sum())))
    return terms[asked] @ weights


def forest(families: list[Family], asked: list[Family]) -> list[Floats]:
    """Log minutes from log accelerators, log batch and the numbered names; whole cluster sizes are held out."""
    parts = zip(*(family.name for family in families), strict=True)
    numbers = [{part: i for i, part in enumerate(sorted(set(column)))} for column in parts]
    features = np.vstack(
        [
            [np.log(size), np.log(batch), *(number[part] for number, part in zip(numbers, family.name, strict=True))]
            for family in families
            for size, batch in zip(family.accelerators, family.batch, strict=True)
        ]
    )
    target = np.log(np.concatenate([family.minutes for family in families]))
    sizes = [(family.name, size) for family in families for size in family.accelerators]
    order = np.random.default_rng(0).permutation(len(set(sizes)))
    fold_by_size = dict(zip(sorted(set(sizes)), order % FOLDS, strict=True))
    fold = np.array([fold_by_size[size] for size in sizes])
    minutes = np.empty(len(target))
    for i in range(FOLDS):
        model = RandomForestRegressor(n_estimators=100, random_state=0).fit(features[fold != i], target[fold != i])
        minutes[fold == i] = np.exp(model.predict(features[fold == i]))
    owner = np.repeat(np.arange(len(families)), [len(family.minutes) for family in families])
    return [minutes[owner == families.index(family)] for family in asked]


def mean_of_means(by_benchmark: dict[str, list[float]]) -> float:
    return statistics.fmean(statistics.fmean(values) for values in by_benchmark.values())


def as_markdown(errors: dict[str, dict[str, list[float]]], families: int) -> str:
    lines = [f"| benchmark | submissions | {' | '.join(MODELS)} |", "|---|--:|" + "--:|" * len(MODELS)]
    for benchmark, values in sorted(errors["scav"].items()):
        cells = " | ".join(f"{statistics.fmean(errors[model][benchmark]):.1f}" for model in MODELS)
        lines.append(f"| {benchmark} | {len(values)} | {cells} |")
    means = " | ".join(f"{mean_of_means(errors[model]):.1f}" for model in MODELS)
    lines.append(f"| **mean** | {sum(map(len, errors['scav'].values()))} | {means} |")
    return "\n".join([*lines, "", f"Mean absolute percentage error of minutes, {families} families."])


if __name__ == "__main__":
    main()
