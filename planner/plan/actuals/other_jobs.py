"""Other jobs beside one, most alike first: what `--history` adds to its predictions."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import one_line
from planner.inputs import EarlierJob, Workload, newest_release
from planner.models import likeness
from planner.plan.review.lines import table

_HEADING = ("job", "measurements", "likeness", "releases ago", "instance types")
_LONGEST_NAME = 24
_MOST_TYPES = 4


def other_jobs_text(workload: Workload, jobs: Sequence[EarlierJob]) -> list[str]:
    if not jobs:
        return ["No other job was measured in this folder."]
    newest = max((release for job in jobs if (release := newest_release(job.rows)) is not None), default=None)
    ordered = sorted(jobs, key=lambda job: (-(_likeness(workload, job) or 0.0), job.name))
    lines = table([_HEADING, *(_row(workload, job, newest) for job in ordered)], "<>>><")
    lines.append(
        "Likeness is how much of another job's pace should hold for this one. All of them say how fast machines and "
        "networks are beside their data sheets."
    )
    if workload.transformer is not None:
        lines.append("A job with a transformer's shape learns from others with one, whatever their size.")
    return lines


def _row(workload: Workload, job: EarlierJob, newest: float | None) -> tuple[str, ...]:
    alike, release = _likeness(workload, job), newest_release(job.rows)
    ago = "" if newest is None or release is None else f"{newest - release:.0f}"
    shown = "no job file" if alike is None else f"{alike:.2f}"
    return one_line(job.name, _LONGEST_NAME), str(len(job.rows)), shown, ago, _types(job)


def _likeness(workload: Workload, job: EarlierJob) -> float | None:
    return None if job.workload is None else likeness(workload, job.workload)


def _types(job: EarlierJob) -> str:
    names = sorted({row.instance_type for row in job.rows})
    more = len(names) - _MOST_TYPES
    return ", ".join(names[:_MOST_TYPES]) + (f" and {more} more" if more > 0 else "")
