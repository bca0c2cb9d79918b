"""What a user's earlier transformers say of the next one: the prior of its parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.inputs import Catalog, EarlierJob
from planner.models.sharded_step_time.model import ShardedStepTimeModel
from planner.models.sharded_step_time.posterior import StepRows, fit_posterior, joined_rows
from planner.models.sharded_step_time.prior import POOLED, ShardedPrior, lent


def prior_of_next_job(jobs: Sequence[EarlierJob], catalog: Catalog) -> tuple[ShardedPrior, tuple[str, ...]]:
    """With what cannot be true of their measurements, in words. Jobs without a shape say nothing."""
    rows: list[StepRows] = []
    warnings: list[str] = []
    for job in jobs:
        if job.workload is not None and job.workload.transformer is not None and job.rows:
            own = ShardedStepTimeModel(
                job.workload,
                catalog,
                training=job.workload.training_or_default,
                lora_rank=job.workload.lora_rank_or_default,
            )
            rows += own.take(job.rows).values()
            warnings += [f"{job.name}: {warning}" for warning in own.warnings_]
    return (prior_after(rows, POOLED) if rows else POOLED), tuple(warnings)


def prior_after(rows: Sequence[StepRows], prior: ShardedPrior) -> ShardedPrior:
    """Other jobs of the same user taken together, and less sure by what differs between jobs."""
    known = fit_posterior(joined_rows(rows), prior)
    return lent(known.theta, np.sqrt(np.diag(known.covariance)), prior, known.noise_sd)
