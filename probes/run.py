"""`python -m probes.run train.py --args`, under torchrun: run a training script unchanged and measure it.

Writes one JSON object to SCAV_PROBE_OUTPUT: what was measured, or why nothing was.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from probes import adapters
from probes.adapters.requested_run import RequestedRun
from probes.cluster import Place, this_place
from probes.ending import end
from probes.session import ProbeFinished, Session, begin, most_steps
from probes.settings import Settings
from probes.stretch import Stretch

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")


def main(arguments: list[str]) -> int:
    """Exit code 0 also where the script did not step, or alone did not fit: the record says so."""
    started = float(os.environ.get("SCAV_PROBE_STARTED", time.time()))
    settings, place = Settings.from_environment(), this_place()
    if torch.cuda.is_available():
        torch.cuda.set_device(place.device)  # so that a script's plain "cuda" is this process's own GPU
    session = begin((Stretch if settings.stretch else Session)(settings, place, started))
    if not settings.stretch:  # a run is the script's own: its checkpoints, its logs, its end
        adapters.install(_requested_run(settings, session.adapted.append))
    try:
        run_as_main(arguments)
    except ProbeFinished:
        return 0
    except SystemExit as stop:  # a script's own way to end
        if stop.code:
            raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        record_failure(settings, place, "out_of_memory", f"local batch {settings.gpu_batch} does not fit the memory")
        return 0 if place.world_size == 1 else 1  # torchrun then ends the others, who would wait for this one
    if settings.stretch:
        return 0
    enough = f"let it train longer, {most_steps(settings):,} are always enough"
    reason = f"the script ended after {session.steps} optimizer steps, before the measurement was complete; {enough}"
    record_failure(settings, place, "too_few_steps", reason)
    return 0


def run_as_main(arguments: list[str]) -> None:
    """As `python script arguments` would: it finds its arguments, and the modules beside it."""
    script = Path(arguments[0])
    sys.argv = [str(script), *arguments[1:]]
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")


def _requested_run(settings: Settings, tell: Callable[[str], object]) -> RequestedRun:
    by_command = settings.batch_is_in_command
    return RequestedRun(
        gpu_batch=None if by_command else settings.gpu_batch,
        accumulation_steps=None if by_command else settings.accumulation_steps,
        probe_steps=most_steps(settings),
        folder=settings.checkpoint_folder / "library",
        tell=tell,
    )


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch has a type for its own allocator only; the CPU's and the libraries' say it in words."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def record_failure(settings: Settings, place: Place, outcome: str, reason: str) -> None:
    if place.rank == 0 or outcome == "out_of_memory":
        settings.output.write_text(json.dumps({"outcome": outcome, "reason": reason}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m probes.run SCRIPT [ARGUMENTS]")
    end(main(sys.argv[1:]))
