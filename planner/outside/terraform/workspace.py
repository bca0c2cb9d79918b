"""One Terraform workspace: init, plan to a file, show it, apply that file and no other, destroy."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_terraform import IsFlagged
from python_terraform import Terraform as CommandBuilder

from planner.errors import InputError, ScavError, TerraformFailed, TerraformInterrupted
from planner.outside.terraform.events import (
    Diagnostic,
    Event,
    Progress,
    change_counts,
    diagnostics,
    parse_event,
    shown_progress,
    texts,
)
from planner.outside.terraform.executable import Executable, find_executable
from planner.outside.terraform.process import Ended, run_to_its_end

NO_CHANGES, CHANGES = 0, 2
AUTOMATION = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What will happen, in a file that only `apply` of the same workspace understands. It may hold secrets."""

    path: Path
    has_changes: bool
    added: int
    changed: int
    removed: int
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    value: Any
    sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    added: int
    changed: int
    removed: int
    warnings: tuple[Diagnostic, ...]


class Workspace:
    """A folder of `.tf` files and the program that runs them.

    `watch` is told about progress; by default it is drawn on stderr if that is a terminal.
    """

    def __init__(
        self,
        folder: Path,
        *,
        executable: Executable | None = None,
        environment: Mapping[str, str] | None = None,
        watch: Callable[[Progress], None] | None = None,
        lock_timeout: str = "0s",
        interruptible: bool = True,
    ):
        if not folder.is_dir():
            raise InputError("no such folder", file=str(folder))
        self.folder = folder
        self.executable = executable or find_executable()
        self._environment = {**(os.environ if environment is None else environment), **AUTOMATION}
        self._watch = watch
        self._lock_timeout = lock_timeout  # how long to wait for another Terraform that is at work here
        self._interruptible = interruptible  # else a signal is raised when the command has ended
        # It only writes command lines. A state file that does not exist keeps it from reading the real one.
        self._builder = CommandBuilder(working_dir=str(folder), state=".terraform/none")

    def init(self, *, backend: bool = True, upgrade: bool = False) -> None:
        """Never `-reconfigure` or `-migrate-state`: where the state is, is for a person to change."""
        self._run("init", "could not prepare the workspace", backend=backend, upgrade=upgrade, no_color=IsFlagged)

    def plan(self, file: Path, *, destroy: bool = False, only: Sequence[str] = ()) -> PlanFile:
        """`only` these addresses and what they need, instead of everything."""
        path, options = file.resolve(), {"target": list(only)} if only else {}
        try:
            ended, events = self._stream(
                "plan", "could not plan", destroy=destroy, out=str(path), detailed_exitcode=IsFlagged, **options
            )
        except ScavError:
            path.unlink(missing_ok=True)  # Terraform leaves the plan of a failure behind
            raise
        counts = change_counts(events, "plan")
        return PlanFile(path=path, has_changes=ended.return_code == CHANGES, warnings=diagnostics(events), **counts)

    def show(self, plan: PlanFile | Path) -> dict[str, Any]:
        """The plan as JSON: what `scav check`, policies and cost tools read."""
        path = plan.path if isinstance(plan, PlanFile) else plan.resolve()
        ended = self._run("show", "could not read the plan", str(path), json=IsFlagged, takes_input=False)
        return self._parsed(ended, "show")

    def apply(self, plan: PlanFile) -> Applied:
        """This plan and nothing else: Terraform refuses it when the state has moved on since."""
        _, events = self._stream("apply", "could not apply the plan", str(plan.path))
        return Applied(warnings=diagnostics(events), **change_counts(events, "apply"))

    def destroy(self) -> Applied:
        _, events = self._stream("destroy", "could not destroy everything", auto_approve=IsFlagged)
        return Applied(warnings=diagnostics(events), **change_counts(events, "destroy"))

    def push_state(self, file: Path) -> None:
        """Makes this file the state, if it is of the same lineage and newer."""
        self._run("state push", "could not restore its state", str(file.resolve()), takes_input=False)

    def untaint(self, address: str) -> None:
        """What Terraform marked to be made anew, because its creation did not end in order, is kept as it is."""
        self._run("untaint", "could not keep what exists", address, takes_input=False, no_color=IsFlagged)

    def outputs(self) -> dict[str, Output]:
        ended = self._run("output", "could not read the outputs", json=IsFlagged, takes_input=False)
        found = self._parsed(ended, "output")
        return {
            name: Output(value=item["value"], sensitive=bool(item.get("sensitive"))) for name, item in found.items()
        }

    def _stream(self, command: str, failure: str, *arguments: str, **options: Any) -> tuple[Ended, list[Event]]:
        events: list[Event] = []
        with shown_progress(f"terraform {command}") as draw:
            watch, now = self._watch or draw, Progress()

            def on_line(line: str) -> None:
                nonlocal now
                events.append(parse_event(line))
                if (after := now.after(events[-1])) != now:
                    now = after
                    with contextlib.suppress(OSError):  # a terminal that was closed is no reason to stop half way
                        watch(now)

            expected = (NO_CHANGES, CHANGES) if command == "plan" else (0,)
            ended = self._execute(
                command, *arguments, on_line=on_line, json=IsFlagged, lock_timeout=self._lock_timeout, **options
            )
        message = _errors(diagnostics(events)) or "\n".join(texts(events))
        self._raise_unless_done(ended, expected, failure, "\n".join(part for part in (message, ended.stderr) if part))
        return ended, events

    def _run(self, command: str, failure: str, *arguments: str, **options: Any) -> Ended:
        ended = self._execute(command, *arguments, on_line=lambda _line: None, **options)
        self._raise_unless_done(ended, (0,), failure, _plain(ended))
        return ended

    def _execute(
        self,
        command: str,
        *arguments: str,
        on_line: Callable[[str], None],
        takes_input: bool = True,
        **options: Any,
    ) -> Ended:
        if takes_input:
            options["input"] = False
        _program, *words = self._builder.generate_cmd_string(command, *arguments, **options)
        try:
            return run_to_its_end(
                [*self.executable.command, *words],
                folder=self.folder,
                environment=self._environment,
                on_line=on_line,
                say=_say,
                interruptible=self._interruptible,
            )
        except OSError as error:
            raise ScavError(f"cannot run {self.executable.command[0]}: {error.strerror}") from None

    def _raise_unless_done(self, ended: Ended, expected: tuple[int, ...], failure: str, message: str) -> None:
        done = ended.return_code in expected
        if ended.return_code < 0:
            raise self._failed(f"was ended by signal {-ended.return_code} (it {failure})", message)
        if ended.interrupted:
            sentence = f"interrupted; Terraform ended in order and saved its state in {self.folder}: run it again"
            raise TerraformInterrupted(sentence, "" if done else message.strip())
        if not done:
            raise self._failed(failure, message)

    def _failed(self, failure: str, message: str) -> TerraformFailed:
        said = message.strip() or "(it said nothing)"
        return TerraformFailed(f"Terraform {failure} in {self.folder}; it says:", said)

    def _parsed(self, ended: Ended, command: str) -> dict[str, Any]:
        try:
            answer = json.loads(ended.stdout)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._failed(f"answered {command} with something other than JSON", _plain(ended))
        return answer


def _errors(found: tuple[Diagnostic, ...]) -> str:
    return "\n\n".join(str(item) for item in found if item.severity == "error")


def _plain(ended: Ended) -> str:
    return "\n".join(part.strip() for part in (ended.stdout, ended.stderr) if part.strip())


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
