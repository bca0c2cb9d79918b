"""Statistical efficiency, measured: samples to a fixed target at several batch sizes, and what scav would have said.

Trains examples/tiny-transformer to the same held-out loss at every batch size, with the learning rate searched for each
size (the best one must lie inside the grid) and several seeds. Prints the samples that were needed, the fitted curve,
its leave-one-out error, and what the gradient noise alone, and the noise calibrated on two sizes, predict.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from planner.models.convergence.model import ConvergenceModel
from probes.noise import GradientCollector, NoiseEstimate, estimate

TRAIN = Path(__file__).parent.parent / "examples" / "tiny-transformer" / "train.py"
BATCHES = (8, 16, 32, 64, 128, 256)
TARGET = 0.32
EVALUATION_SAMPLES = 256  # held-out loss is looked at after every so many training samples
MOST_SAMPLES = 400_000
SEEDS = (1, 2, 3)
NOISE_BATCH, NOISE_GROUPS = 64, 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    arguments = parser.parse_args()
    if len(arguments.batches) < 3:
        parser.error("a curve needs three batch sizes or more")
    torch.set_num_threads(max(torch.get_num_threads() // 2, 1))
    example = load_example()
    rows = [measure(example, batch) for batch in arguments.batches]
    noise = noise_near_target(example)
    result = {"rows": rows, "noise": {"scale": noise.scale, "low": noise.low, "high": noise.high}, **judge(rows, noise)}
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result))


def load_example() -> Any:
    specification = importlib.util.spec_from_file_location("tiny_transformer", TRAIN)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def measure(example: Any, batch: int) -> dict[str, Any]:
    """Walk the learning rate by factors of two until the best has a worse one on either side, then take more seeds."""
    tried: dict[float, float] = {}
    rate = 2e-3 * math.sqrt(batch / 32)
    while True:
        for factor in (0.5, 1.0, 2.0):
            if rate * factor not in tried:
                tried[rate * factor] = samples_to_target(example, batch, rate * factor, SEEDS[0])
        best = min(tried, key=lambda value: tried[value])
        if min(tried) < best < max(tried):
            break
        rate = best
    samples = [tried[best], *(samples_to_target(example, batch, best, seed) for seed in SEEDS[1:])]
    return {"batch": batch, "learning_rate": best, "samples": statistics.fmean(samples), "runs": samples}


def samples_to_target(example: Any, batch: int, learning_rate: float, seed: int) -> float:
    """Between the last look above the target and the first below it, by straight line."""
    seen, above = 0, (0.0, math.inf)
    for seen, loss in training(example, batch, learning_rate, seed):
        if loss <= TARGET:
            share = (above[1] - TARGET) / (above[1] - loss) if math.isfinite(above[1]) else 1.0
            return above[0] + share * (seen - above[0])
        above = (seen, loss)
    return math.inf


def training(example: Any, batch: int, learning_rate: float, seed: int, model: Any = None) -> Any:
    """Yields samples seen and held-out loss."""
    torch.manual_seed(seed)
    model = model or example.TinyTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    text, held_out = example.generate(2000, seed=1), example.generate(400, seed=2)
    generator = torch.Generator().manual_seed(100 + seed)
    fixed = example.batch_at(held_out, torch.Generator().manual_seed(0), 256)
    steps_between = max(EVALUATION_SAMPLES // batch, 1)
    for step in range(1, MOST_SAMPLES // batch + 1):
        optimizer.zero_grad()
        example.loss_of(model, *example.batch_at(text, generator, batch)).backward()
        optimizer.step()
        if step % steps_between == 0:
            with torch.no_grad():
                yield step * batch, float(example.loss_of(model, *fixed))


def noise_near_target(example: Any) -> NoiseEstimate:
    """At one point of one run, a little above the target, with the parameters standing still."""
    torch.manual_seed(SEEDS[0])
    model = example.TinyTransformer()
    for _, loss in training(example, 32, 2e-3, SEEDS[0], model):
        if loss <= 1.2 * TARGET:
            break
    text, generator = example.generate(2000, seed=1), torch.Generator().manual_seed(7)
    collector = GradientCollector(model.parameters(), NOISE_BATCH)
    while len(collector.groups) < NOISE_GROUPS:
        model.zero_grad()
        example.loss_of(model, *example.batch_at(text, generator, NOISE_BATCH)).backward()
        collector.take()
    return estimate(collector.groups)


def judge(rows: list[dict[str, Any]], noise: NoiseEstimate) -> dict[str, Any]:
    """Mean absolute percentage errors of each way to know the curve."""
    points = [(float(row["batch"]), float(row["samples"])) for row in rows]
    whole = ConvergenceModel().fit(points)
    left_out = [error(points[:i] + points[i + 1 :], [points[i]]) for i in range(len(points))]
    scale = noise.scale if math.isfinite(noise.scale) else None
    return {
        "critical_batch": critical_batch(whole),
        "leave_one_out_mape": statistics.fmean(left_out),
        "noise_alone_mape": error(points[:1], points[1:], scale),
        "noise_and_two_sizes_mape": error([points[0], points[-1]], points[1:-1], scale),
        "constant_mape": statistics.fmean(100 * abs(points[0][1] / samples - 1) for _, samples in points[1:]),
    }


def critical_batch(model: ConvergenceModel) -> float:
    """The most plausible one, were the hyperbola the law."""
    grid = model.laws_[0].parameter
    return float(model.range_[0] * np.exp(grid[int(np.argmax(model.weight_[: len(grid)]))]))


def error(known: list[tuple[float, float]], asked: list[tuple[float, float]], noise: float | None = None) -> float:
    found = ConvergenceModel().fit(known, noise).predict(np.array([int(batch) for batch, _ in asked]))
    return statistics.fmean(
        100 * abs(predicted / samples - 1) for predicted, (_, samples) in zip(found.p50, asked, strict=True)
    )


def as_markdown(result: dict[str, Any]) -> str:
    lines = ["| batch | learning rate | samples to target | seeds |", "|--:|--:|--:|---|"]
    lines += [
        f"| {row['batch']} | {row['learning_rate']:.2e} | {row['samples']:,.0f} "
        f"| {', '.join(f'{run:,.0f}' for run in row['runs'])} |"
        for row in result["rows"]
    ]
    noise = result["noise"]
    curve = (
        f"Fitted critical batch {result['critical_batch']:,.0f}; gradient noise near the target {noise['scale']:,.0f} "
        f"({noise['low']:,.0f} to {noise['high']:,.0f})."
    )
    errors = (
        f"Error: leave one size out {result['leave_one_out_mape']:.1f} %, noise and two sizes "
        f"{result['noise_and_two_sizes_mape']:.1f} %, noise alone {result['noise_alone_mape']:.1f} %, "
        f"constant samples {result['constant_mape']:.1f} %."
    )
    lines += ["", curve, errors]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
