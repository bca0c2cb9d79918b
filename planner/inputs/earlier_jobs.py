"""Other jobs that were measured, as far as they may say something of a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.inputs.catalog.tables import Catalog, Precision
from planner.inputs.job.parse import JobFile
from planner.inputs.job.workload import Workload
from planner.inputs.measured_job import with_measured_sizes
from planner.inputs.measurements import Measurement, usable
from planner.inputs.runs import of_newest_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierJob:
    name: str  # of its folder
    rows: tuple[Measurement, ...]
    workload: Workload | None = None  # None where no job file lies beside the measurements


def earlier_job(
    name: str, job_file: JobFile | None, rows: Sequence[Measurement], *, catalog: Catalog, precision: Precision
) -> EarlierJob:
    """`precision`: of the new job, at which measurements without a job file are used."""
    newest = of_newest_runs(rows)
    if job_file is None:
        return EarlierJob(name=name, rows=usable(newest, catalog, precision).rows)
    workload = with_measured_sizes(job_file, newest).job.workload
    known = usable(newest, catalog, workload.precision, has_shape=workload.transformer is not None).rows
    return EarlierJob(name=name, rows=known, workload=workload)
