"""End to end on this machine: the predicted time to a target at configurations nobody probed, against the real one.

Probes examples/tiny-transformer's network at some (workers, local batch), trains it to a held-out loss at two global
batch sizes, fits scav's models to that, and predicts how long training takes elsewhere. Then trains there, three seeds,
in turn with more probes: the machine's mood hits both. Start-up and evaluation do not count. Nothing is gated on it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "examples" / "tiny-transformer"
TARGET = 0.32
SEEDS = (1, 2, 3)
EVALUATION_SAMPLES = 256
MOST_STEPS = 20_000
# Searched by benchmarks/convergence.py; between them, interpolated on logarithms.
LEARNING_RATES = {16: 1.13e-2, 32: 8e-3, 128: 8e-3}


class Place(NamedTuple):
    workers: int
    gpu_batch: int

    @property
    def global_batch(self) -> int:
        return self.workers * self.gpu_batch

    def __str__(self) -> str:
        return f"{self.workers} x {self.gpu_batch}"


PROBED = (Place(1, 16), Place(1, 128), Place(2, 16), Place(2, 64))
NOT_PROBED = (Place(1, 48), Place(2, 32))
TRAINED_BATCHES = (16, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="probe once, and train once per known batch size")
    parser.add_argument("--train", type=int, metavar="SEED", help=argparse.SUPPRESS)  # what the processes run
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(arguments.train)
        return
    result = measure(quick=arguments.quick)
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result))


def measure(*, quick: bool) -> dict[str, Any]:
    rows: list[Any] = []
    runs: dict[Place, list[dict[str, float]]] = {place: [] for place in NOT_PROBED}
    known: dict[int, list[float]] = {batch: [] for batch in TRAINED_BATCHES}
    loads = []
    for number, seed in enumerate(SEEDS):
        loads.append(os.getloadavg()[0])
        if number == 0 or not quick:
            rows += [probe(place, quick=quick) for place in PROBED]
            for batch in TRAINED_BATCHES:
                known[batch].append(run_training(Place(1, batch), seed)["samples"])
        for place in NOT_PROBED:
            runs[place].append(run_training(place, seed))
    samples = {batch: statistics.fmean(values) for batch, values in known.items()}
    return {
        "target_loss": TARGET,
        "load_averages": loads,
        "cores": os.cpu_count(),
        "probes": [
            {"workers": row.gpus_per_node, "gpu_batch": row.gpu_batch, "step_seconds": row.step_seconds} for row in rows
        ],
        "known_samples": samples,
        "rows": [compare(place, rows, samples, runs[place]) for place in NOT_PROBED],
    }


def compare(place: Place, rows: list[Any], samples: dict[int, float], runs: list[dict[str, float]]) -> dict[str, Any]:
    found = predict(place, rows, samples)
    measured = statistics.median(run["seconds"] for run in runs)
    plain = plain_seconds(place, rows, samples)
    return {
        "workers": place.workers,
        "gpu_batch": place.gpu_batch,
        **found,
        "measured_seconds": measured,
        "runs": runs,
        "inside": sum(found["p05"] <= run["seconds"] <= found["p95"] for run in runs),
        "error_percent": 100 * (found["p50"] / measured - 1),
        "samples_error_percent": 100 * (found["samples"] / statistics.median(run["samples"] for run in runs) - 1),
        "step_error_percent": 100
        * (found["step_seconds"] / statistics.median(run["seconds"] / run["steps"] for run in runs) - 1),
        "plain_seconds": plain,
        "plain_error_percent": 100 * (plain / measured - 1),
    }


def predict(place: Place, rows: list[Any], samples: dict[int, float]) -> dict[str, float]:
    """With the models that `scav plan` uses; a process counts as a slow GPU, so many of them as a machine."""
    from planner.models.configurations import Configurations
    from planner.models.fitted import fit_models

    catalog = this_machine()
    fitted = fit_models(job_with(samples), catalog, rows)
    kind = catalog.instance_type_by_name[f"local.{place.workers}"]
    wanted = Configurations(
        instance_type=kind,
        gpu=catalog.gpu_of(kind),
        nodes=np.array([1]),
        gpu_batch=np.array([place.gpu_batch]),
        accumulation_steps=np.array([1]),
    )
    step, needed = fitted.step_time.predict(wanted), fitted.convergence.predict(wanted.global_batch)
    (seconds,) = step.times(needed).scaled(1 / place.global_batch).rows()
    return {**seconds._asdict(), "samples": float(needed.p50[0]), "step_seconds": float(step.p50[0])}


def job_with(samples: dict[int, float]) -> Any:
    """The example's job; what is known of its convergence is what was found just now."""
    from planner.inputs.job.target import Convergence, Target
    from planner.outside import store

    (first, needed), *others = samples.items()
    job = store.load_job(EXAMPLE, {}).job
    target = Target.model_validate({"samples": needed, "reference_batch": first})
    runs = [{"batch": batch, "samples": value} for batch, value in others]
    known = {"target": target, "convergence": Convergence.model_validate({"runs": runs})}
    return job.model_copy(update={"workload": job.workload.model_copy(update=known)})


def plain_seconds(place: Place, rows: list[Any], samples: dict[int, float]) -> float:
    """What one would say without models: as many samples as ever, at the nearest probe's seconds per sample."""
    like = [row for row in rows if row.gpus_per_node == place.workers]
    nearest = min(like, key=lambda row: abs(np.log(row.gpu_batch / place.gpu_batch)))
    steps = [row.step_seconds for row in like if row.gpu_batch == nearest.gpu_batch]
    return samples[min(samples)] * statistics.median(steps) / (place.workers * nearest.gpu_batch)


def this_machine() -> Any:
    """A catalogue of what one and two processes are here, with a data sheet that was measured."""
    import torch

    from planner.inputs.catalog.snapshot import parse_catalog
    from planner.inputs.catalog.tables import Catalog
    from planner.outside import assets

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    square, block, other = torch.ones(512, 512), torch.ones(16 * 2**20), torch.ones(16 * 2**20)
    flops = 2 * 512**3 / fastest(lambda: square @ square)
    bandwidth = 2 * 4 * block.numel() / fastest(lambda: other.copy_(block))
    torch.set_num_threads(before)
    catalog = parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="catalog")
    sheet = {"memory_bandwidth_gb_per_second": bandwidth / 1e9, "dense_tflops": {"fp32": flops / 1e12}}
    gpu = catalog.gpus[0].model_copy(update={"name": "core", **sheet})
    like = next(kind for kind in catalog.instance_types if kind.gpu_count == 1 and not kind.efa_interfaces)
    kinds = [
        like.model_copy(update={"name": f"local.{workers}", "gpu": "core", "gpu_count": workers}) for workers in (1, 2)
    ]
    return Catalog.model_construct(**{**dict(catalog), "gpus": (gpu,), "instance_types": tuple(kinds)})


def fastest(work: Any, repeats: int = 10) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def probe(place: Place, *, quick: bool) -> Any:
    from planner.outside.runners.local import LocalRunner, Script
    from planner.probing.probe_plan import LOCAL, Probe

    script = Script(folder=Path(__file__).parent, command=(Path(__file__).name, "--train", "0"))
    runner = LocalRunner(script=script, timeout_seconds=300, windows=3 if quick else 8, window_steps=10)
    asked = Probe(LOCAL, 1, place.workers, place.gpu_batch, 1, "fp32")
    row = runner.run(asked, reference_batch=TRAINED_BATCHES[0], measure_noise=False)
    return row.model_copy(update={"instance_type": f"local.{place.workers}"})


def run_training(place: Place, seed: int) -> dict[str, float]:
    """In processes of its own, as a probe has."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={place.workers}"]
    environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "SCAV_GPU_BATCH": str(place.gpu_batch)}
    finished = subprocess.run(
        [*torchrun, __file__, "--train", str(seed)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return found


def train(seed: int) -> None:
    """To the target, on as many processes as there are; under a probe until that ends it. Prints what it took."""
    import torch

    from probes.cluster import join, this_place

    example, place = load_example(), this_place()
    join(place)
    batch = int(os.environ["SCAV_GPU_BATCH"])
    rate = learning_rate(batch * place.world_size)
    torch.manual_seed(seed)
    model = example.TinyTransformer()
    if place.world_size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    text, generator = example.generate(2000, seed=1), torch.Generator().manual_seed(100 * seed + place.rank)
    fixed = example.batch_at(example.generate(400, seed=2), torch.Generator().manual_seed(0), 256)

    def step() -> None:
        optimizer.zero_grad()
        example.loss_of(model, *example.batch_at(text, generator, batch)).backward()
        optimizer.step()

    def held_out() -> float:
        with torch.no_grad():
            return float(example.loss_of(getattr(model, "module", model), *fixed))

    if "SCAV_PROBE_OUTPUT" in os.environ:
        while True:
            step()
    steps, seconds = until_target(step, held_out, max(EVALUATION_SAMPLES // (batch * place.world_size), 1))
    if place.rank == 0:
        samples = steps * batch * place.world_size
        print(json.dumps({"steps": steps, "samples": samples, "seconds": seconds}), flush=True)
    if place.world_size > 1:
        torch.distributed.destroy_process_group()


def learning_rate(global_batch: int) -> float:
    batches, rates = (np.log(column) for column in zip(*LEARNING_RATES.items(), strict=True))
    return float(np.exp(np.interp(np.log(global_batch), batches, rates)))


def until_target(step: Any, held_out: Any, steps_between: int) -> tuple[int, float]:
    """Between the last look above the target and the first below it, by straight line."""
    above, (steps, seconds) = (0, 0.0, float("inf")), (0, 0.0)
    for part in timed(step, steps_between):
        steps, seconds = steps + steps_between, seconds + part
        loss = held_out()
        if loss <= TARGET:
            share = (above[2] - TARGET) / (above[2] - loss) if np.isfinite(above[2]) else 1.0
            return round(above[0] + share * (steps - above[0])), above[1] + share * (seconds - above[1])
        above = (steps, seconds, loss)
        if steps > MOST_STEPS:
            raise SystemExit("the target was not reached")
    raise AssertionError


def timed(step: Any, count: int) -> Iterator[float]:
    while True:
        start = time.perf_counter()
        for _ in range(count):
            step()
        yield time.perf_counter() - start


def load_example() -> Any:
    specification = importlib.util.spec_from_file_location("tiny_transformer", EXAMPLE / "train.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def as_markdown(result: dict[str, Any]) -> str:
    heading = (
        *("workers x local batch", "predicted (90 %)", "measured, by seed", "error", "of it in steps", "in samples"),
        *("runs inside", "without models", "error"),
    )
    lines = [f"| {' | '.join(heading)} |", f"|---{'|--:' * (len(heading) - 1)}|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["rows"]]
    probes = [f"{row['workers']} x {row['gpu_batch']}: {1000 * row['step_seconds']:.1f} ms" for row in result["probes"]]
    known = [f"{samples:,.0f} at batch {batch}" for batch, samples in result["known_samples"].items()]
    loads = [f"{load:.1f}" for load in result["load_averages"]]
    lines += [
        "",
        f"Load before each round: {', '.join(loads)} on {result['cores']} cores; far above, times say little.",
    ]
    lines += [f"Probed: {', '.join(probes)}.", f"Samples to a loss of {TARGET}: {', '.join(known)}."]
    return "\n".join(lines)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    seconds = [f"{run['seconds']:.1f}" for run in row["runs"]]
    return (
        f"{row['workers']} x {row['gpu_batch']}",
        f"{row['p50']:.1f} s ({row['p05']:.1f} to {row['p95']:.1f})",
        f"{', '.join(seconds)} s",
        *(f"{row[f'{name}error_percent']:+.0f} %" for name in ("", "step_", "samples_")),
        f"{row['inside']} of {len(seconds)}",
        f"{row['plain_seconds']:.1f} s",
        f"{row['plain_error_percent']:+.0f} %",
    )


if __name__ == "__main__":
    main()
