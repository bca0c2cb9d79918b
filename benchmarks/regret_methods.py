"""Ways to choose a configuration after the probes that scav took: what others would take, or probe instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from regret_data import Problem
from scipy.optimize import nnls
from scipy.special import ndtr
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from step_time_baselines import fitted_form

from planner.models.convergence.model import ConvergenceModel
from planner.probing.next_probe import price_usd
from planner.probing.probe_plan import SECONDS_BESIDE_STEPS, STEPS_PER_BATCH

Floats = NDArray[np.float64]

# Log seconds of every configuration and their standard deviation, from the rows that were measured.
StepModel = Callable[[Problem, Sequence[int]], tuple[Floats, Floats]]

TYPICAL_STEP_SECONDS = 0.5  # before anything is known
FIRST_AT_RANDOM = 3  # CherryPick's


class ProbeLength(NamedTuple):
    """How long a configuration is measured once its cluster runs."""

    steps: int
    seconds: float = 0.0

    def after(self, step_seconds: Floats) -> Floats:
        return self.steps * step_seconds + self.seconds


SHORT = ProbeLength(50)  # ten to warm up, forty to time
AS_SCAV_PROBE = ProbeLength(STEPS_PER_BATCH, SECONDS_BESIDE_STEPS)  # also gradient noise and a checkpoint


class Trial(NamedTuple):
    """What was measured, in order, and what was chosen then."""

    measured: list[int]
    chosen: int


class Task(NamedTuple):
    """A problem with an objective, as long as makes its best configuration cost `job_usd`."""

    problem: Problem
    objective: str
    job_usd: float
    length: ProbeLength = SHORT
    told: float = 1.0

    @property
    def told_usd(self) -> float:
        """What it is thought to cost before anything is measured."""
        return self.told * self.job_usd

    @property
    def scale(self) -> float:
        return self.job_usd / float(self.problem.truth("cost").min())

    def regret(self, trial: Trial) -> float:
        truth = self.problem.truth(self.objective)
        return float(truth[trial.chosen] / truth.min() - 1)

    def probe_share(self, trial: Trial) -> float:
        """Dollars spent on probes over the best job's."""
        seconds = self.length.after(self.problem.column("step_seconds"))
        space = self.problem.space
        spent = [price_usd(space, seconds, trial.measured[:i])[row] for i, row in enumerate(trial.measured)]
        return float(sum(spent)) / self.job_usd


def samples_by_model(problem: Problem) -> Floats:
    return np.asarray(ConvergenceModel().fit(problem.runs).predict(problem.global_batch).p50)


def constant_samples(problem: Problem) -> Floats:
    return np.full(len(problem.iterations), problem.runs[0][1])


def scavenger_samples(problem: Problem) -> Floats:
    """Its law: epochs linear in 1 / sqrt(batch)."""
    batch, samples = np.array(problem.runs).T
    line = np.polyfit(1 / np.sqrt(batch), samples, 1)
    return np.maximum(np.polyval(line, 1 / np.sqrt(problem.global_batch)), 0.1 * samples.min())


def bare_minimum(task: Task, model: StepModel, measured: Sequence[int], samples: Callable[[Problem], Floats]) -> Trial:
    """What the model likes best after these probes, measured or not."""
    log_step, _ = model(task.problem, sorted(measured))
    values = task.problem.values(task.objective, samples(task.problem) / task.problem.global_batch)
    return Trial(list(measured), int(np.argmin(log_step + np.log(values))))


def at_random(task: Task, probes: int, seed: int) -> Trial:
    problem = task.problem
    values = problem.values(task.objective, samples_by_model(problem) / problem.global_batch)
    rows = np.random.default_rng(seed).choice(len(values), probes, replace=False)
    return _best_of(problem, values, rows.tolist())


def cherry_pick(task: Task, probes: int, seed: int) -> Trial:
    """Bayesian optimisation of the objective itself, from a few random configurations."""
    problem = task.problem
    values = problem.values(task.objective, samples_by_model(problem) / problem.global_batch)
    log_value = np.log(values * problem.column("step_seconds"))
    inputs = _inputs(problem)
    inputs = (inputs - inputs.mean(axis=0)) / np.maximum(inputs.std(axis=0), 1e-9)
    measured = np.random.default_rng(seed).choice(len(values), min(FIRST_AT_RANDOM, probes), replace=False).tolist()
    while len(measured) < probes:
        kernel = ConstantKernel() * Matern(np.ones(inputs.shape[1]), (0.1, 30.0), nu=2.5) + WhiteKernel(1e-3)
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(inputs[measured], log_value[measured])
        mean, sd = process.predict(inputs, return_std=True)
        z = (log_value[measured].min() - mean) / np.maximum(sd, 1e-9)
        gain = sd * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
        gain[measured] = -np.inf
        measured.append(int(np.argmax(gain)))
    return _best_of(problem, values, measured)


def _best_of(problem: Problem, values: Floats, measured: list[int]) -> Trial:
    seen = problem.column("step_seconds")[measured] * values[measured]
    return Trial(measured, measured[int(np.argmin(seen))])


def _inputs(problem: Problem) -> Floats:
    names = ("nodes", "workers", "most_per_node", "gpu_batch")
    columns = [np.log2(problem.column(name)) for name in names] + [np.log2(problem.global_batch)]
    return np.stack([*columns, *(problem.node_type == code for code in range(len(problem.groups)))], axis=1)


def forest(problem: Problem, rows: Sequence[int]) -> tuple[Floats, Floats]:
    inputs = _inputs(problem)
    trees = RandomForestRegressor(100, max_features=0.8, random_state=0)
    trees.fit(inputs[list(rows)], np.log(problem.column("step_seconds")[list(rows)]))
    return trees.predict(inputs), np.zeros(len(inputs))


def pollux(problem: Problem, rows: Sequence[int]) -> tuple[Floats, Floats]:
    """Its form on each node type by itself."""
    columns, start = [], 0
    for group in problem.groups:
        fit = np.array([row - start for row in rows if start <= row < start + len(group)], dtype=np.int64)
        columns.append(fitted_form("pollux", group, fit) if len(fit) else np.full(len(group), np.inf))
        start += len(group)
    return np.concatenate(columns), np.zeros(start)


def ernest(problem: Problem, rows: Sequence[int]) -> tuple[Floats, Floats]:
    """Fixed, data over machines, and terms with the logarithm and the number of machines; no weight below zero."""
    workers, batch = problem.column("workers").astype(float), problem.column("gpu_batch").astype(float)
    return _non_negative(problem, rows, np.stack((np.ones_like(batch), batch, np.log(workers), workers), axis=1))


def scavenger(problem: Problem, rows: Sequence[int]) -> tuple[Floats, Floats]:
    """Compute linear in the local batch, synchronisation linear in the workers."""
    workers, batch = problem.column("workers").astype(float), problem.column("gpu_batch").astype(float)
    return _non_negative(problem, rows, np.stack((np.ones_like(batch), batch, workers), axis=1))


def _non_negative(problem: Problem, rows: Sequence[int], terms: Floats) -> tuple[Floats, Floats]:
    steps, node_type = problem.column("step_seconds"), problem.node_type
    log_step = np.full(len(steps), np.inf)
    for code in range(len(problem.groups)):
        fit = [row for row in rows if node_type[row] == code]
        if fit:
            scale = terms[fit].max(axis=0)
            weights, _ = nnls(terms[fit] / scale / steps[fit, None], np.ones(len(fit)))
            own = node_type == code
            log_step[own] = np.log(np.maximum(terms[own] / scale @ weights, 1e-9))
    return log_step, np.zeros(len(steps))
