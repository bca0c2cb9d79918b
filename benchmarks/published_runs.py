"""Published training runs beside what scav predicts for them before any probe: their ratio, and whether it is inside.

Two whole runs are typed here with their sources; with --data, torchtitan's tables (bf16, without asynchronous tensor
parallelism) and, of llm-foundry's, the run with most A100 GPUs of each model at 2,048 tokens are taken by these rules
alone. Each runs on the catalogue's machine with the same GPU: p4d (A100 40 GB), p4de (A100 80 GB), p5 (H100), for llm-
foundry with the network that it states, 1,600 Gbit/s a node. What others do not state differs: p4de has 400, and
torchtitan's H100 have less memory bandwidth and power than p5's. The shipped prior of the step time is estimated from
tables among which are torchtitan's and llm-foundry's, so those rows are no test; the two typed runs are not in it.
Prints Markdown, or JSON with --json.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from memory_tables import MPT, SHAPES

from planner.columns import Quantiles
from planner.inputs import Catalog, CountRange, ParallelStrategy, TransformerShape
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.fitted import fit_models
from planner.models.strategies import Strategies
from planner.outside.store import load_catalog
from planner.search.tables import Wanted, strategy_table

DAY = 86_400.0
_LLAMAS = {name.replace(" ", ""): shape for name, shape in SHAPES.items()}
_LLAMAS["llama270b"] = (80, 8192, 64, 8, 28672, 32000, True, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A step of it took so many seconds; without a strategy, as scav would split it among its FSDP strategies."""

    name: str
    source: str
    shape: Mapping[str, Any]
    instance_type: str
    gpus: int
    global_batch: int
    step_seconds: float
    gpu_batch: int | None = None
    strategy: ParallelStrategy | None = None
    network_gbps: float | None = None  # of a node, where it is stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    name: str
    source: str
    cluster: str
    strategy: str
    published_seconds: float
    predicted: Quantiles
    ratio: float
    inside: bool


DGX_A100_GBPS = 1600.0  # eight cards of 200 Gbit/s: NVIDIA's reference system
# 600,000 steps of 12 x 1,024 tokens x 40 micro-steps on 8 GPUs "in about 4 days".
NANOGPT = Run(
    name="GPT-2 124M, 295 B tokens, 4 days",
    source="github.com/karpathy/nanoGPT: README.md, config/train_gpt2.py",
    shape={
        "layers": 12,
        "width": 768,
        "heads": 12,
        "feed_forward_width": 3072,
        "vocabulary": 50304,
        "sequence_length": 1024,
        "gated": False,
        "tied_embeddings": True,
    },
    instance_type="p4d.24xlarge",
    gpus=8,
    global_batch=480,
    gpu_batch=12,
    strategy=ParallelStrategy(),
    step_seconds=4 * DAY / 600_000,
)
# "1T tokens ... 9.5 days on 440 A100-40GB"; batches of 1,760 sequences of 2,048 tokens.
MPT_7B = Run(
    name="MPT-7B, 1 T tokens, 9.5 days",
    source="mosaicml.com/blog/mpt-7b (May 2023); huggingface.co/mosaicml/mpt-7b",
    shape={
        "layers": 32,
        "width": 4096,
        "heads": 32,
        "feed_forward_width": 16384,
        "vocabulary": 50432,
        "sequence_length": 2048,
        "gated": False,
        "tied_embeddings": True,
        "loss": "fused",
    },
    instance_type="p4d.24xlarge",
    gpus=440,
    global_batch=1760,
    step_seconds=9.5 * DAY / (1e12 / 2048 / 1760),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="with llm-tables/ and llm-foundry-tput/")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    catalog = load_catalog(None, beside=Path(__file__).parent)[0]
    runs = [NANOGPT, MPT_7B, *(published(arguments.data) if arguments.data else ())]
    rows = [compared(run, catalog) for run in runs]
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) | {"predicted": row.predicted._asdict()} for row in rows]}))
        return
    print("| run | on | how | step published, s | predicted (90 %) | ratio | inside |")
    print("|---|---|---|--:|--:|--:|---|")
    for row in rows:
        low, middle, high = row.predicted
        interval = f"{middle:.3g} ({low:.3g} to {high:.3g})"
        said = f"{row.published_seconds:.3g} | {interval} | {row.ratio:.2f} | {'yes' if row.inside else '**no**'}"
        print(f"| {row.name} | {row.cluster} | {row.strategy} | {said} |")


def published(folder: Path) -> Iterator[Run]:
    with (folder / "llm-tables" / "torchtitan_fsdp_tp_pp.csv").open(encoding="utf-8", newline="") as lines:
        for cells in csv.DictReader(lines):
            if cells["precision"] == "bf16" and "async" not in cells["note"].lower():
                run = _torchtitan(cells)
                yield run
                if run.instance_type.startswith("p4de"):  # its network is not stated, and AWS's is a quarter of this
                    yield replace(run, name=f"{run.name}, DGX network", network_gbps=DGX_A100_GBPS)
    most: dict[str, dict[str, str]] = {}
    with (folder / "llm-foundry-tput" / "mpt_training_throughput.csv").open(encoding="utf-8", newline="") as lines:
        for cells in csv.DictReader(lines):
            if cells["GPU"].startswith("a100") and cells["SeqLen (T)"] == "2048" and int(cells["# GPUs"]) % 8 == 0:
                known = most.setdefault(cells["Model"].lower(), cells)
                if int(cells["# GPUs"]) > int(known["# GPUs"]):
                    most[cells["Model"].lower()] = cells
    for model in sorted(most, key=list(MPT).index):
        yield _foundry(model, most[model])


def _torchtitan(cells: Mapping[str, str]) -> Run:
    layers, width, heads, keys, hidden, words, gated, tied = _LLAMAS[cells["model"].lower().replace(" ", "")]
    recompute = cells["activation_checkpointing"].partition("-")[0]
    tokens = float(cells["tokens_per_s_per_gpu"]) * int(cells["gpus"])
    return Run(
        name=f"torchtitan {cells['model']}, {cells['activation_checkpointing']} recompute",
        source=f"github.com/pytorch/torchtitan @ {cells['commit'][:7]}: {cells['source_file']}",
        shape={
            "layers": layers,
            "width": width,
            "heads": heads,
            "key_value_heads": keys,
            "feed_forward_width": hidden,
            "vocabulary": words,
            "sequence_length": int(cells["seq_len"]),
            "gated": gated,
            "tied_embeddings": tied,
        },
        instance_type="p5.48xlarge" if cells["gpu_type"].startswith("H100") else "p4de.24xlarge",
        gpus=int(cells["gpus"]),
        global_batch=int(cells["global_batch"]),
        gpu_batch=int(cells["micro_batch"]),
        strategy=ParallelStrategy.model_validate(
            {"sharding": "fsdp", "tensor_parallel": int(cells["tp"]), "recompute": recompute}
        ),
        step_seconds=int(cells["global_batch"]) * int(cells["seq_len"]) / tokens,
    )


def _foundry(model: str, cells: Mapping[str, str]) -> Run:
    layers, width, heads = MPT[model]
    sharding = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "zero2"}.get(cells["Sharding Strategy"], "ddp")
    recompute = "full" if cells["Activation Checkpointing"] == "True" else "none"
    return Run(
        name=f"llm-foundry MPT {model}",
        source="github.com/mosaicml/llm-foundry: scripts/train/benchmarking/README.md",
        shape={
            "layers": layers,
            "width": width,
            "heads": heads,
            "feed_forward_width": 4 * width,
            "vocabulary": 50368,
            "sequence_length": int(cells["SeqLen (T)"]),
            "gated": False,
            "tied_embeddings": True,
            "loss": "fused",
        },
        instance_type="p4de.24xlarge" if "80gb" in cells["GPU"] else "p4d.24xlarge",
        gpus=int(cells["# GPUs"]),
        global_batch=int(cells["GlobalBatchSize"]),
        gpu_batch=int(cells["MicroBatchSize"]),
        strategy=ParallelStrategy.model_validate({"sharding": sharding, "recompute": recompute}),
        step_seconds=int(cells["GlobalBatchSize"]) * int(cells["SeqLen (T)"]) / float(cells["Throughput (T/s)"]),
        network_gbps=1600.0 if "1600 Gbps" in cells["section"] else None,
    )


def compared(run: Run, catalog: Catalog) -> Compared:
    job, catalog = _job(run), _with_network(catalog, run)
    models = fit_models(job, catalog, ())
    one = _configuration(run, job, catalog)
    if run.strategy is None:
        fitting = one.at(models.memory.fits(one))
        one = fitting.at(np.array([int(models.step_seconds(fitting).p50.argmin())]))
    predicted = models.step_seconds(one).rows()[0]
    assert one.strategies is not None
    how = one.strategies.one(0)
    words = [how.sharding, *([f"tensor {how.tensor_parallel}"] if how.tensor_parallel > 1 else [])]
    words.append(f"{how.recompute} recompute, {one.gpu_batch[0]} x {one.accumulation_steps[0]}")
    return Compared(
        name=run.name,
        source=run.source,
        cluster=f"{run.gpus // 8} x {run.instance_type}",
        strategy=", ".join(words),
        published_seconds=run.step_seconds,
        predicted=predicted,
        ratio=predicted.p50 / run.step_seconds,
        inside=predicted.p05 <= run.step_seconds <= predicted.p95,
    )


def _with_network(catalog: Catalog, run: Run) -> Catalog:
    if run.network_gbps is None:
        return catalog
    network = {"network_baseline_gbps": run.network_gbps, "network_peak_gbps": run.network_gbps}
    kinds = tuple(
        kind.model_copy(update=network) if kind.name == run.instance_type else kind for kind in catalog.instance_types
    )
    fields = {name: getattr(catalog, name) for name in Catalog.model_fields}
    return Catalog(**{**fields, "instance_types": kinds})


def _job(run: Run) -> Job:
    return Job.model_validate(
        {
            "name": "published",
            "workload": {
                "transformer": dict(run.shape),
                "dataset_samples": 10**6,
                "global_batch": run.global_batch,
                "strategies": {"sharding": ["fsdp"]},
                "target": {"epochs": 1, "reference_batch": run.global_batch},
            },
            "constraints": {"confidence": 0.5},
        }
    )


def _configuration(run: Run, job: Job, catalog: Catalog) -> Configurations:
    kind, nodes = catalog.instance_type_by_name[run.instance_type], run.gpus // 8
    if run.strategy is None:
        shape, can = TransformerShape.model_validate(run.shape), job.workload.strategies_or_default
        wanted = Wanted(global_batch=CountRange(run.global_batch, run.global_batch))
        return strategy_table(catalog, kind, CountRange(nodes, nodes), shape, can, wanted).configurations
    copies = run.gpus // (run.strategy.tensor_parallel * run.strategy.pipeline)
    steps = max(round(run.global_batch / copies / (run.gpu_batch or 1)), 1)
    return Configurations.of(
        catalog,
        kind,
        nodes=nodes,
        gpu_batch=run.gpu_batch or 1,
        accumulation_steps=steps,
        strategies=Strategies.repeated(run.strategy),
    )


if __name__ == "__main__":
    main()
