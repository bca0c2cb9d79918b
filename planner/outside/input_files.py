"""Everything that a plan follows from, read from the job's folder and from what the options name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.inputs import Hashed, JobFile, PlanInputs, Snapshot, plan_inputs
from planner.outside import store
from planner.outside.what_ran import script_sha256


def load_plan_inputs(
    job: Path,
    overrides: dict[str, Any],
    catalog_file: Path | None,
    *,
    history: Path | None = None,
    spot_history: Path | None = None,
    spot_history_age_hours: float = 0.0,
    frozen_to: Path | None = None,
) -> PlanInputs:
    """`history`: a folder of other jobs. `frozen_to`: the workspace whose catalogue is to be kept."""
    job_file = store.load_job(job, overrides)
    return load_inputs_of(
        job_file,
        catalog_file,
        history=history,
        spot_history=spot_history,
        spot_history_age_hours=spot_history_age_hours,
        frozen_to=frozen_to,
    )


def load_inputs_of(
    job_file: JobFile,
    catalog_file: Path | None,
    *,
    measurements_file: Path | None = None,
    history: Path | None = None,
    spot_history: Path | None = None,
    spot_history_age_hours: float = 0.0,
    frozen_to: Path | None = None,
) -> PlanInputs:
    """What is not named is looked for in the folder of the job's file."""
    folder = Path(job_file.file).parent
    measurements = Hashed(*store.load_measurements(measurements_file or folder / store.MEASUREMENTS_FILE))
    knows_its_script = any(row.script_sha256 for row in measurements.content.rows)
    return plan_inputs(
        job_file,
        _snapshot(catalog_file, folder, frozen_to),
        measurements,
        history=Hashed(*store.load_history(history, but=folder)),
        recordings=Hashed(*store.load_recordings(_recorded(spot_history, folder), age_hours=spot_history_age_hours)),
        job_sha256=job_sha256(job_file),
        script_sha256=script_sha256(folder, job_file.job.run.command) if knows_its_script else None,
    )


def job_sha256(job_file: JobFile) -> str:
    """Of what the file means: neither of its comments nor of its spaces."""
    return store.sha256(job_file.job.model_dump_json())


def _recorded(named: Path | None, folder: Path) -> Path | None:
    """What `scav spot record` wrote beside the job is used unless another folder is named."""
    beside = folder / store.SPOT_HISTORY_FOLDER
    return beside if named is None and beside.is_dir() and any(beside.iterdir()) else named


def _snapshot(file: Path | None, folder: Path, frozen_to: Path | None) -> Snapshot:
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
