"""Runs a training script's first steps without memory and without other processes; reads what it would hold."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path

from planner.inputs import TracedPeak
from planner.outside import assets
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import (
    Script,
    probe_environment,
    refuse_without_torch,
    run_to_its_end,
)
from planner.outside.runners.script_report import script_report
from planner.probing import Probe


def trace_script(
    script: Script, probe: Probe, *, reference_batch: int, longest_seconds: float, interrupts: Interrupts
) -> TracedPeak:
    """As the first GPU of the probe's cluster would hold it."""
    refuse_without_torch()
    with tempfile.TemporaryDirectory(prefix="scav-trace-") as name:
        folder = Path(name)
        output, log = folder / "trace.json", folder / "log.txt"
        code = run_to_its_end(
            [sys.executable, "-m", "probes.trace_script", *script.arguments(probe, reference_batch)],
            folder=script.folder,
            environment={
                **os.environ,
                **probe_environment(probe, reference_batch, folder, output, 1, 1, False, script),
                **_first_of(probe),
                "PYTHONPATH": os.pathsep.join([str(assets.probes_parent()), os.environ.get("PYTHONPATH", "")]),
            },
            log=log,
            timeout_seconds=longest_seconds,
            interrupts=interrupts,
            mark=secrets.token_hex(16),
        )
        late = f"not finished after {longest_seconds:.0f} s; raise --max-duration"
        return script_report("tracing", "traced", TracedPeak, output=output, code=code, log=log, late=late)


def _first_of(probe: Probe) -> dict[str, str]:
    """As torchrun would say it; no GPU of this machine is touched, and nothing is compiled, which would hide it."""
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(probe.nodes * probe.gpus_per_node),
        "LOCAL_WORLD_SIZE": str(probe.gpus_per_node),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",
    }
