"""How what was read becomes what a plan follows from: what cannot be used is left out, and said."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import Field

from planner.contract import Contract
from planner.inputs.catalog.tables import Catalog
from planner.inputs.contradictions import contradictions
from planner.inputs.earlier_jobs import EarlierJob, earlier_job
from planner.inputs.job.parse import JobFile
from planner.inputs.measured_job import other_models, software_ages, with_measured_sizes
from planner.inputs.measured_noise import MeasuredNoise, measured_noise
from planner.inputs.measurements import Measurement, MeasurementFile, usable
from planner.inputs.observations import Observed
from planner.inputs.runs import changed_since, of_newest_runs, older_runs
from planner.inputs.traces import Recording

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
T = TypeVar("T")
# Of spot capacity, by instance type and zone ID: every tick of it, or what `scav spot record` noted.
Recordings = Mapping[tuple[str, str], Recording | Observed]


class Provenance(Contract):
    """What the plan follows from; when one of these changes, it is stale."""

    job_sha256: Sha256
    measurements_sha256: Sha256 | None
    history_sha256: Sha256 | None = Field(default=None, description="measurements of other jobs")
    spot_history_sha256: Sha256 | None = Field(default=None, description="recordings of spot capacity")
    catalog_sha256: Sha256
    catalog: str = Field(description="name of the snapshot")
    catalog_date: datetime.date


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan follows from, the hashes that name it, and what its user should be told."""

    job_file: JobFile
    catalog: Catalog
    measurements: tuple[Measurement, ...]
    provenance: Provenance
    measured_noise: MeasuredNoise | None = None
    history: tuple[EarlierJob, ...] = ()
    recordings: Recordings = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Earlier(NamedTuple):
    """Another job, as it was read."""

    name: str  # of its folder
    job_file: JobFile | None
    rows: tuple[Measurement, ...]


class Snapshot(NamedTuple):
    """A catalogue under the name that a plan shows."""

    catalog: Catalog
    name: str
    sha256: str


class Hashed(NamedTuple, Generic[T]):
    """Something that was read, with the hash of its text; None where there was nothing to read."""

    content: T
    sha256: str | None = None


def plan_inputs(
    job_file: JobFile,
    snapshot: Snapshot,
    measurements: Hashed[MeasurementFile],
    *,
    history: Hashed[Sequence[Earlier]],
    recordings: Hashed[Recordings],
    job_sha256: str,
    script_sha256: str | None = None,
) -> PlanInputs:
    """Measurements of other machines and precisions say nothing about this job; recordings of unknown zones neither.

    `script_sha256` is of the job's script as it is now, if that is known. Raises InputError where values of the job
    file cannot all be true.
    """
    catalog, precision = snapshot.catalog, job_file.job.workload.precision
    measured = of_newest_runs(measurements.content.rows)
    known = usable(measured, catalog, precision, has_shape=job_file.job.workload.transformer is not None)
    noise = None if job_file.job.workload.convergence.noise_scale else measured_noise(measured)
    doubts = (
        *contradictions(job_file),
        *older_runs(measurements.content.rows),
        *changed_since(measured, script_sha256=script_sha256, image=job_file.job.run.image),
        *known.warnings,
        *other_models(job_file.job.workload, measured),
        *_several_versions(known.rows),
        *(noise.warnings if noise else ()),
    )
    return PlanInputs(
        job_file=with_measured_sizes(job_file, measured),
        catalog=catalog,
        measurements=known.rows,
        provenance=Provenance(
            job_sha256=job_sha256,
            measurements_sha256=measurements.sha256,
            history_sha256=history.sha256,
            spot_history_sha256=recordings.sha256,
            catalog_sha256=snapshot.sha256,
            catalog=snapshot.name,
            catalog_date=catalog.date,
        ),
        measured_noise=noise,
        history=tuple(
            earlier_job(each.name, each.job_file, each.rows, catalog=catalog, precision=precision)
            for each in history.content
        ),
        recordings=recordings.content,
        warnings=(*measurements.content.warnings, *doubts, *_unknown_zones(recordings.content, catalog)),
    )


def _several_versions(rows: Sequence[Measurement]) -> list[str]:
    ages = software_ages(rows)
    return [f"used measurements of several versions, {ages}: the older ones count half"] if ages else []


def _unknown_zones(recordings: Recordings, catalog: Catalog) -> list[str]:
    """Instance types and zones that nothing is sold in: probably a zone's name instead of its ID."""
    sold = {(offer.instance_type, zone) for offer in catalog.offers for zone in offer.spot_usd}
    return [
        f"{recordings[name, zone].place} says nothing: the catalogue has no {name} in zone {zone} "
        "(zone IDs look like use1-az4)"
        for name, zone in sorted(set(recordings) - sold)
    ]
