"""`python -m probes.follow ./train --args`: measure any program that says how long its steps took.

The program appends a JSON object per step to the file named by SCAV_PROBE_STEPS: {"step_seconds": 0.21}, and if it
knows, "exposed_sync_seconds" and "data_wait_seconds". It is ended when there are enough of them. No torch needed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from probes.settings import Settings
from probes.windows import WARM_UP_STEPS, summarize

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0


def main(command: list[str]) -> int:
    settings = Settings.from_environment()
    needed = WARM_UP_STEPS + settings.windows * settings.window_steps
    started = float(os.environ.get("SCAV_PROBE_STARTED", time.time()))
    with tempfile.TemporaryDirectory(prefix="scav-steps-") as folder:
        file = Path(folder) / "steps.jsonl"
        file.touch()
        process = subprocess.Popen(command, env={**os.environ, "SCAV_PROBE_STEPS": str(file)})
        first_step = None
        try:
            while len(steps := read_steps(file)) < needed and process.poll() is None:
                first_step = first_step or (time.time() if steps else None)
                time.sleep(_POLL_SECONDS)
            steps = read_steps(file)
        finally:
            _end(process)
    if len(steps) < needed:
        reason = f"the program ended after {len(steps)} steps of {needed}"
        record: dict[str, Any] = {"outcome": "too_few_steps", "reason": reason}
    else:
        record = _record(steps[WARM_UP_STEPS:needed], settings, (first_step or time.time()) - started)
    settings.output.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return 0


def read_steps(file: Path) -> list[dict[str, float]]:
    """Whole lines only: the program may be in the middle of writing the last one."""
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _record(steps: list[dict[str, float]], settings: Settings, startup_seconds: float) -> dict[str, Any]:
    size = settings.window_steps
    seconds = [step["step_seconds"] for step in steps]
    summary = summarize([seconds[start : start + size] for start in range(0, len(seconds), size)])
    per_worker = settings.gpu_batch * settings.accumulation_steps
    record: dict[str, Any] = {
        "outcome": "measured",
        "nodes": 1,
        "gpus_per_node": max(int(os.environ.get("SCAV_GLOBAL_BATCH", per_worker)) // per_worker, 1),
        "gpu_batch": settings.gpu_batch,
        "accumulation_steps": settings.accumulation_steps,
        "step_seconds": summary.p50,
        "step_seconds_p90": summary.p90,
        "window_variation": summary.variation,
        "windows": summary.windows,
        "startup_seconds": startup_seconds,
    }
    for name in ("exposed_sync_seconds", "data_wait_seconds"):
        known = [step[name] for step in steps if name in step]
        if known:
            record[name] = statistics.median(known)
    return record


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m probes.follow PROGRAM [ARGUMENTS]")
    sys.exit(main(sys.argv[1:]))
