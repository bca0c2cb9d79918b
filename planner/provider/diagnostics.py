"""What is wrong, as Terraform shows it: beside the line of the attribute that says it."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from planner.errors import GuardrailExceeded, InputError, NoFeasiblePlan, ScavError, one_line, printable_lines
from planner.provider.schema import FILES, JOB, OVERRIDES
from planner.provider.wire import ERROR, MESSAGES, WARNING


class BeyondLimit(GuardrailExceeded):
    def __init__(self, attribute: str, message: str):
        self.attribute = attribute
        super().__init__(message)


def diagnostic(summary: str, detail: str = "", *, attribute: str = "", severity: int = ERROR) -> Any:
    path = MESSAGES["Path"](steps=[MESSAGES["Step"](attribute_name=attribute)]) if attribute else None
    return MESSAGES["Diagnostic"](
        severity=severity, summary=one_line(summary), detail=printable_lines(detail), attribute=path
    )


def warned(warnings: Iterable[str]) -> list[Any]:
    return [diagnostic("scav", warning, severity=WARNING) for warning in warnings]


def diagnosed(error: Exception, said: Mapping[str, Any] | None) -> Any:
    """`said`: the attributes, where the request has any."""
    match error:
        case BeyondLimit():
            return diagnostic("The plan is beyond a limit", str(error), attribute=error.attribute)
        case InputError():
            return _of_input(error, said or {})
        case NoFeasiblePlan():
            return diagnostic("No cluster keeps the job's limits", str(error), attribute=JOB if said else "")
        case ScavError():
            return diagnostic("scav cannot plan this", str(error))
    traceback.print_exception(error, file=sys.stderr)  # Terraform's log
    return diagnostic("scav failed", f"A bug of scav: {type(error).__name__}: {error}; TF_LOG=debug shows where.")


def _of_input(error: InputError, said: Mapping[str, Any]) -> Any:
    """A key of the job that an attribute replaced is that attribute's; a file is the attribute's that names it."""
    attribute, where = JOB if JOB in said else "", []
    if error.file == "command line":
        parts = re.split(r"[.\[]", error.key or "")
        attribute = next((row.name for row in OVERRIDES if row.name in parts), attribute)
    elif error.file == JOB:
        where = [f"line {error.line}"] if error.line else []
        where += [error.key] if error.key else []
    elif error.file is None and error.key in said:
        attribute = str(error.key)
    elif error.file is not None:
        named = [row.name for row in FILES if said.get(row.name) and error.file.startswith(said[row.name])]
        attribute = named[0] if named else attribute
        where = [error.file if error.line is None else f"{error.file}:{error.line}"]
    return diagnostic("scav cannot use this", ": ".join([*where, error.message]), attribute=attribute)
