"""How well `scav memory --trace` predicts published peaks: litgpt's and torchtune's trainings, built and traced here.

`traced_model.py` is the training script, in plain PyTorch, as the two projects' sources write it. What cannot be built
so is left out and counted: litgpt's FSDP of 2023 (PyTorch's first version, flat parameters), what is compiled without
recomputation, and torchtune's 405B. Of compiled rows with recomputation the loss is what compiling makes of it. Prints
Markdown, or JSON with --json. Takes minutes: every row is a training of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import log
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

from memory_tables import Row, load_rows
from traced_model import SHAPES

from planner.inputs import ParallelStrategy
from planner.outside.runners import Interrupts, Script, trace_script
from planner.probing import Probe

MICRO_STEPS = 2  # of a step: litgpt takes more, which changes nothing
PATIENCE_SECONDS = 1800.0


class Traced(NamedTuple):
    set: str
    label: str
    measured_gib: float
    traced_gib: float
    moment: str

    @property
    def miss(self) -> float:
        return self.traced_gib / self.measured_gib - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--set", choices=("litgpt", "torchtune"), help="one of them alone")
    arguments = parser.parse_args()
    rows, _ = load_rows(arguments.data)
    measured = [row for row in rows if row.set in ("litgpt", "torchtune") and row.bytes_peak]
    measured = [row for row in measured if arguments.set in (None, row.set)]
    built = [row for row in measured if _is_built(row)]
    found = []
    for row in built:
        found.append(traced(row))
        print(f"{found[-1].label}: {100 * found[-1].miss:+.1f} %", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"rows": [one._asdict() for one in found], "left_out": len(measured) - len(built)}))
        return
    print("| set | row | measured GiB | traced GiB | off % | fullest |")
    print("|---|---|--:|--:|--:|---|")
    for one in found:
        print(
            f"| {one.set} | {one.label} | {one.measured_gib:.2f} | {one.traced_gib:.2f} "
            f"| {100 * one.miss:+.1f} | {one.moment} |"
        )
    for name in sorted({one.set for one in found}):
        misses = [one.miss for one in found if one.set == name]
        error, bias, logs = fmean(map(abs, misses)), fmean(misses), [log(1 + miss) for miss in misses]
        print(
            f"\n{name}: {len(misses)} rows, error {100 * error:.1f} %, bias {100 * bias:+.1f} %, sd {pstdev(logs):.3f}"
        )
    print(f"\n{len(measured) - len(built)} rows left out: what cannot be built here.")


def _is_built(row: Row) -> bool:
    one_gpu = row.strategy.gpus == 1
    hidden = row.strategy.compiled and row.strategy.recompute == "none"
    return _model(row) is not None and not hidden and (one_gpu or row.set == "torchtune")


def _model(row: Row) -> str | None:
    return next((name for name in SHAPES if row.label.startswith(name)), None)


def traced(row: Row) -> Traced:
    strategy = row.strategy
    words = ["traced_model.py", _model(row) or "", "--length", str(row.shape.sequence_length), "--recipe", row.set]
    words += ["--training", strategy.training]
    words += ["--double-quantized"] * (strategy.double_quantized and strategy.training == "qlora")
    words += ["--chunked"] * (row.shape.loss == "chunked")
    words += ["--compiled"] * strategy.compiled
    probe = Probe(
        instance_type="published",
        nodes=1,
        gpus_per_node=strategy.gpus,
        gpu_batch=strategy.micro_batch,
        accumulation_steps=MICRO_STEPS if row.set == "litgpt" else 1,
        precision="bf16",
        strategy=ParallelStrategy(sharding=strategy.sharding, recompute=strategy.recompute),
    )
    with Interrupts() as interrupts:
        peak = trace_script(
            Script(folder=Path(__file__).parent, command=tuple(words)),
            probe,
            reference_batch=1,
            longest_seconds=PATIENCE_SECONDS,
            interrupts=interrupts,
        )
    assert row.bytes_peak is not None
    return Traced(row.set, row.label, row.bytes_peak / 2**30, peak.peak_bytes / 2**30, peak.moment)


if __name__ == "__main__":
    main()
