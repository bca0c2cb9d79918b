"""How far the data-sheet prediction is from measured training throughput on one GPU, before any probe.

Reads `lambda-gpu-bench/lambda_train_throughput.csv` below --data and compares every row of a GPU in the catalogue and
a network described here. Prints a Markdown table, or JSON with --json. The model's constants were chosen with these
networks in view, so the error that counts is the held-out one: each network predicted after rescaling on the others
alone; a constant share of peak flops, fitted the same way, stands beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from pathlib import Path

import numpy as np

from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.step_time.model import StepTimeModel
from planner.outside.store import load_catalog

# Forward and backward flops of a sample, parameters and activations kept. Flops: 6 per multiply-add of a pass over
# the network (4.09 G for ResNet-50), 6 x parameters x 384 tokens for BERT on SQuAD. Activations: memory of the GPU over
# the largest batch that the benchmark's authors fitted into 16 GB.
NETWORKS = {
    "resnet50": {"flops_per_sample": 24.5e9, "parameters": 25_557_032, "activation_bytes_per_sample": 60e6},
    "bert_base_squad": {"flops_per_sample": 253e9, "parameters": 110_000_000, "activation_bytes_per_sample": 290e6},
    "bert_large_squad": {"flops_per_sample": 783e9, "parameters": 340_000_000, "activation_bytes_per_sample": 650e6},
}
# The benchmark's names, and the machine of the catalogue that carries the same GPU.
MACHINES = {
    "V100 16GB": "p3.2xlarge",
    "A100 40GB PCIe": "p4d.24xlarge",
    "A100 80GB PCIe": "p4de.24xlarge",
    "A100 80GB SXM4": "p4de.24xlarge",
    "H100 80GB SXM5": "p5.48xlarge",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = compare(arguments.data / "lambda-gpu-bench" / "lambda_train_throughput.csv")
    summary = {
        "rows": rows,
        "mape": mean_error(rows, "predicted"),
        "held_out_mape": mean_error(rows, "held_out"),
        "held_out_constant_mfu_mape": mean_error(rows, "constant_mfu"),
        "coverage90": 100 * statistics.mean(row["low"] <= row["measured"] <= row["high"] for row in rows),
    }
    print(json.dumps(summary, indent=2) if arguments.json else as_markdown(summary))


def compare(file: Path) -> list[dict]:
    """One row per GPU and network: samples per second, median over machines with that GPU."""
    measured: dict[tuple[str, str], list[tuple[float, int]]] = {}
    with file.open(newline="") as stream:
        for row in csv.DictReader(stream):
            known = row["gpu"] in MACHINES and row["model"] in NETWORKS
            if known and row["precision"] == "fp16" and row["n_gpus"] == "1" and float(row["throughput"] or 0) > 0:
                batch = int(float(row["global_batch"]))
                measured.setdefault((row["model"], row["gpu"]), []).append((float(row["throughput"]), batch))
    rows = [
        predicted(network, gpu, statistics.median(rate for rate, _ in runs), runs[0][1])
        for (network, gpu), runs in sorted(measured.items())
    ]
    return [
        row | {"held_out": rescaled(row, rows, "predicted"), "constant_mfu": rescaled(row, rows, "at_peak")}
        for row in rows
    ]


def rescaled(row: dict, rows: list[dict], key: str) -> float:
    """The row's figure times what the other networks' rows say it is off by."""
    others = [other for other in rows if other["network"] != row["network"]]
    return row[key] * math.exp(statistics.mean(math.log(other["measured"] / other[key]) for other in others))


def predicted(network: str, gpu_name: str, rate: float, batch: int) -> dict:
    catalog, _, _ = load_catalog(None, beside=Path("nowhere"))
    kind = catalog.instance_type_by_name[MACHINES[gpu_name]].model_copy(update={"gpu_count": 1})
    gpu = catalog.gpu_of(kind)
    job = Job.model_validate(
        {
            "name": "benchmark",
            "workload": {
                **NETWORKS[network],
                "dataset_samples": 1000,
                "global_batch": batch,
                "precision": "fp16",
                "target": {"epochs": 1, "reference_batch": batch},
            },
        }
    )
    one = Configurations(
        instance_type=kind,
        gpu=gpu,
        nodes=np.array([1]),
        gpu_batch=np.array([batch]),
        accumulation_steps=np.array([1]),
    )
    step = StepTimeModel(job.workload, catalog).predict(one).rows()[0]
    peak = gpu.peak_flops_per_second("fp16")
    assert peak is not None
    return {
        "network": network,
        "gpu": gpu_name,
        "measured": rate,
        "predicted": batch / step.p50,
        "low": batch / step.p95,
        "high": batch / step.p05,
        "at_peak": peak / job.workload.flops_per_sample,
    }


def mean_error(rows: list[dict], key: str) -> float:
    return 100 * statistics.mean(abs(row[key] / row["measured"] - 1) for row in rows)


def as_markdown(summary: dict) -> str:
    lines = ["| network | GPU | measured/s | predicted/s | 90 % interval |", "|---|---|--:|--:|--:|"]
    lines += [
        f"| {row['network']} | {row['gpu']} | {row['measured']:,.0f} | {row['predicted']:,.0f} "
        f"| {row['low']:,.0f} to {row['high']:,.0f} |"
        for row in summary["rows"]
    ]
    figures = (
        f"Mean absolute error {summary['mape']:.1f} %, held out by network {summary['held_out_mape']:.1f} % "
        f"(a constant share of peak flops: {summary['held_out_constant_mfu_mape']:.1f} %); "
        f"{summary['coverage90']:.0f} % of rows inside the 90 % interval."
    )
    return "\n".join([*lines, "", figures])


if __name__ == "__main__":
    main()
