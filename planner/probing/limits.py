"""What keeps the predictions from being better, in words: what was not measured, and what does not repeat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.columns import Z95, Quantiles
from planner.inputs import Job
from planner.models import (
    COLD_START,
    JPEG_VCPU_SECONDS,
    RESIDUAL_SD,
    Configurations,
    FittedModels,
    MeasuredRows,
    StepTimeModel,
)
from planner.search import Candidate, configuration_of
from planner.units import counted, format_percent

WORTH_NAMING = 0.05  # below this, repeated probes agree and samples are known
MOST_TYPES = 3


def accuracy_limits(
    job: Job, models: FittedModels, choice: Candidate | None, *, convergence: str, batch: int
) -> list[str]:
    """One line each, the coarsest first. `convergence` names what the samples to the target come from at `batch`."""
    return [
        *_mostly(models, choice),
        *_unprobed(models, choice),
        *(line for name, rows in models.step_time.rows_.items() for line in _range(job, models, name, rows)),
        *_repeats(models.step_time),
        *_feeding(models),
        *_samples(models, convergence, batch),
    ]


def _unprobed(models: FittedModels, choice: Candidate | None) -> Iterator[str]:
    if not models.probed_types:
        factor = np.exp(Z95 * np.sqrt(COLD_START.covariance[0, 0] + RESIDUAL_SD**2))
        yield f"no probe yet: step times are the data sheets', within a factor of {factor:.1f} and more on many nodes"
    elif choice is not None and choice.instance_type not in models.probed_types:
        names = ", ".join(models.probed_types[:MOST_TYPES])
        yield f"no probe of {choice.instance_type}, the present choice: its times follow from {names} and data sheets"


def _mostly(models: FittedModels, choice: Candidate | None) -> Iterator[str]:
    """Which of step time and samples the interval of the choice's hours comes from."""
    if choice is None:
        return
    step = models.step_seconds(configuration_of(choice, models.step_time.catalog))
    samples = models.convergence.predict(np.array([choice.global_batch]))
    spread = [float(np.log(each.p95[0] / each.p05[0])) ** 2 for each in (step, samples)]
    share = spread[0] / (sum(spread) or 1.0)
    doubt = f"{format_percent(max(share, 1 - share))} of the doubt about the present choice's hours is about"
    if share >= 0.5:
        yield f"{doubt} its step time, which probes narrow"
    else:
        yield f"{doubt} samples to the target, which runs at other batch sizes narrow"


def _one(model: StepTimeModel, name: str, nodes: int, gpu_batch: int) -> Configurations:
    return Configurations.of(model.catalog, model.catalog.instance_type_by_name[name], nodes=nodes, gpu_batch=gpu_batch)


def _range(job: Job, models: FittedModels, name: str, rows: MeasuredRows) -> Iterator[str]:
    most, largest = int(rows.placements.nodes.max()), int(rows.placements.gpu_batch.max())
    allowed = job.constraints.nodes.high
    if most < allowed:
        source = "is from the network's data sheet" if most == 1 else "follows from fewer"
        yield f"no probe of {name} with more than {counted(most, 'node')}: time on {allowed} {source}"
    twice = _one(models.step_time, name, 1, 2 * largest)
    if twice.global_batch[0] <= job.workload.global_batch.high and models.memory.fits(twice)[0]:
        yield f"no probe of {name} with more than {largest} samples per GPU, though {2 * largest} would fit"


def _repeats(model: StepTimeModel) -> Iterator[str]:
    for name, rows in model.rows_.items():
        spread = Z95 * float(np.sqrt(rows.repeat_variance))
        if spread > WORTH_NAMING:
            yield f"probes of {name} repeat only within {format_percent(spread)}: no prediction there is closer"


def _feeding(models: FittedModels) -> Iterator[str]:
    if models.feeding.from_table:
        factor = np.exp(Z95 * JPEG_VCPU_SECONDS.log_sd)
        yield f"no probe with a data loader yet: decoding is a table's, within a factor of {factor:.1f}"


def _samples(models: FittedModels, convergence: str, batch: int) -> Iterator[str]:
    samples = models.convergence.predict(np.array([batch])).rows()[0]
    if samples.p95 / samples.p50 - 1 > WORTH_NAMING:
        yield f"samples to the target at batch {batch:,}, {convergence}: {_interval_words(samples)}"


def _interval_words(value: Quantiles) -> str:
    """`-30 % to +60 %` around the middle."""
    less, more = 1 - value.p05 / value.p50, value.p95 / value.p50 - 1
    return f"-{format_percent(less)} to +{format_percent(more)}"
