"""`python -m probes.trace_script train.py --args`: what a GPU would hold of a script's training, without one.

Runs the script as the first of WORLD_SIZE processes, the others pretended, with a model that has sizes and no memory.
The first optimizer step makes the optimizer's state; after the second the script is ended. Writes one JSON object to
SCAV_PROBE_OUTPUT: the report, or why there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import Optimizer

from probes import adapters
from probes.adapters.requested_run import RequestedRun
from probes.allocations import AllocationWatch
from probes.as_on_gpu import AsOnGpu
from probes.cluster import this_place
from probes.counting import SampleCounter
from probes.run import run_as_main
from probes.session import ProbeFinished
from probes.settings import Settings
from probes.sharded import own_part
from probes.sizes_alone import give_sizes_alone, pretend_processes

_STEPS = 2


class Trace:
    """Ends the script once its first optimizer has stepped twice, and says what was held."""

    def __init__(self, output: Path) -> None:
        self.watch, self.counter = AllocationWatch(), SampleCounter()
        self._output = output
        self._steps = 0
        self._first: Optimizer | None = None

    def stepped(self, optimizer: Optimizer) -> None:
        self._first = self._first or optimizer
        self._steps += optimizer is self._first
        self.counter.end_step()
        if self._steps == _STEPS:
            self._write({"outcome": "traced", "report": self._report(optimizer)})
            raise ProbeFinished(0)

    def end(self) -> None:
        """The script ended by itself."""
        reason = f"the script ended after {self._steps} optimizer steps, {_STEPS} are needed to see its fullest moment"
        self._write({"outcome": "too_few_steps", "reason": reason})

    def _report(self, optimizer: Optimizer) -> dict[str, Any]:
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        states = [
            leaf for state in optimizer.state.values() for leaf in state.values() if isinstance(leaf, torch.Tensor)
        ]
        return {
            "peak_bytes": self.watch.peak_bytes,
            "moment": self.watch.fullest,
            "samples_per_step": self.counter.last.samples,
            "trained_parameters": sum(parameter.numel() for parameter in trained if parameter.requires_grad),
            "trained_bytes": _own_bytes(trained),
            "optimizer_bytes": _own_bytes(states),
            "torch": torch.__version__,
        }

    def _write(self, record: dict[str, Any]) -> None:
        self._output.write_text(json.dumps(record) + "\n", encoding="utf-8")


def _own_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """What this process holds of them."""
    return sum(part.nbytes for part in map(own_part, tensors) if isinstance(part, FakeTensor))


def main(arguments: list[str]) -> None:
    place, settings = this_place(), Settings.from_environment()
    trace = Trace(settings.output)
    pretend_processes(place)
    AsOnGpu().install()
    give_sizes_alone(trace.watch, trace.counter, trace.stepped)
    adapters.install(_requested_run(settings))
    with suppress(ProbeFinished), trace.watch:
        run_as_main(arguments)
        trace.end()


def _requested_run(settings: Settings) -> RequestedRun:
    by_command = settings.batch_is_in_command
    return RequestedRun(
        gpu_batch=None if by_command else settings.gpu_batch,
        accumulation_steps=None if by_command else settings.accumulation_steps,
        probe_steps=_STEPS + 1,
        folder=settings.checkpoint_folder / "library",
    )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m probes.trace_script SCRIPT [ARGUMENTS]")
    main(sys.argv[1:])
