"""Probes as torchrun processes on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from planner.errors import InputError, OutOfMemory, ScavError, ScriptFailed, one_line
from planner.inputs import Measurement, Ran, filled_command, holds_strategy, placeholder_fault, strategy_text
from planner.outside import assets
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.noise_state import NoiseState
from planner.outside.runners.shared_with_probes import (
    MARK,
    Settings,
    Strategy,
    hold_batch,
    kill_marked,
    last_lines,
)
from planner.outside.what_ran import ran_here
from planner.probing import Probe

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 1.0
_MEANINGS = (
    (
        re.compile(r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"),
        ": it wants a GPU, and this machine has none; let it ask torch.cuda.is_available()",
    ),
    (
        re.compile(r"attempted relative import with no known parent package"),
        ": a script is no part of a package; name a file that imports it and calls it",
    ),
)
_LAUNCHER = re.compile(r"python[0-9.]*|torchrun|accelerate|deepspeed|mpirun|srun|uv|poetry")


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
            raise InputError(_no_script(self.command[0]), file=str(self.folder / self.command[0]))
        return self

    def arguments(self, probe: Probe, reference_batch: int) -> list[str]:
        """The command with the probe's own batch in the place of its placeholders."""
        return filled_command(
            self.command,
            gpu_batch=probe.gpu_batch,
            accumulation_steps=probe.accumulation_steps,
            global_batch=probe.global_batch,
            lr_scale=probe.global_batch / reference_batch,
            strategy=probe.strategy,
        )


def _no_script(word: str) -> str:
    """What to write instead of a line that works in a shell."""
    if word == "-m":
        return "no such script; of a module make one: a file with `from package.train import main` and `main()`"
    if _LAUNCHER.fullmatch(word):
        return f"no such script; scav starts scripts itself, so leave out {word} and its options: -- train.py --lr 0.1"
    return "no such script"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunner:
    """Runs one probe after the other, its processes under torchrun."""

    script: Script
    timeout_seconds: float
    interrupts: Interrupts = field(default_factory=Interrupts)
    mark: str = field(default_factory=lambda: secrets.token_hex(16))  # of all processes that it starts
    windows: int = 8
    window_steps: int = 20
    noise_state: NoiseState | None = None  # without one, every probe measures the noise at parameters of its own

    def ran(self) -> Ran:
        return ran_here(self.script.folder, self.script.command, in_python=not self.script.writes_steps)

    def run(self, probe: Probe, *, reference_batch: int, measure_noise: bool) -> Measurement:
        if not self.script.writes_steps:
            refuse_without_torch()
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
                    self.script,
                    self.noise_state,
                ),
                "PYTHONPATH": os.pathsep.join([str(assets.probes_parent()), os.environ.get("PYTHONPATH", "")]),
            }
            command = [*self._launcher(probe), *self.script.arguments(probe, reference_batch)]
            log = Path(folder) / "log.txt"
            code = self._run(command, environment, log)
            return measurement_of(probe, output, code, log, self.timeout_seconds)

    def _run(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int | None:
        return run_to_its_end(
            command,
            folder=self.script.folder,
            environment=environment,
            log=log,
            timeout_seconds=self.timeout_seconds,
            interrupts=self.interrupts,
            mark=self.mark,
        )

    def _launcher(self, probe: Probe) -> list[str]:
        if self.script.writes_steps:
            return [sys.executable, "-m", "probes.follow"]
        return torchrun(probe.gpus_per_node)


def torchrun(workers: int) -> list[str]:
    """After `--`, or torchrun would take a script's --log for an abbreviation of its own --log-dir."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, f"--nproc-per-node={workers}", "-m", "--", "probes.run"]


def torchrun_of_node(python: str, probe: Probe, node: int, address: str, port: int) -> list[str]:
    """One of several nodes, that meet at the first one's address."""
    return [
        *(python, "-m", "torch.distributed.run", f"--nnodes={probe.nodes}", f"--node-rank={node}"),
        *(f"--master-addr={address}", f"--master-port={port}", f"--nproc-per-node={probe.gpus_per_node}"),
        *("-m", "--", "probes.run"),
    ]


def refuse_without_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise ScavError("probing needs PyTorch here: pip install 'scav-planner[probe]', or probe with --on container")


def probe_environment(
    probe: Probe,
    reference_batch: int,
    checkpoints: Path,
    output: Path,
    windows: int,
    window_steps: int,
    measure_noise: bool,
    script: Script,
    noise_state: NoiseState | None = None,
    stretch: str = "",
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
        samples_are_stated=script.samples_are_stated,
        batch_is_in_command=hold_batch(script.command),
        noise_state=noise_state.file if noise_state else None,
        noise_state_is_given=noise_state is not None and noise_state.is_given,
        strategy=Strategy(**probe.strategy.model_dump()) if probe.strategy else None,
        strategy_is_in_command=holds_strategy(script.command),
        stretch=stretch,
    )
    workers = probe.nodes * probe.gpus_per_node
    return {**settings.to_environment(workers=workers, reference_batch=reference_batch), "OMP_NUM_THREADS": "1"}


def measurement_of(probe: Probe, output: Path, code: int | None, log: Path, timeout_seconds: float) -> Measurement:
    """What the probe wrote, or one line on why it wrote nothing."""
    if code is None:
        late = f"{_shown(probe)}: not finished after {timeout_seconds:.0f} s; raise --max-duration"
        raise ScriptFailed(late, said=tail_of(log))
    if not output.exists():
        raise script_failed(_shown(probe), code, log)
    record: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    outcome = record.pop("outcome")
    if outcome == "out_of_memory":
        raise OutOfMemory(f"{_shown(probe)}: does not fit the memory", gpu_batch=probe.gpu_batch)
    if outcome == "too_few_steps":
        raise ScriptFailed(f"{_shown(probe)}: {record['reason']}", said=tail_of(log))
    if outcome != "measured":
        raise ScavError(f"{_shown(probe)}: {one_line(str(record['reason']))}")
    asked = {"instance_type": probe.instance_type, "precision": probe.precision}
    return Measurement.model_validate({**record, **asked})


def run_to_its_end(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    timeout_seconds: float,
    interrupts: Interrupts,
    mark: str,
) -> int | None:
    """The exit code, or None when time ran out. Whatever happens, no process is left behind.

    All that is started bears the mark, by which it is found again.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
        try:
            return watched(process, timeout_seconds, interrupts)
        finally:
            kill_marked(mark)  # torchrun's workers have groups of their own


class Started(Protocol):
    """What leads a process group."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def watched(
    process: Started,
    timeout_seconds: float,
    interrupts: Interrupts,
    *,
    is_enough: Callable[[], bool] = lambda: False,
    grace_seconds: float = _GRACE_SECONDS,
) -> int | None:
    """The exit code, or None when time ran out, or it was enough. Then its group is gone, after a grace to save in."""
    try:
        with interrupts.heard():
            return _wait(process, timeout_seconds, is_enough)
    finally:
        _end(process, grace_seconds)


def _wait(process: Started, timeout_seconds: float, is_enough: Callable[[], bool]) -> int | None:
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0 and not is_enough():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, _POLL_SECONDS))
    return process.poll()


def _end(process: Started, grace_seconds: float) -> None:
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
    _signal_group(process, signal.SIGKILL)  # workers that outlived their launcher
    process.wait()


def _signal_group(process: Started, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _shown(probe: Probe) -> str:
    spread = f" with {strategy_text(probe.strategy)}" if probe.strategy else ""
    return f"probe of {probe.nodes} x {probe.gpus_per_node} workers at local batch {probe.gpu_batch}{spread}"


def script_failed(what: str, code: int, log: Path) -> ScriptFailed:
    """With its last words, and what these mean where they do not say so to everybody."""
    said = tail_of(log)
    meaning = next((meaning for words, meaning in _MEANINGS if words.search(said)), "")
    return ScriptFailed(f"{what}: the script failed with exit code {code}{meaning}", said=said)


def tail_of(log: Path) -> str:
    lines = last_lines(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return "\n".join(one_line(line) for line in lines)
