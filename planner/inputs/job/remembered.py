"""A command that was given to a probe, in the text of a job file that has none: all else in it stays as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from planner.errors import InputError
from planner.inputs.job.parse import parse_job


def with_command(text: str, command: Sequence[str]) -> str | None:
    """The text with `run.command`; None where it has one already, or where adding it would change anything else."""
    job = parse_job(text, file="").job
    wanted = job.model_copy(update={"run": job.run.model_copy(update={"command": tuple(command)})})
    changed = _inserted(text, written_command(command))
    try:
        return changed if not job.run.command and parse_job(changed, file="").job == wanted else None
    except InputError:
        return None


def written_command(command: Sequence[str]) -> str:
    """`command: ["train.py", "{gpu_batch}"]`, as it may stand in a job file."""
    return f"command: {json.dumps(list(command), ensure_ascii=False)}"


def _inserted(text: str, setting: str) -> str:
    """Into `run`, as its first key, or with a `run` at the end."""
    run = next((value for key, value in _root(text).value if key.value == "run"), None)
    if run is None:
        return f"{text.rstrip()}\n\nrun:\n  {setting}\n"
    at = run.start_mark.index
    if not isinstance(run, yaml.MappingNode):  # `run:` alone
        return f"{text[:at]}\n  {setting}{text[at:]}"
    if run.flow_style:
        return f"{text[: at + 1]}{setting}, {text[at + 1 :]}"
    return f"{text[:at]}{setting}\n{' ' * run.start_mark.column}{text[at:]}"


def _root(text: str) -> yaml.MappingNode:
    """Of a text that `parse_job` has read."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("a job file is a mapping")
    return root
