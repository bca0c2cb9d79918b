"""What other jobs are worth to a new one: step-time errors with and without their measurements, job by job left out.

Every job is predicted from none, one and three probes of its own, once alone and once with all other jobs as
`--history` gives them to `scav predict` and `scav plan`. Errors, shares inside the 90 % interval and log scores are
means over jobs and instance types.

Data-parallel jobs: `sia-sosp23/` and `lambda-gpu-bench/` below --data, on every instance type that a job was measured
on. Probes: one node with the largest batch; with three also one node with the smallest, and two nodes. ResNet-50 and
BERT-base are in both tables with other scripts, so each is left out together with its twin. How much
jobs share is averaged over, but over which sizes they are alike (REACH) was set with these scores in view.

Sharded jobs: `llm-tables/` and `llm-foundry-tput/`; a table's models stand for a user's jobs, one of at most a dozen
left out at a time. The prior comes from the other tables (`calibrate_sharded.py`). Probes: drawn, three times.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_sharded import as_rows, calibrate
from cold_start import NETWORKS
from regret_commands import INSTANCE_TYPES, WORKLOADS
from sharded_data import Table, load_tables
from step_time_data import load_groups

from planner.columns import Z95, Floats, Prediction
from planner.inputs import EarlierJob, Measurement, Workload
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.sharded_step_time.earlier_jobs import prior_after
from planner.models.sharded_step_time.fitted_steps import FittedSteps, fit_steps
from planner.models.sharded_step_time.posterior import without_rows
from planner.models.sharded_step_time.prior import ShardedPrior
from planner.models.step_time.earlier_jobs import NO_HISTORY, History
from planner.models.step_time.history import fit_history
from planner.models.step_time.model import StepTimeModel
from planner.outside.store import load_catalog

Row = dict[str, Any]
CATALOG = load_catalog(None, beside=Path("nowhere"))[0]
# Lambda's machines that the catalogue has whole, by GPU and number of GPUs.
MACHINES = {
    ("V100 16GB", 1): "p3.2xlarge",
    ("V100 16GB", 4): "p3.8xlarge",
    ("V100 16GB", 8): "p3.16xlarge",
    ("A10", 1): "g5.xlarge",
    ("A100 80GB SXM4", 8): "p4de.24xlarge",
    ("H100 80GB SXM5", 1): "p5.4xlarge",
    ("H100 80GB SXM5", 8): "p5.48xlarge",
}
TWINS = {"imagenet": "resnet50", "bert": "bert_base_squad"}
PROBES = (0, 1, 3)
WITH = "with the others"
MOST_MODELS, DRAWS = 12, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    jobs = sia_jobs(arguments.data / "sia-sosp23") + lambda_jobs(arguments.data / "lambda-gpu-bench")
    histories = {
        job.name: fit_history([each for each in jobs if each.name not in (job.name, twin(job))], CATALOG)
        for job in jobs
    }
    rows = score(jobs, histories) + score(jobs, None)
    rows += sharded(load_tables(arguments.data))
    print(json.dumps({"rows": rows}) if arguments.json else as_markdown(rows))


def sia_jobs(folder: Path) -> list[EarlierJob]:
    """Whole nodes of the instance types that have the clusters' hardware."""
    rows: dict[str, list[Measurement]] = {}
    for group in load_groups(folder, tuple(INSTANCE_TYPES)):
        kind = CATALOG.instance_type_by_name[INSTANCE_TYPES[group.cluster]]
        whole = group.at(group.workers == group.nodes * kind.gpu_count)
        columns = zip(whole.nodes, whole.gpu_batch, whole.step_seconds, whole.sync_seconds, strict=True)
        rows.setdefault(group.app, []).extend(
            _row(kind.name, int(nodes), int(batch), "tf32", float(step), float(sync))
            for nodes, batch, step, sync in columns
        )
    return [
        EarlierJob(name=app, workload=_workload(WORKLOADS[app], "tf32"), rows=tuple(rows[app])) for app in WORKLOADS
    ]


def lambda_jobs(folder: Path) -> list[EarlierJob]:
    """Half precision, one node."""
    rows: dict[str, list[Measurement]] = {}
    with (folder / "lambda_train_throughput.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            kind = MACHINES.get((row["gpu"], int(row["n_gpus"])))
            if kind and row["model"] in NETWORKS and row["precision"] == "fp16" and float(row["throughput"] or 0) > 0:
                batch = float(row["global_batch"])
                step = batch / float(row["throughput"])
                each = round(batch / int(row["n_gpus"]))
                rows.setdefault(row["model"], []).append(_row(kind, 1, each, "fp16", step))
    return [EarlierJob(name=name, workload=_workload(NETWORKS[name], "fp16"), rows=tuple(rows[name])) for name in rows]


def _row(kind: str, nodes: int, batch: int, precision: str, step: float, sync: float | None = None) -> Measurement:
    return Measurement.model_validate(
        {
            "instance_type": kind,
            "nodes": nodes,
            "gpus_per_node": CATALOG.instance_type_by_name[kind].gpu_count,
            "gpu_batch": batch,
            "precision": precision,
            "step_seconds": step,
            "exposed_sync_seconds": sync,
        }
    )


def _workload(described: Mapping[str, Any], precision: str) -> Workload:
    amounts = {"dataset_samples": 1000, "global_batch": 8, "target": {"epochs": 1, "reference_batch": 8}}
    job = Job.model_validate({"name": "benchmark", "workload": {**described, **amounts, "precision": precision}})
    return job.workload


def score(jobs: Sequence[EarlierJob], histories: Mapping[str, History] | None) -> list[Row]:
    """None: without history."""
    rows: list[Row] = []
    label = "alone" if histories is None else WITH
    for job in jobs:
        history = NO_HISTORY if histories is None else histories[job.name]
        for name in sorted({row.instance_type for row in job.rows}):
            here = [row for row in job.rows if row.instance_type == name]
            for count in PROBES:
                probes = probes_of(here, count)
                asked = [row for row in here if row not in (probes or ())]
                if probes is not None and asked:
                    found, truth = predicted(job, name, probes, asked, history)
                    spread = np.log(found.p95 / found.p05) / 2 / Z95
                    named = {"job": job.name, "type": name, "probes": count, "with": label}
                    rows.append({**named, **scores(found.p50, spread, truth)})
    return rows


def twin(job: EarlierJob) -> str:
    """The same network in the other table."""
    return {**TWINS, **{other: one for one, other in TWINS.items()}}.get(job.name, job.name)


def probes_of(rows: Sequence[Measurement], count: int) -> list[Measurement] | None:
    """None where the table does not have as many."""
    if not count:
        return []
    one = sorted((row for row in rows if row.nodes == 1), key=lambda row: row.gpu_batch)
    two = sorted((row for row in rows if row.nodes == 2), key=lambda row: row.gpu_batch)
    if count == 1:
        return one[-1:]
    return [one[-1], one[0], two[-1]] if two and len(one) > 1 else None


def predicted(
    job: EarlierJob, name: str, probes: Sequence[Measurement], asked: Sequence[Measurement], history: History
) -> tuple[Prediction, Floats]:
    assert job.workload is not None
    configurations = Configurations.of(
        CATALOG,
        CATALOG.instance_type_by_name[name],
        nodes=np.array([row.nodes for row in asked]),
        gpu_batch=np.array([row.gpu_batch for row in asked]),
    )
    model = StepTimeModel(job.workload, CATALOG, history).fit(probes)
    return model.predict(configurations), np.array([row.step_seconds for row in asked])


def scores(median: Floats, sd: Floats, truth: Floats) -> Row:
    off = np.log(truth / median)
    return {
        "error": 100 * float(np.mean(np.abs(np.expm1(-off)))),
        "inside": 100 * float(np.mean(np.abs(off) <= Z95 * sd)),
        "log": float(np.mean(-0.5 * (off / sd) ** 2 - np.log(sd))),
    }


def sharded(tables: Sequence[Table]) -> list[Row]:
    rows: list[Row] = []
    for table in tables:
        prior = calibrate([other for other in tables if other is not table])
        models = sorted(set(table.model))
        for model in models[:: -(-len(models) // MOST_MODELS)] if len(models) > 1 else ():
            own = np.array([each == model for each in table.model])
            after = prior_after([as_rows(table.at(~own))], prior)
            for label, start in (("alone", prior), (WITH, after)):
                named = {"job": f"{table.family}: {model}", "type": "sharded", "with": label}
                rows += [{**named, **each} for each in sharded_scores(table.at(own), start)]
    return rows


def sharded_scores(own: Table, prior: ShardedPrior) -> Iterator[Row]:
    for count in PROBES:
        for seed in range(DRAWS if count else 1):
            probed = np.isin(np.arange(len(own)), np.random.default_rng(seed).permutation(len(own))[:count])
            if probed.all():
                continue
            asked = own.at(~probed)
            steps = fit_steps(as_rows(own.at(probed)), prior) if count else FittedSteps(without_rows(prior))
            median, sd = steps.predict(asked.layout, asked.hardware)
            yield {"probes": count, **scores(np.exp(median), sd, np.exp(asked.log_step))}


def as_markdown(rows: Sequence[Row]) -> str:
    lines = [
        "| jobs | history | probes | error % | median | inside 90 % | log score |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for kind in ("data parallel", "sharded"):
        own = [row for row in rows if (row["type"] == "sharded") == (kind == "sharded")]
        for count in PROBES:
            for label in ("alone", WITH):
                # Each job counts once, whatever the number of its draws.
                here = [row for row in own if row["probes"] == count and row["with"] == label]
                keys = sorted({(row["job"], row["type"]) for row in here})
                means = [
                    [np.mean([row[what] for row in here if (row["job"], row["type"]) == key]) for key in keys]
                    for what in ("error", "inside", "log")
                ]
                if keys:
                    error, inside, log = (float(np.mean(each)) for each in means)
                    shown = f"{error:.1f} | {np.median(means[0]):.1f} | {inside:.0f} | {log:.2f}"
                    lines.append(f"| {kind} | {label} | {count} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
