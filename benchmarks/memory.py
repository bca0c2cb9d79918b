"""How well `scav memory` predicts the peaks that others published, and what it refuses of what ran.

Reads every CSV below --data with the columns of `llm-tables` (any such file is taken), and llm-foundry's micro-batches.
Formulas are the product's. The medians and spreads on top of them are estimated twice: from all sets, which are the
values that planner/models/sharded_memory/calibration.py has ("shipped"), and with the set under test left out
("nested"), which is what a new framework may expect. "textbook" has 16 bytes per parameter (2 frozen) by ZeRO stage and
the activations of arXiv 2205.05198, on the average stage. Prints Markdown, or JSON with --json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import accumulate
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import NamedTuple

from memory_tables import Row, load_micro_batches, load_rows

from planner.inputs import TransformerShape
from planner.models.sharded_memory.architecture import parameters
from planner.models.sharded_memory.calibration import (
    SHIPPED,
    Calibration,
    MemoryInterval,
    allocated_interval,
    fit_probability,
    reserved_interval,
)
from planner.models.sharded_memory.peak import peak_memory

LEAST_SD = 0.05  # a set of one row shows no spread
_P95 = NormalDist().inv_cdf(0.95)


class Score(NamedTuple):
    """Shares in percent; counts of rows that ran out of memory, or ran."""

    set: str
    constants: str
    rows: int
    mape: float | None
    bias: float | None
    coverage90: float | None
    oom: int
    oom_called_fits: int
    ran: int
    ran_called_oom: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows, left_out = load_rows(arguments.data)
    micro_batches = list(load_micro_batches(arguments.data))
    estimated = estimate(rows)
    scores = []
    for name in sorted({row.set for row in rows}):
        tested = [row for row in rows if row.set == name]
        others = [row for row in rows if row.set != name]
        scores.append(score(tested, "nested", estimate(others) if others else SHIPPED))
        scores += [score(tested, "shipped", SHIPPED), textbook_score(tested)]
    scores += [refused(micro_batches, SHIPPED)] if micro_batches else []
    if arguments.json:
        said = {"scores": [one._asdict() for one in scores], "constants": estimated._asdict(), "left_out": left_out}
        print(json.dumps(said))
        return
    print("| set | constants | rows | error % | bias % | inside 90 % | out of memory, called fits | ran, refused |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for one in scores:
        numbers = " | ".join("" if value is None else f"{value:.1f}" for value in (one.mape, one.bias, one.coverage90))
        called = f"{one.oom_called_fits} of {one.oom} | {one.ran_called_oom} of {one.ran}"
        print(f"| {one.set} | {one.constants} | {one.rows} | {numbers} | {called} |")
    print(f"\n{left_out} rows left out: what the formulas do not know.")
    print("From all sets:", ", ".join(f"{key} {value:.3f}" for key, value in estimated._asdict().items()))
    print(f"Between configurations of one job: sd {within_jobs(rows):.3f}")


def estimate(rows: Sequence[Row]) -> Calibration:
    """Each set counts once, whatever its number of rows; a kind that no set has takes the middle of all sets."""
    middles: dict[str, tuple[str, float]] = {}
    for name in sorted({row.set for row in rows}):
        ratios = [log(row.bytes_peak / formula(row)) for row in rows if row.set == name and row.bytes_peak]
        if ratios:
            middles[name] = (next(row.kind for row in rows if row.set == name), median(ratios))
    everything = fmean(middle for _, middle in middles.values())

    def of(kind: str) -> float:
        found = [middle for its, middle in middles.values() if its == kind]
        return exp(fmean(found) if found else everything)

    # What is reserved holds what is allocated, and lengths that vary only add holes: no kind needs less than the last.
    kinds = ("allocated", "reserved", "reserved_varying")
    factors = dict(zip(kinds, accumulate(map(of, kinds), max), strict=True))
    spreads: dict[bool, list[float]] = {True: [], False: []}
    for name, (kind, _) in middles.items():
        missed = sorted(
            abs(log(row.bytes_peak / formula(row) / factors[kind]))
            for row in rows
            if row.set == name and row.bytes_peak
        )
        spreads[kind == "reserved_varying"].append(missed[int(0.9 * len(missed))] / _P95)
    steady = max(fmean(spreads[False] or spreads[True]), LEAST_SD)
    return Calibration(**factors, sd=steady, sd_varying=max(fmean(spreads[True] or [steady]), LEAST_SD))


def within_jobs(rows: Sequence[Row]) -> float:
    """What is left of the spread once a job's own middle is known: what its probes cannot tell of other strategies."""
    jobs: dict[tuple[str, TransformerShape, str], list[float]] = {}
    for row in rows:
        if row.bytes_peak and row.kind != "reserved_varying":
            shape = row.shape.model_copy(update={"sequence_length": 1})
            jobs.setdefault((row.set, shape, row.strategy.training), []).append(log(row.bytes_peak / formula(row)))
    squares = sum((each - fmean(ratios)) ** 2 for ratios in jobs.values() for each in ratios)
    return sqrt(squares / sum(len(ratios) - 1 for ratios in jobs.values()))


def formula(row: Row) -> float:
    return peak_memory(row.shape, row.strategy).parts.total


def predicted(row: Row, calibration: Calibration) -> MemoryInterval:
    if row.kind == "allocated":
        return allocated_interval(formula(row), calibration)
    varying = row.kind == "reserved_varying"
    return reserved_interval(formula(row), row.memory_gib, varying=varying, calibration=calibration)


def score(rows: Sequence[Row], constants: str, calibration: Calibration) -> Score:
    intervals = [predicted(row, calibration) for row in rows]
    inside = [
        interval.p05 <= row.bytes_peak <= interval.p95
        for row, interval in zip(rows, intervals, strict=True)
        if row.bytes_peak
    ]
    chances = [
        fit_probability(formula(row), row.memory_gib, varying=row.kind == "reserved_varying", calibration=calibration)
        for row in rows
    ]
    return _scored(rows, constants, [interval.p50 for interval in intervals], chances, 100 * fmean(inside))


def textbook_score(rows: Sequence[Row]) -> Score:
    needed = [textbook(row) for row in rows]
    chances = [float(bytes_ <= row.memory_gib * 2**30) for row, bytes_ in zip(rows, needed, strict=True)]
    return _scored(rows, "textbook", needed, chances, None)


def refused(rows: Sequence[Row], calibration: Calibration) -> Score:
    chances = [fit_probability(formula(row), row.memory_gib, calibration=calibration) for row in rows]
    return Score("llm-foundry", "shipped", len(rows), None, None, None, 0, 0, len(rows), sum(p < 0.5 for p in chances))


def _scored(
    rows: Sequence[Row], constants: str, middles: Sequence[float], chances: Sequence[float], inside: float | None
) -> Score:
    misses = [middle / row.bytes_peak - 1 for row, middle in zip(rows, middles, strict=True) if row.bytes_peak]
    out = [chance for row, chance in zip(rows, chances, strict=True) if row.bytes_peak is None]
    ran = [chance for row, chance in zip(rows, chances, strict=True) if row.bytes_peak is not None]
    return Score(
        set=rows[0].set,
        constants=constants,
        rows=len(misses),
        mape=100 * fmean(map(abs, misses)),
        bias=100 * fmean(misses),
        coverage90=inside,
        oom=len(out),
        oom_called_fits=sum(chance >= 0.9 for chance in out),
        ran=len(ran),
        ran_called_oom=sum(chance < 0.5 for chance in ran),
    )


def textbook(row: Row) -> float:
    shape, strategy = row.shape, row.strategy
    split = strategy.tensor_parallel * strategy.pipeline
    counts = parameters(shape)
    count = (counts.block * shape.layers + counts.embedding + counts.head) / split
    weights = {"lora": 2.0, "qlora": 0.5, "full": 2.0}[strategy.training] * count
    gradients, optimizer = (2 * count, 12 * count) if strategy.training == "full" else (0.0, 0.0)
    shards = strategy.shards
    weights /= shards if strategy.is_gathered else 1
    gradients /= shards if strategy.sharding in ("zero2", "fsdp", "hsdp") else 1
    scores = 5 * shape.heads * shape.sequence_length / shape.width if shape.attention == "eager" else 0.0
    per_token = 2 * shape.width if strategy.recompute == "full" else (34 + scores) * shape.width
    tokens = strategy.micro_batch * shape.sequence_length
    return weights + gradients + optimizer / shards + tokens * shape.layers * per_token / split


if __name__ == "__main__":
    main()
