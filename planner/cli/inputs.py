"""What a plan follows from, read from the job's folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.catalog import Catalog
    from planner.plan import PlanInputs


def load_inputs(
    job: Path,
    overrides: dict[str, Any],
    catalog_file: Path | None,
    *,
    history: Path | None = None,
    spot_history: Path | None = None,
    spot_history_age: str | None = None,
    frozen_to: Path | None = None,
) -> PlanInputs:
    """The job, the catalogue and the measurements beside it; what cannot be used of them is said on stderr."""
    from planner import store
    from planner.measurements import measured_noise_scale, usable
    from planner.plan import PlanInputs
    from planner.plan.schema import Inputs

    job_file = store.load_job(job, overrides)
    folder = Path(job_file.file).parent
    catalog, catalog_name, catalog_sha256 = _catalog(catalog_file, folder, frozen_to)
    measurements, measurements_sha256 = store.load_measurements(folder / store.MEASUREMENTS_FILE)
    known = usable(measurements.rows, catalog, job_file.job.workload.precision)
    warn((*measurements.warnings, *known.warnings))
    age_hours = duration("--spot-history-age", spot_history_age) if spot_history_age else 0.0
    recordings, spot_history_sha256 = store.load_spot_history(spot_history, age_hours=age_hours)
    warn(
        f"{spot_history}/{name}@{zone}.json says nothing: the catalogue has no {name} in zone {zone} "
        "(zone IDs look like use1-az4)"
        for name, zone in recordings.unknown_to(catalog)
    )
    others, history_sha256 = store.load_history(history, but=folder)
    return PlanInputs(
        job_file=job_file,
        catalog=catalog,
        measurements=known.rows,
        provenance=Inputs(
            job_sha256=store.sha256(job_file.job.model_dump_json()),
            measurements_sha256=measurements_sha256,
            history_sha256=history_sha256,
            spot_history_sha256=spot_history_sha256,
            catalog_sha256=catalog_sha256,
            catalog=catalog_name,
            catalog_date=catalog.date,
        ),
        measured_noise=measured_noise_scale(measurements.rows),
        history=tuple(usable(rows, catalog, job_file.job.workload.precision).rows for rows in others),
        spot_history=recordings,
    )


def duration(option: str, text: str) -> float:
    """In hours, from an option."""
    from planner.errors import InputError
    from planner.units import parse_hours

    try:
        return parse_hours(text)
    except ValueError as error:
        raise InputError(str(error), key=option) from None


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def _catalog(file: Path | None, folder: Path, frozen_to: Path | None) -> tuple[Catalog, str, str]:
    from planner import store
    from planner.errors import InputError

    if frozen_to is None or file is not None or not store.exists(frozen_to / store.PLAN_FILE):
        return store.load_catalog(file, beside=folder)
    earlier = store.load_plan(frozen_to).inputs
    found = store.load_catalog_by_hash(earlier.catalog_sha256, beside=folder)
    if found is None:
        message = (
            f"was planned with catalogue {earlier.catalog}, which is gone; plan without --frozen to take a new one"
        )
        raise InputError(message, file=str(frozen_to))
    return found
