"""A trace of the job's script, made: for `scav memory --trace`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from planner.inputs import PlanInputs, TracedPeak
    from planner.plan import MemoryQuestion


def traced_peak(inputs: PlanInputs, question: MemoryQuestion, max_duration: str) -> TracedPeak:
    """Of the training that is asked about, as its first GPU would hold it."""
    from planner.cli.inputs import duration, warn
    from planner.errors import InputError
    from planner.inputs import ParallelStrategy
    from planner.outside.runners import Interrupts, Script, trace_script
    from planner.plan import asked_training, doubts_of
    from planner.probing import Probe

    job = inputs.job_file.job
    machine, strategy = asked_training(job, inputs.catalog, question)
    if strategy.pipeline > 1:
        raise InputError("a trace is of one process, and stages are several: trace without --pipeline", key="--trace")
    probe = Probe(
        instance_type=machine.name,
        nodes=question.nodes,
        gpus_per_node=machine.gpu_count,
        gpu_batch=strategy.micro_batch,
        accumulation_steps=strategy.accumulation,
        precision=job.workload.precision,
        strategy=ParallelStrategy(
            sharding=strategy.sharding, tensor_parallel=strategy.tensor_parallel, recompute=strategy.recompute
        ),
    )
    script = Script(folder=Path(inputs.job_file.file).parent, command=job.run.command).checked()
    click.echo(f"Tracing two steps of {job.run.command[0]}", err=True)
    with Interrupts() as interrupts:
        found = trace_script(
            script,
            probe,
            reference_batch=job.workload.target.reference_batch,
            longest_seconds=3600 * duration("--max-duration", max_duration),
            interrupts=interrupts,
        )
    warn(doubts_of(found, job.workload.parameters, strategy.micro_batch * strategy.accumulation))
    return found
