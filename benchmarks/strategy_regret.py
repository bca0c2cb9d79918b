"""What choosing how to spread a model costs: seconds of the chosen strategy over those of the best measured one.

Reads `llm-tables/` and `llm-foundry-tput/` below --data. A cell is one model on so many GPUs with one global batch, of
which at least two strategies (tensor, stages, data, micro-batch) were measured; a job is all cells of one model on as
many GPUs. The prior never comes from the family that is scored. scav's choosers take what the product's model
predicts to be fastest, or the fastest of what it asked to be measured; never a measurement beside a prediction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_sharded import as_rows, calibrate
from sharded_data import Table, load_tables

from planner.columns import Floats, Ints
from planner.models.sharded_step_time.fitted_steps import FittedSteps, fit_steps
from planner.models.sharded_step_time.posterior import fit_posterior, without_rows
from planner.models.sharded_step_time.prior import ShardedPrior

FEWEST_CELLS = 10
PROBES, RANDOM_PROBES, DRAWS = 5, 25, 10
Cells = Sequence[Ints]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tables, rows = load_tables(arguments.data), []
    for table in tables:
        cells = cells_of(table)
        if len(cells) >= FEWEST_CELLS:
            prior = calibrate([other for other in tables if other is not table])
            rows += scored(table, cells, prior)
    print(json.dumps({"rows": rows}) if arguments.json else text(rows))


def cells_of(table: Table) -> list[Ints]:
    """Rows by model, GPUs and global batch, with a choice."""
    groups = grouped(table.keys("model", "gpu_type", "gpus", "sequence_length", "global_batch"))
    strategies = table.keys("tensor", "pipeline", "data", "micro_batch")
    return [rows for rows in groups if len({strategies[row] for row in rows}) > 1]


def grouped(keys: Sequence[tuple[Any, ...]]) -> list[Ints]:
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return [np.array(found[key], dtype=np.int64) for key in sorted(found)]


def scored(table: Table, cells: Cells, prior: ShardedPrior) -> list[dict[str, Any]]:
    """Every chooser's regret, mean and 90th percentile over cells."""
    cold = FittedSteps(without_rows(prior)).predict(table.layout, table.hardware)[0]
    return [
        row(table, "random", [random_regret(table, rows) for rows in cells]),
        row(table, "tensor parallel fills the node", regrets(table, cells, filled_node(table))),
        row(table, "smallest that fits", regrets(table, cells, smallest(table))),
        row(table, "scav, cold", regrets(table, cells, cold)),
        row(
            table, f"scav, {PROBES} probes that it chose", [after_best_probes(table.at(cell), prior) for cell in cells]
        ),
        row(table, f"scav, {PROBES} probes for all batches", regrets(table, cells, probed(table, cells, prior))),
        row(table, f"scav, {RANDOM_PROBES} random rows", random_rows(table, cells, prior)),
        row(table, "scav, other models' rows", regrets(table, cells, from_other_models(table, prior))),
    ]


def regrets(table: Table, cells: Cells, score: Floats) -> list[float]:
    return [regret(table, rows, int(rows[np.argmin(score[rows])])) for rows in cells]


def regret(table: Table, cell: Ints, chosen: int) -> float:
    return float(np.expm1(table.log_step[chosen] - table.log_step[cell].min()))


def random_regret(table: Table, cell: Ints) -> float:
    return float(np.mean([regret(table, cell, int(chosen)) for chosen in cell]))


def column(table: Table, name: str) -> Floats:
    return np.array([key[0] for key in table.keys(name)])


def filled_node(table: Table) -> Floats:
    """As much tensor parallelism as a node allows, then the largest micro-batch."""
    return -1e3 * column(table, "tensor") - column(table, "micro_batch")


def smallest(table: Table) -> Floats:
    """As few GPUs for one copy as hold it (all of these ran), stages before tensors, then the largest micro-batch."""
    copies = column(table, "tensor") * column(table, "pipeline")
    return 1e6 * copies + 1e3 * column(table, "tensor") - column(table, "micro_batch")


def from_other_models(table: Table, prior: ShardedPrior) -> Floats:
    score = np.zeros(len(table))
    for rows in grouped(table.keys("model")):
        held = np.isin(np.arange(len(table)), rows)
        asked = table.at(held)
        score[held] = fit_steps(as_rows(table.at(~held)), prior).predict(asked.layout, asked.hardware)[0]
    return score


def random_rows(table: Table, cells: Cells, prior: ShardedPrior) -> list[float]:
    found: list[float] = []
    for seed in range(DRAWS):
        drawn = np.random.default_rng(seed).permutation(len(table))[:RANDOM_PROBES]
        fitted = fit_steps(as_rows(table.at(drawn)), prior)
        found += regrets(table, cells, fitted.predict(table.layout, table.hardware)[0])
    return found


def after_best_probes(cell: Table, prior: ShardedPrior) -> float:
    """What is predicted to be fastest is measured, and predicted anew; then the fastest that was measured is taken."""
    every, measured = np.arange(len(cell)), list[int]()
    for _ in range(min(PROBES, len(cell))):
        best = next_best(every, prediction(cell, measured, prior)[0], measured)
        measured += [] if best is None else [best]
    return regret(cell, every, min(measured, key=lambda row: cell.log_step[row]))


def probed(table: Table, cells: Cells, prior: ShardedPrior) -> Floats:
    """Each job's probes, one after the other: of the strategies that would be chosen now, the least certain."""
    jobs, score = table.keys("model", "gpu_type", "gpus", "sequence_length"), np.zeros(len(table))
    for rows in grouped(jobs):
        own = [cell for cell in cells if jobs[cell[0]] == jobs[rows[0]]]
        score[rows] = after_probes(table.at(rows), [np.searchsorted(rows, cell) for cell in own], prior)
    return score


def after_probes(job: Table, cells: Cells, prior: ShardedPrior) -> Floats:
    measured: list[int] = []
    for _ in range(PROBES if cells else 0):
        median, sd = prediction(job, measured, prior)
        chosen = [next_best(cell, median, measured) for cell in cells]
        wanted = [row for row in chosen if row is not None]
        if wanted:
            measured.append(max(wanted, key=lambda row: sd[row]))
    return prediction(job, measured, prior)[0]


def next_best(cell: Ints, median: Floats, measured: Sequence[int]) -> int | None:
    """What would be chosen of the cell, were it not measured yet."""
    left = [int(row) for row in cell if row not in measured]
    return min(left, key=lambda row: median[row]) if left else None


def prediction(job: Table, measured: Sequence[int], prior: ShardedPrior) -> tuple[Floats, Floats]:
    known = as_rows(job.at(np.array(measured, dtype=np.int64)))
    return FittedSteps(fit_posterior(known, prior)).predict(job.layout, job.hardware)


def row(table: Table, chooser: str, found: Sequence[float]) -> dict[str, Any]:
    percent = 100 * np.array(found)
    return {
        "family": table.family,
        "chooser": chooser,
        "mean": round(float(percent.mean()), 2),
        "p90": round(float(np.quantile(percent, 0.9)), 2),
        "cells": len(cells_of(table)),
    }


def text(rows: Sequence[dict[str, Any]]) -> str:
    lines = [["table", "chooser", "mean %", "90th percentile %", "cells"], ["---", "---", "--:", "--:", "--:"]]
    lines += [
        [each["family"], each["chooser"], f"{each['mean']:.1f}", f"{each['p90']:.1f}", str(each["cells"])]
        for each in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
