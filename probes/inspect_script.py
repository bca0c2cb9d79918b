"""`python -m probes.inspect_script train.py --args`, under torchrun with one process: what a script's steps take.

Writes one JSON object to SCAV_PROBE_OUTPUT: the report, or why there is none.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import torch

from probes import adapters
from probes.adapters.requested_run import RequestedRun
from probes.cluster import this_place
from probes.inspection import Inspection
from probes.run import run_as_main
from probes.session import ProbeFinished
from probes.spared_products import LONGEST_SECONDS, SparedProducts

_STEPS = 3  # of the optimizer, at most


def main(arguments: list[str]) -> None:
    place = this_place()
    if torch.cuda.is_available():
        torch.cuda.set_device(place.device)
    stated = os.environ.get("SCAV_INSPECT_SAMPLES_PER_STEP")
    output = Path(os.environ["SCAV_PROBE_OUTPUT"])
    products = SparedProducts(float(os.environ.get("SCAV_INSPECT_PRODUCT_SECONDS", LONGEST_SECONDS)))
    inspection = Inspection(
        place,
        output,
        longest_seconds=float(os.environ.get("SCAV_INSPECT_SECONDS", "600")),
        samples_per_step=int(stated) if stated else None,
        products=products,
    )
    inspection.install()
    adapters.install(_requested_run(output.parent / "library"))
    with suppress(ProbeFinished):
        try:
            run_to_its_end(arguments)
        except ProbeFinished:
            raise
        except (Exception, SystemExit) as error:
            if products.spared:
                _ask_for_values(output, error)
            raise
        inspection.finish()


def _ask_for_values(output: Path, error: BaseException) -> None:
    """The script may have failed for want of true values; whoever started it can have everything computed."""
    reason = f"{type(error).__name__} after products were spared"
    output.write_text(json.dumps({"outcome": "needs_values", "reason": reason}) + "\n", encoding="utf-8")


def _requested_run(folder: Path) -> RequestedRun:
    """The script's own batch, unless there is one to ask for; and long enough to be inspected."""
    batch = os.environ.get("SCAV_GPU_BATCH")
    return RequestedRun(
        gpu_batch=int(batch) if batch else None, accumulation_steps=None, probe_steps=_STEPS, folder=folder
    )


def run_to_its_end(arguments: list[str]) -> None:
    try:
        run_as_main(arguments)
    except ProbeFinished:
        raise
    except SystemExit as stop:  # a script's own way to end
        if stop.code:
            raise


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m probes.inspect_script SCRIPT [ARGUMENTS]")
    main(sys.argv[1:])
