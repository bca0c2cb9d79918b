"""Runs the first steps of a training script on this machine, one process, and reads what was seen of it."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path

from planner.errors import InputError, ScavError
from planner.inputs import InspectedScript, filled_command
from planner.outside import assets
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import Script, run_to_its_end
from planner.outside.runners.script_report import script_report
from planner.outside.runners.shared_with_probes import hold_batch

_PATIENCE = 2.0  # the script is ended from inside when time is over; a micro-step that takes ages, from outside
_COMPUTES_ALL = {"SCAV_INSPECT_PRODUCT_SECONDS": "inf"}  # for a script that fails for want of true values


def inspect_script(
    script: Script,
    *,
    longest_seconds: float,
    interrupts: Interrupts,
    gpu_batch: int | None = None,
    samples_per_step: int | None = None,
) -> InspectedScript:
    """`gpu_batch` is handed over as a probe does; without it the script takes its own."""
    if importlib.util.find_spec("torch") is None:
        raise ScavError("inspecting needs PyTorch here: pip install 'scav-planner[probe]'")
    in_command = hold_batch(script.command)
    if gpu_batch is None and in_command:
        raise InputError("the command has a placeholder for the batch: say with which one to inspect, --gpu-batch 8")
    batch = gpu_batch or 1
    words = filled_command(script.command, gpu_batch=batch, accumulation_steps=1, global_batch=batch, lr_scale=1.0)
    with tempfile.TemporaryDirectory(prefix="scav-inspect-") as name:
        folder = Path(name)
        output, log = folder / "inspection.json", folder / "log.txt"
        environment = {
            **os.environ,
            **_settings(folder, output, longest_seconds, None if in_command else gpu_batch, samples_per_step),
            "PYTHONPATH": os.pathsep.join([str(assets.probes_parent()), os.environ.get("PYTHONPATH", "")]),
        }
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "-m", "--"]
        for further in ({}, _COMPUTES_ALL):
            output.unlink(missing_ok=True)
            code = run_to_its_end(
                [*torchrun, "probes.inspect_script", *words],
                folder=script.folder,
                environment={**environment, **further},
                log=log,
                timeout_seconds=_PATIENCE * longest_seconds,
                interrupts=interrupts,
                mark=secrets.token_hex(16),
            )
            if not _needs_values(output):
                break
        waited = f"{_PATIENCE * longest_seconds:.0f} s"
        late = f"not finished after {waited}; raise --max-duration, or inspect with a smaller batch"
        return script_report("inspecting", "inspected", InspectedScript, output=output, code=code, log=log, late=late)


def _needs_values(output: Path) -> bool:
    """The first run spares a large model's products, and says so where the script failed after that."""
    return output.exists() and json.loads(output.read_text(encoding="utf-8"))["outcome"] == "needs_values"


def _settings(
    folder: Path, output: Path, longest_seconds: float, gpu_batch: int | None, samples_per_step: int | None
) -> dict[str, str]:
    """The batch only where it is asked for: a script that reads it has a default of its own."""
    settings = {
        "SCAV_CHECKPOINT_DIR": str(folder),
        "SCAV_RUN_ID": "inspect",
        "SCAV_PROBE_OUTPUT": str(output),
        "SCAV_INSPECT_SECONDS": repr(longest_seconds),
        "TORCHDYNAMO_DISABLE": "1",  # a compiled graph shows neither its operators nor what they keep
    }
    if samples_per_step is not None:
        settings["SCAV_INSPECT_SAMPLES_PER_STEP"] = str(samples_per_step)
    if gpu_batch is not None:
        settings["SCAV_GPU_BATCH"] = str(gpu_batch)
    return settings
