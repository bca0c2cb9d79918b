"""How what was read becomes what a plan follows from: what cannot be used is left out, and said."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import Field

from planner.contract import Contract
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.parse import JobFile
from planner.inputs.measured_job import other_models, software_ages, with_measured_sizes
from planner.inputs.measurements import Measurement, MeasurementFile, measured_noise_scale, usable
from planner.inputs.traces import Recording

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
T = TypeVar("T")
Recordings = Mapping[tuple[str, str], Recording]  # of spot capacity, by instance type and zone ID


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
    measured_noise: float | None = None
    history: tuple[tuple[Measurement, ...], ...] = ()
    recordings: Recordings = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


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
    history: Hashed[Sequence[Sequence[Measurement]]],
    recordings: Hashed[Recordings],
    job_sha256: str,
) -> PlanInputs:
    """Measurements of other machines and precisions say nothing about this job; recordings of unknown zones neither."""
    catalog, precision = snapshot.catalog, job_file.job.workload.precision
    measured = measurements.content.rows
    known = usable(measured, catalog, precision)
    doubts = (*known.warnings, *other_models(job_file.job.workload, measured), *_several_versions(known.rows))
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
        measured_noise=measured_noise_scale(measured),
        history=tuple(usable(rows, catalog, precision).rows for rows in history.content),
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
        f"{recordings[name, zone].trace.place} says nothing: the catalogue has no {name} in zone {zone} "
        "(zone IDs look like use1-az4)"
        for name, zone in sorted(set(recordings) - sold)
    ]
