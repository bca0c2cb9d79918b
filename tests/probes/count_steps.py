"""`torchrun … count_steps.py FOLDER STEPS train.py CASES`: what a probe counts of each of a script's first steps.

CASES is a JSON list of argument lists; the script is run with one after the other, in the same processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

from probes.cluster import this_place
from probes.instrument import Instrument

folder, most, script, rank = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], os.environ.get("RANK", "0")
counts: list[tuple[int | None, int]] = []


def after_step() -> None:
    counts.append(tuple(instrument.counter.last))
    if len(counts) == most:
        raise SystemExit(0)


instrument = Instrument(this_place(), lambda: None, after_step)
instrument.install()
for number, arguments in enumerate(json.loads(sys.argv[4])):
    sys.argv = [script, *arguments, "--log", str(folder / f"written.{number}")]
    with contextlib.suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    if dist.is_initialized():
        dist.barrier()  # who is done first must not leave while the others still talk to it
    (folder / f"counted.{number}.{rank}").write_text(json.dumps(counts), encoding="utf-8")
    counts.clear()
    instrument.optimizer = instrument.model = instrument.parallel = None
os._exit(0)  # all is written; gloo's threads of several groups do not always end in order
