"""`torchrun … count_steps.py FOLDER STEPS CASES`: what a probe counts of each of the first steps of some scripts.

CASES is a JSON list of {"script", "options", "environment", "adapted"}; they are run one after the other, in the same
processes. From the first that is adapted to [samples, micro-steps] on, adapters hand that batch over.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

from probes import adapters
from probes.adapters.requested_run import RequestedRun
from probes.cluster import this_place
from probes.instrument import Instrument

folder, most, cases = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
rank = os.environ.get("RANK", "0")
counts: list[tuple[int | None, int]] = []
adapted = False


def after_step() -> None:
    counts.append(tuple(instrument.counter.last))
    if len(counts) == most:
        raise SystemExit(0)


instrument = Instrument(this_place(), lambda: None, after_step)
instrument.install()
for number, case in enumerate(cases):
    if case["adapted"] and not adapted:
        samples, micro_steps = case["adapted"]
        batch = {"gpu_batch": samples, "accumulation_steps": micro_steps}
        adapters.install(RequestedRun(**batch, probe_steps=most, folder=folder / "library"))
        adapted = True
    os.environ.update(case["environment"])
    script = Path(case["script"])
    sys.path[0] = str(script.parent)
    sys.argv = [str(script), *case["options"], "--log", str(folder / f"written.{number}")]
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    if dist.is_initialized():
        dist.barrier()  # who is done first must not leave while the others still talk to it
    (folder / f"counted.{number}.{rank}").write_text(json.dumps(counts), encoding="utf-8")
    counts.clear()
    instrument.optimizer = instrument.model = instrument.parallel = None
os._exit(0)  # all is written; gloo's threads of several groups do not always end in order
