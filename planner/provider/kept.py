"""Whether a decision in Terraform's state still holds, and keeps the limits that it is given.

It is kept until something that it was told is another: the job, what replaces parts of it, a file that is named, or a
keeper. A new version of scav, or newer prices beside main.tf, change nothing that runs. Nothing heavy is imported where
nothing changed, which is most plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.provider.diagnostics import BeyondLimit
from planner.provider.schema import FILES, JOB, LIMITS, OVERRIDES
from planner.units import format_hours, format_usd

Attributes = Mapping[str, Any]


def is_kept(said: Attributes, before: Attributes, followed: Mapping[str, str | None]) -> bool:
    """It was told the same as `before`, or a job and files that mean what it `followed` from, by their hashes."""
    same_words = all(said[name] == before[name] for name in (JOB, *(row.name for row in OVERRIDES)))
    return (
        said["keepers"] == before["keepers"]
        and all(_is_same_file(row.name, said[row.name], before[row.name], followed) for row in FILES)
        and (same_words or _job_sha256(said) == followed.get(JOB))
    )


def _job_sha256(said: Attributes) -> str:
    from planner.outside.input_files import job_sha256
    from planner.provider.decision import parsed_job

    return job_sha256(parsed_job(said))


def _is_same_file(name: str, path: str | None, before: str | None, followed: Mapping[str, str | None]) -> bool:
    if path is None:
        return before is None
    from planner.outside import store

    if name == "history":
        sha256 = store.load_history(Path(path), but=Path())[1]
    elif name == "spot_history":
        sha256 = store.load_recordings(Path(path), age_hours=0.0)[1]
    else:
        sha256 = store.sha256(store.load_text(Path(path)))
    return sha256 == followed.get(name)


def refuse_beyond_limits(said: Attributes, computed: Attributes) -> None:
    values = {"max_usd_p95": "usd_p95", "max_hours_p95": "hours_p95", "max_usd": "usd_max"}
    for row in LIMITS:
        limit, value = said[row.name], float(computed[values[row.name]])
        if limit is not None and value > float(limit):
            shown = format_hours if "hours" in row.name else format_usd
            raise BeyondLimit(row.name, f"{values[row.name]} is {shown(value)}, above {shown(float(limit))}")
