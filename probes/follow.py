"""`python -m probes.follow ./train --args`: measure any program that says how long its steps took.

The program appends a JSON object per step to the file named by SCAV_PROBE_STEPS: {"step_seconds": 0.21, "samples": 64},
and if it knows, "exposed_sync_seconds" and "data_wait_seconds". "samples" are those of the whole step, over all that
work on it: SCAV_GLOBAL_BATCH, if the program does what it is asked. It is ended when there are enough of them, or when
its steps are not what was asked for. No torch needed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from probes.settings import OTHER_BATCH, Settings
from probes.strategy import Strategy
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
            while not _is_enough(steps := read_steps(file), needed, settings) and process.poll() is None:
                first_step = first_step or (time.time() if steps else None)
                time.sleep(_POLL_SECONDS)
            steps = read_steps(file)
        finally:
            _end(process)
    if reason := _fault(steps, settings):
        record: dict[str, Any] = {"outcome": OTHER_BATCH, "reason": reason}
    elif len(steps) < needed:
        reason = f"the program ended after {len(steps)} steps of {needed}"
        record = {"outcome": "too_few_steps", "reason": reason}
    else:
        record = _record(steps[WARM_UP_STEPS:needed], settings, (first_step or time.time()) - started)
    settings.output.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return 0


def _is_enough(steps: list[dict[str, float]], needed: int, settings: Settings) -> bool:
    return len(steps) >= needed or _fault(steps, settings) is not None


def _fault(steps: list[dict[str, float]], settings: Settings) -> str | None:
    """After the warm-up, one line on steps that are not what was asked for."""
    sizes = [step.get("samples") for step in steps[:WARM_UP_STEPS]]
    if len(sizes) < WARM_UP_STEPS or settings.samples_are_stated:
        return None
    if None in sizes:
        ways = 'write {"step_seconds": 0.21, "samples": 64}, or say --samples-per-step'
        return f"the program does not say how many samples its steps take: {ways}"
    asked, (seen, _) = _asked_samples(settings), Counter(sizes).most_common(1)[0]
    if 2 * sizes.count(asked) >= len(sizes):
        return None
    ways = "hand the batch over with {gpu_batch} or {global_batch} in the command, or as SCAV_GLOBAL_BATCH"
    return f"the program took {seen:,} samples per step, asked for {asked:,}: {ways}"


def _asked_samples(settings: Settings) -> int:
    return int(os.environ.get("SCAV_GLOBAL_BATCH", settings.gpu_batch * settings.accumulation_steps))


def read_steps(file: Path) -> list[dict[str, float]]:
    """Whole lines only: the program may be in the middle of writing the last one."""
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _record(steps: list[dict[str, float]], settings: Settings, startup_seconds: float) -> dict[str, Any]:
    size = settings.window_steps
    seconds = [step["step_seconds"] for step in steps]
    summary = summarize([seconds[start : start + size] for start in range(0, len(seconds), size)])
    per_worker = settings.gpu_batch * settings.accumulation_steps
    workers = max(_asked_samples(settings) // per_worker, 1) * (settings.strategy or Strategy()).model_processes
    record: dict[str, Any] = {
        "outcome": "measured",
        "nodes": 1,
        "gpus_per_node": workers,
        "gpu_batch": settings.gpu_batch,
        "accumulation_steps": settings.accumulation_steps,
        "asked_gpu_batch": settings.gpu_batch,
        "asked_accumulation_steps": settings.accumulation_steps,
        "batch_source": "stated",
        "step_seconds": summary.p50,
        "step_seconds_p90": summary.p90,
        "window_variation": summary.variation,
        "windows": summary.windows,
        "startup_seconds": startup_seconds,
        **({"strategy": asdict(settings.strategy)} if settings.strategy else {}),
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
