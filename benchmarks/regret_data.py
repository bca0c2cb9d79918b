"""Jobs whose every configuration was measured, so that the best one is known: data/README.md, "Regret".

Step time of each measured configuration on three rentable node types, times the iterations that its global batch took
to the target. A planner sees the configurations, the prices, the step times that it probes, and three batch sizes of
convergence.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from step_time_data import Group, load_groups

from planner.probing.next_probe import ProbeSpace

Floats = NDArray[np.float64]

# The node types that can be rented, and what an hour of one costs.
HOURLY_USD = {"aws": 3.912, "azure": 22.032, "dgx-ext": 32.773}
STARTUP_SECONDS = 180.0  # of such a cluster; as short for every rule that is compared
TARGET_SLACK = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One application. Row i of the groups laid end to end is configuration i."""

    app: str
    groups: tuple[Group, ...]  # one per node type, only configurations whose global batch was validated
    iterations: Floats
    runs: tuple[tuple[float, float], ...]  # batch, samples to the target: what a planner is told of convergence

    def column(self, name: str) -> NDArray:
        return np.concatenate([getattr(group, name) for group in self.groups])

    @property
    def node_type(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])

    @property
    def global_batch(self) -> NDArray[np.int64]:
        return self.column("workers") * self.column("gpu_batch")

    @property
    def cluster_usd(self) -> Floats:
        """Dollars an hour."""
        prices = np.array([HOURLY_USD[group.cluster] for group in self.groups])
        return prices[self.node_type] * self.column("nodes")

    @property
    def space(self) -> ProbeSpace:
        return ProbeSpace(
            instance_type=self.node_type,
            nodes=self.column("nodes"),
            gpus=self.column("workers"),
            gpu_batch=self.column("gpu_batch"),
            hourly_usd=self.cluster_usd,
            measurable=np.ones(len(self.iterations), dtype=bool),
            startup_seconds=STARTUP_SECONDS,
        )

    def values(self, objective: str, iterations: Floats | None = None) -> Floats:
        """Dollars or hours of the whole job per second of step time."""
        hours = (self.iterations if iterations is None else iterations) / 3600
        return hours * self.cluster_usd if objective == "cost" else hours

    def truth(self, objective: str) -> Floats:
        return self.values(objective) * self.column("step_seconds")


def load_problems(data: Path) -> list[Problem]:
    """Every application that was measured on one of these node types and validated at two batch sizes or more."""
    by_app: dict[str, list[Group]] = defaultdict(list)
    folder = data / "sia-sosp23"
    for group in load_groups(folder):
        if group.cluster in HOURLY_USD:
            by_app[group.app].append(group)
    found = ((app, groups, iterations_to_target(folder / app)) for app, groups in sorted(by_app.items()))
    return [_problem(app, groups, iterations) for app, groups, iterations in found if len(iterations) > 1]


def _problem(app: str, groups: list[Group], iterations: dict[int, float]) -> Problem:
    sizes = np.array(sorted(iterations))
    kept = tuple(_within(group, int(sizes[0]), int(sizes[-1])) for group in groups)
    batches = np.concatenate([group.workers * group.gpu_batch for group in kept])
    told = sorted({int(sizes[0]), int(sizes[len(sizes) // 2]), int(sizes[-1])})
    return Problem(
        app=app,
        groups=kept,
        iterations=np.exp(np.interp(np.log(batches), np.log(sizes), np.log([iterations[size] for size in sizes]))),
        runs=tuple((float(size), float(size * iterations[size])) for size in told),
    )


def _within(group: Group, smallest: int, largest: int) -> Group:
    batch = group.workers * group.gpu_batch
    return group.at((batch >= smallest) & (batch <= largest))


def iterations_to_target(folder: Path) -> dict[int, float]:
    """By batch size: optimizer steps to the worst of their best metrics, less half a percent."""
    curves = {int(file.stem.partition("-")[2]): _read_curve(file) for file in sorted(folder.glob("validation-*.csv"))}
    if not curves:
        return {}
    # Error rates fall while training, accuracies rise.
    falls = sum(metric[-1] < metric[0] for _, metric in curves.values()) > len(curves) / 2
    sign = -1.0 if falls else 1.0
    worst = min(float(np.nanmax(sign * metric)) for _, metric in curves.values())
    target = worst - TARGET_SLACK * abs(worst)
    return {
        size: float(iteration[int(np.argmax(sign * metric >= target))]) for size, (iteration, metric) in curves.items()
    }


def _read_curve(file: Path) -> tuple[Floats, Floats]:
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return np.array([float(row["iteration"]) for row in rows]), np.array([float(row["metric"]) for row in rows])
