"""Other jobs' measurements, fitted to what a new job can learn from them."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs import Catalog, EarlierJob, newest_release
from planner.models.step_time.earlier_jobs import History, KnownJob, known_job
from planner.models.step_time.model import StepTimeModel, measured_by_type
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.prior import USUAL

FEWEST_HISTORY_ROWS = 4  # a job with fewer only repeats the prior


def fit_history(jobs: Sequence[EarlierJob], catalog: Catalog) -> History:
    """What `StepTimeModel` learns from other jobs. One whose workload nobody wrote down says shapes only."""
    known: list[KnownJob] = []
    shapes: dict[str, list[Posterior]] = {}
    warnings: list[str] = []
    for job in jobs:
        rows = measured_by_type(job.rows)
        if job.workload is not None and job.rows:
            own = StepTimeModel(job.workload, catalog)
            own.take(job.rows)
            rows = own.rows_
            warnings += [f"{job.name}: {warning}" for warning in own.warnings_]
            known.append(known_job(job.workload, newest_release(job.rows), sorted(rows), own.typed_rows()))
        for name, each in rows.items():
            if len(each) >= FEWEST_HISTORY_ROWS:
                shapes.setdefault(name, []).append(fit_posterior(each, USUAL))
    return History(tuple(known), shapes, tuple(warnings))
