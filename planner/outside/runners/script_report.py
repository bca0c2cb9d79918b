"""Reads what a script that ran here, inspected or traced, left as its report; says in one line why there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from planner.contract import Contract, first_fault
from planner.errors import ScavError, ScriptFailed
from planner.outside.runners.local import script_failed, tail_of

Report = TypeVar("Report", bound=Contract)


def script_report(
    doing: str, done: str, contract: type[Report], *, output: Path, code: int | None, log: Path, late: str
) -> Report:
    """`doing` and `done` name the run (inspecting, inspected); `late` says what to do where its time was over."""
    if code is None:
        raise ScriptFailed(f"{doing}: {late}", said=tail_of(log))
    if not output.exists():
        raise script_failed(doing, code, log)
    record = json.loads(output.read_text(encoding="utf-8"))
    if record["outcome"] != done:
        raise ScriptFailed(f"{doing}: {record['reason']}", said=tail_of(log))
    try:
        return contract.model_validate(record["report"])
    except ValidationError as error:
        fault = first_fault(error, contract)
        raise ScavError(f"{doing}: the report of the script cannot be: {fault.key}: {fault.message}") from None
