"""`scav memory`: what a training holds of a GPU, and what would make it fit."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.inputs import load_inputs
from planner.cli.options import catalog_option, job_argument, json_option


@click.command("memory")
@job_argument
@click.option("--instance-type", help="What to answer for, in parts. [default: a line for each GPU of the catalogue]")
@click.option("--nodes", type=click.IntRange(1, 1024), default=1, show_default=True, help="How many machines.")
@click.option(
    "--strategy",
    "sharding",
    type=click.Choice(["ddp", "zero1", "zero2", "fsdp", "hsdp"]),
    help="What data parallelism shards. [default: ddp, nothing]",
)
@click.option("--tensor-parallel", type=int, help="GPUs that share every layer, within a node. [default: 1]")
@click.option("--pipeline", type=int, help="Stages of layers. [default: 1]")
@click.option(
    "--recompute", type=click.Choice(["none", "selective", "full"]), help="Activation checkpointing. [default: none]"
)
@click.option("--training", type=click.Choice(["full", "lora", "qlora"]), help="What is trained. [default: full]")
@click.option("--lora-rank", type=int, help="Of the adapters on queries and values. [default: 8]")
@click.option("--micro-batch", type=int, help="Samples per GPU and micro-step. [default: 1]")
@click.option("--accumulation", type=int, help="Micro-steps of a step. [default: what the job's smallest batch takes]")
@click.option(
    "--states",
    type=click.Choice(["fp32", "autocast", "pure", "master"]),
    help="Precision of weights, gradients and optimizer: fp32 weights that are cast (autocast), all in half precision"
    " (pure), half weights beside fp32 copies (master). [default: by the job's precision]",
)
@click.option("--load", type=click.Choice(["sharded", "full"]), help="full: from one file. [default: sharded]")
@click.option(
    "--flat-parameters", is_flag=True, default=None, help="FSDP's first version, with a block's weights in one."
)
@click.option("--compiled", is_flag=True, default=None, help="The model is compiled with torch.compile.")
@click.option("--varying-length", is_flag=True, help="Samples vary in length, which fragments memory.")
@click.option(
    "--trace",
    is_flag=True,
    help="Run two steps of run.command as the first GPU of --instance-type would, with tensors that have sizes and no"
    " memory: no GPU is needed, and no room for the model.",
)
@click.option("--max-duration", default="10min", show_default=True, help="Of --trace.")
@catalog_option
@json_option
def command(
    job: Path,
    catalog_file: Path | None,
    as_json: bool,
    instance_type: str | None,
    nodes: int,
    varying_length: bool,
    trace: bool,
    max_duration: str,
    **options: str | int | None,
) -> None:
    """Say what training JOB holds of a GPU's memory, and what would make it fit.

    Reads `workload.transformer` of the job file. Without it, the answer is what plans assume: the whole model on
    every GPU. By formula, corrected by the peaks that probes of the job measured; with --trace by its own script.
    """
    from planner.cli.traced import traced_peak
    from planner.errors import InputError
    from planner.plan import (
        MemoryQuestion,
        flat_rows,
        flat_table,
        format_memory,
        memory_reports,
        memory_table,
        memory_text,
    )

    given = {key: value for key, value in options.items() if value is not None}
    question = MemoryQuestion(instance_type=instance_type, nodes=nodes, varying=varying_length, options=given)
    inputs = load_inputs(job, {}, catalog_file)
    described = inputs.job_file.job
    if described.workload.transformer is None:
        if trace:
            raise InputError("needs workload.transformer in the job file", key="--trace")
        flat = flat_rows(described, inputs.catalog, inputs.measurements, question)
        click.echo(format_memory(flat) if as_json else flat_table(flat), nl=as_json)
        return
    traced = traced_peak(inputs, question, max_duration) if trace else None
    rows = memory_reports(described, inputs.catalog, inputs.measurements, question, traced)
    if as_json:
        click.echo(format_memory(rows))
    else:
        click.echo(memory_text(rows[0]) if instance_type else memory_table(rows), nl=False)
