"""The ledger of finished jobs: one JSON object per line, and how often 90 % intervals held over all of them."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from planner.contract import Contract, first_fault
from planner.errors import InputError
from planner.inputs import is_json
from planner.plan.actuals.comparison import Actuals, Compared, Coverage, Name
from planner.plan.schema import Plan

_ID_LENGTH = 8
_ABSURD_FACTOR = 30.0


class Outcome(Contract):
    """A finished job: what was planned, and what it was."""

    schema_version: Literal[1] = 1
    date: datetime.date
    job: str
    run_id: str
    scav_version: str
    instance_type: str
    node_count: int
    global_batch: int
    source_sha256: str
    compared: tuple[Compared, ...]

    @property
    def id(self) -> str:
        """Of this run and no other, for a person to type."""
        return hashlib.sha256(f"{self.run_id} {self.source_sha256}".encode()).hexdigest()[:_ID_LENGTH]


def outcome(plan: Plan, actuals: Actuals, *, source_sha256: str, date: datetime.date) -> Outcome:
    return Outcome(
        date=date,
        job=plan.job,
        run_id=plan.run_id,
        scav_version=plan.scav_version,
        instance_type=plan.choice.instance_type,
        node_count=plan.choice.node_count,
        global_batch=plan.choice.global_batch,
        source_sha256=source_sha256,
        compared=actuals.compared,
    )


def is_known(new: Outcome, outcomes: Sequence[Outcome]) -> bool:
    """The same log of the same plan, held against it before."""
    return any((old.run_id, old.source_sha256) == (new.run_id, new.source_sha256) for old in outcomes)


def merged(known: Sequence[Outcome], more: Sequence[Outcome]) -> list[Outcome]:
    """The known ones first, then each other run once, oldest first."""
    whole = [*known]
    for job in sorted(more, key=lambda job: (job.date, job.job, job.id)):
        if not is_known(job, whole):
            whole.append(job)
    return whole


def ended_before(outcomes: Sequence[Outcome], day: datetime.date) -> list[Outcome]:
    return [job for job in outcomes if job.date < day]


def oddities(job: Outcome) -> list[str]:
    """Figures that no error of a plan explains, in words; other units do."""
    found = []
    for row in job.compared:
        factor = row.actual / row.predicted.p50 if row.predicted.p50 > 0 else 1.0
        if factor <= 0 or max(factor, 1 / factor) < _ABSURD_FACTOR:
            continue
        unit = ", as milliseconds for seconds would be" if row.name == "step_seconds" and 300 < factor < 3000 else ""
        found.append(
            f"{row.name} is {factor:.3g} times what was planned{unit}: check it, or scav history prune {job.id}"
        )
    return found


def parse_outcomes(text: str, *, file: str) -> list[Outcome]:
    """A torn last line, which a killed process leaves behind, is none."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == len(lines) and not is_json(line)):
            continue
        try:
            found.append(Outcome.model_validate_json(line))
        except ValidationError as error:
            fault = first_fault(error, Outcome)
            raise InputError(fault.message, file=file, line=number, key=fault.key) from None
    return found


def coverage(outcomes: Sequence[Outcome]) -> Coverage:
    rows: dict[Name, list[bool]] = {}
    for job in outcomes:
        for row in job.compared:
            if row.held is not None:
                rows.setdefault(row.name, []).append(row.held)
    return Coverage(
        jobs=len(outcomes),
        held=sum(sum(held) for held in rows.values()),
        figures=sum(len(held) for held in rows.values()),
        by_figure={name: (sum(held), len(held)) for name, held in rows.items()},
    )
