"""How fast scav plans: candidates per second, growth, memory, how long fitting and `scav --help` take.

Prints a Markdown table, or JSON with --json. Every figure stands beside a yardstick from the same run: importing
scikit-learn for planning, importing click for --help. "every strategy" is the same search for a transformer whose
script can do all that scav knows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.inputs.catalog.tables import Catalog

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50-imagenet"
TRANSFORMER = EXAMPLE.parent / "llama-7b-finetune"
EVERYTHING = {"sharding": ["ddp", "zero1", "zero2", "fsdp", "hsdp"], "tensor_parallel": 8, "pipeline": 8}
SCALES = (1, 4, 16)
SCALES_OF_STRATEGIES = (1, 4)
FIT_ROWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale", type=int, help=argparse.SUPPRESS)  # one scale, in a process of its own
    parser.add_argument("--every-strategy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fit", type=int, help=argparse.SUPPRESS)  # seconds of one fit, likewise
    arguments = parser.parse_args()
    if arguments.scale:
        print(json.dumps(plan_scaled(arguments.scale, every_strategy=arguments.every_strategy)))
        return
    if arguments.fit:
        print(json.dumps(fit_seconds(arguments.fit)))
        return
    result = measure()
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result))


def measure() -> dict[str, object]:
    sklearn_seconds = median_seconds([sys.executable, "-c", "import sklearn"], runs=5)
    rows = [measured_apart(["--scale", str(scale)], sklearn_seconds) for scale in SCALES]
    spread = [
        measured_apart(["--scale", str(scale), "--every-strategy"], sklearn_seconds) for scale in SCALES_OF_STRATEGIES
    ]
    fit = json.loads(
        subprocess.run(
            [sys.executable, __file__, "--fit", str(FIT_ROWS)], check=True, capture_output=True, text=True
        ).stdout
    )
    scav = Path(sys.executable).with_name("scav")
    click_seconds, help_seconds = interleaved_seconds(
        [sys.executable, "-c", "import click"], [str(scav), "--help"], runs=20
    )
    return {
        "rows": rows,
        "growth_over_linear": growth_over_linear(rows),
        "every_strategy": spread,
        "every_strategy_growth_over_linear": growth_over_linear(spread),
        "every_strategy_over_flat": spread[0]["seconds"] / rows[0]["seconds"],
        "every_strategy_over_flat_cpu": spread[0]["cpu_seconds"] / rows[0]["cpu_seconds"],
        "import_sklearn_seconds": sklearn_seconds,
        "fit_rows": FIT_ROWS,
        "fit_seconds": fit,
        "whole_command_seconds": whole_command_seconds(scav),
        "import_click_seconds": click_seconds,
        "help_seconds": help_seconds,
        "help_click_multiple": help_seconds / click_seconds,
    }


def measured_apart(arguments: list[str], sklearn_seconds: float) -> dict[str, float]:
    output = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True).stdout
    row = json.loads(output)
    return {**row, "import_sklearn_multiple": row["seconds"] / sklearn_seconds}


def growth_over_linear(rows: list[dict[str, float]]) -> float:
    return rows[-1]["seconds"] / rows[0]["seconds"] / (rows[-1]["candidates"] / rows[0]["candidates"])


def plan_scaled(scale: int, *, every_strategy: bool = False) -> dict[str, float]:
    """The example over the full catalogue, all regions, 1-64 nodes, with every instance type listed `scale` times."""
    from planner.inputs import StrategyOptions
    from planner.inputs.plan_inputs import PlanInputs, Provenance
    from planner.outside.store import load_catalog, load_job
    from planner.plan.build import make_plan

    wide = {"nodes": "1..64", "regions": ["all"], "instance_types": ["*"]}
    job_file = load_job(TRANSFORMER if every_strategy else EXAMPLE, wide)
    if every_strategy:
        workload = job_file.job.workload.model_copy(update={"strategies": StrategyOptions.model_validate(EVERYTHING)})
        job_file = replace(job_file, job=job_file.job.model_copy(update={"workload": workload}))
    catalog, name, digest = load_catalog(None, beside=EXAMPLE)
    larger = repeated(catalog, scale)
    provenance = Provenance(
        job_sha256=digest, measurements_sha256=None, catalog_sha256=digest, catalog=name, catalog_date=catalog.date
    )
    inputs = PlanInputs(job_file=job_file, catalog=larger, measurements=(), provenance=provenance)
    times, cpu_times = [], []
    for _ in range(3):
        start, cpu_start = time.perf_counter(), time.process_time()
        plan = make_plan(inputs)
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    seconds = statistics.median(times)
    return {
        "scale": scale,
        "candidates": plan.candidate_count,
        "seconds": seconds,
        "cpu_seconds": statistics.median(cpu_times),
        "candidates_per_second": plan.candidate_count / seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def fit_seconds(count: int) -> float:
    """Of the step-time model to that many measurements on three instance types, scikit-learn imported."""
    import numpy as np

    from planner.inputs.measurements import Measurement
    from planner.models.step_time.model import StepTimeModel
    from planner.outside.store import load_catalog, load_job

    job, catalog = load_job(EXAMPLE, {}).job, load_catalog(None, beside=EXAMPLE)[0]
    random = np.random.default_rng(0)
    nodes, batches = random.choice([1, 2, 3, 4, 6, 8], count), random.integers(8, 256, count)
    seconds = (0.01 + 0.002 * batches + 0.05 * (nodes - 1) / nodes) * np.exp(0.03 * random.normal(size=count))
    kinds = [catalog.instance_type_by_name[name] for name in ("g4dn.12xlarge", "g5.12xlarge", "p3.8xlarge")]
    rows = [
        Measurement(
            instance_type=kinds[row % 3].name,
            nodes=int(nodes[row]),
            gpus_per_node=kinds[row % 3].gpu_count,
            gpu_batch=int(batches[row]),
            precision=job.workload.precision,
            step_seconds=float(seconds[row]),
        )
        for row in range(count)
    ]
    times = []
    for _ in range(4):
        start = time.perf_counter()
        StepTimeModel(job.workload, catalog).fit(rows)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def repeated(catalog: Catalog, scale: int) -> Catalog:
    names = {kind.name: [f"{kind.name}-{copy}" for copy in range(scale)] for kind in catalog.instance_types}
    return type(catalog)(
        date=catalog.date,
        sources=catalog.sources,
        gpus=catalog.gpus,
        regions=catalog.regions,
        instance_types=tuple(
            kind.model_copy(update={"name": name}) for kind in catalog.instance_types for name in names[kind.name]
        ),
        offers=tuple(
            offer.model_copy(update={"instance_type": name})
            for offer in catalog.offers
            for name in names[offer.instance_type]
        ),
    )


def whole_command_seconds(scav: Path) -> float:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return median_seconds([str(scav), "plan", str(EXAMPLE), "--out", f"{folder}/plan"], runs=5)


def median_seconds(command: list[str], runs: int) -> float:
    return statistics.median(timed(command) for _ in range(runs))


def interleaved_seconds(one: list[str], other: list[str], runs: int) -> tuple[float, float]:
    """A B A B …, so that a busy minute on the machine hits both."""
    pairs = [(timed(one), timed(other)) for _ in range(runs)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def as_markdown(result: dict[str, object]) -> str:
    rows = result["rows"]
    assert isinstance(rows, list)
    spread = result["every_strategy"]
    assert isinstance(spread, list)
    named = [(f"{row['scale']}x", row) for row in rows] + [(f"{row['scale']}x, every strategy", row) for row in spread]
    lines = ["| catalogue | candidates | seconds | x `import sklearn` | candidates/s | peak MiB |", "|--:" * 6 + "|"]
    lines += [
        f"| {name} | {row['candidates']:,} | {row['seconds']:.3f} | {row['import_sklearn_multiple']:.2f} "
        f"| {row['candidates_per_second']:,.0f} | {row['peak_memory_mib']:.0f} |"
        for name, row in named
    ]
    planning = (
        f"`import sklearn`: {result['import_sklearn_seconds']:.3f} s. "
        f"`scav plan` as a command: {result['whole_command_seconds']:.3f} s."
    )
    help_text = (
        f"`scav --help`: {result['help_seconds'] * 1000:.0f} ms, {result['help_click_multiple']:.2f} times "
        f'`python -c "import click"` ({result["import_click_seconds"] * 1000:.0f} ms).'
    )
    growth = f"Growth from {SCALES[0]}x to {SCALES[-1]}x candidates: {result['growth_over_linear']:.2f} of linear."
    strategies = (
        f"Every strategy: {result['every_strategy_over_flat']:.1f} times the wall time and "
        f"{result['every_strategy_over_flat_cpu']:.1f} times the CPU time of the flat job; growth "
        f"{result['every_strategy_growth_over_linear']:.2f} of linear."
    )
    fitting = f"Fitting step times to {result['fit_rows']:,} measurements: {result['fit_seconds']:.2f} s."
    lines += ["", growth, strategies, planning, fitting, help_text]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
