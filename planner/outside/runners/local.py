"""Probes as torchrun processes on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import InputError, OutOfMemory, ScavError, ScriptFailed, one_line
from planner.inputs import Measurement, filled_command, placeholder_fault
from planner.outside import assets
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.shared_with_probes import Settings, last_lines
from planner.probing import Probe

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.02
_MARK = "SCAV_PROBE_MARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The user's training script: where it runs and what it is called with."""

    folder: Path
    command: tuple[str, ...]
    writes_steps: bool = False  # any program that reports its own step times, instead of a PyTorch script
    samples_are_stated: bool = False  # by the user: the script cannot be watched and takes the batch that it is given

    def checked(self) -> Script:
        if not self.command:
            raise InputError("no script to probe; set run.command in scav.yaml or name it: scav probe JOB -- train.py")
        if fault := placeholder_fault(self.command):
            raise InputError(fault)
        found = shutil.which(self.command[0]) if self.writes_steps else None
        if found is None and not (self.folder / self.command[0]).is_file():
            raise InputError("no such script", file=str(self.folder / self.command[0]))
        return self

    def arguments(self, probe: Probe, reference_batch: int) -> list[str]:
        """The command with the probe's own batch in the place of its placeholders."""
        return filled_command(
            self.command,
            gpu_batch=probe.gpu_batch,
            accumulation_steps=probe.accumulation_steps,
            global_batch=probe.global_batch,
            lr_scale=probe.global_batch / reference_batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunner:
    """Runs one probe after the other, its processes under torchrun."""

    script: Script
    timeout_seconds: float
    interrupts: Interrupts = field(default_factory=Interrupts)
    windows: int = 8
    window_steps: int = 20

    def run(self, probe: Probe, *, reference_batch: int, measure_noise: bool) -> Measurement:
        if not self.script.writes_steps and importlib.util.find_spec("torch") is None:
            raise ScavError(
                "probing needs PyTorch here: pip install 'scav-planner[probe]', or probe with --on container"
            )
        with tempfile.TemporaryDirectory(prefix="scav-probe-") as folder:
            output = Path(folder) / "probe.json"
            environment = {
                **os.environ,
                **probe_environment(
                    probe,
                    reference_batch,
                    Path(folder),
                    output,
                    self.windows,
                    self.window_steps,
                    measure_noise,
                    self.script.samples_are_stated,
                ),
                "PYTHONPATH": os.pathsep.join([str(assets.probes_parent()), os.environ.get("PYTHONPATH", "")]),
            }
            command = [*self._launcher(probe), *self.script.arguments(probe, reference_batch)]
            log = Path(folder) / "log.txt"
            code = self._run(command, environment, log)
            return measurement_of(probe, output, code, log, self.timeout_seconds)

    def _run(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int | None:
        """The exit code, or None when time ran out. Whatever happens, no process is left behind."""
        mark = secrets.token_hex(16)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=self.script.folder, env={**environment, _MARK: mark},
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
            try:
                with self.interrupts.heard():
                    return process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process, mark)

    def _launcher(self, probe: Probe) -> list[str]:
        if self.script.writes_steps:
            return [sys.executable, "-m", "probes.follow"]
        # After `--`, or torchrun would take a script's --log for an abbreviation of its own --log-dir.
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*torchrun, f"--nproc-per-node={probe.gpus_per_node}", "-m", "--", "probes.run"]


def probe_environment(
    probe: Probe,
    reference_batch: int,
    checkpoints: Path,
    output: Path,
    windows: int,
    window_steps: int,
    measure_noise: bool,
    samples_are_stated: bool = False,
) -> dict[str, str]:
    """The same wherever processes are probed; each has one thread, or they would steal each other's time."""
    settings = Settings(
        gpu_batch=probe.gpu_batch,
        accumulation_steps=probe.accumulation_steps,
        checkpoint_folder=checkpoints,
        output=output,
        windows=windows,
        window_steps=window_steps,
        measure_noise=measure_noise,
        samples_are_stated=samples_are_stated,
    )
    workers = probe.nodes * probe.gpus_per_node
    return {**settings.to_environment(workers=workers, reference_batch=reference_batch), "OMP_NUM_THREADS": "1"}


def measurement_of(probe: Probe, output: Path, code: int | None, log: Path, timeout_seconds: float) -> Measurement:
    """What the probe wrote, or one line on why it wrote nothing."""
    if code is None:
        late = f"{_shown(probe)}: not finished after {timeout_seconds:.0f} s; raise --max-duration"
        raise ScriptFailed(late, said=_tail(log))
    if not output.exists():
        raise ScriptFailed(f"{_shown(probe)}: the script failed with exit code {code}", said=_tail(log))
    record: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    outcome = record.pop("outcome")
    if outcome == "out_of_memory":
        raise OutOfMemory(f"{_shown(probe)}: does not fit the memory", gpu_batch=probe.gpu_batch)
    if outcome == "too_few_steps":
        raise ScriptFailed(f"{_shown(probe)}: {record['reason']}", said=_tail(log))
    if outcome != "measured":
        raise ScavError(f"{_shown(probe)}: {one_line(str(record['reason']))}")
    asked = {"instance_type": probe.instance_type, "precision": probe.precision}
    return Measurement.model_validate({**record, **asked})


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    _signal_group(process, signal.SIGKILL)  # workers that outlived their launcher
    _kill_marked(mark)
    process.wait()


def _kill_marked(mark: str) -> None:
    """torchrun gives each worker a group of its own, which outlives a torchrun that had to be killed."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while (marked := _marked(mark)) and time.monotonic() < deadline:
        for number in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _marked(mark: str) -> list[int]:
    """Processes that were started with this mark in their environment, by whomever; Linux only."""
    found, wanted = [], f"{_MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # of somebody else, or gone
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _shown(probe: Probe) -> str:
    return f"probe of {probe.nodes} x {probe.gpus_per_node} workers at local batch {probe.gpu_batch}"


def _tail(log: Path) -> str:
    lines = last_lines(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return "\n".join(one_line(line) for line in lines)
