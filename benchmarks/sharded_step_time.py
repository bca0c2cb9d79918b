"""Step time of sharded training on public tables: the product's model beside constant MFU and plain forests.

Reads `llm-tables/` and `llm-foundry-tput/` below --data; any table with their columns is taken, each as a family of its
own. The prior never comes from the family that is scored (`calibrate_sharded.py --without`). Cold: nothing of the
family is known. Other splits fit the named part of a family and predict the rest: 5 folds of rows, or of
configurations where these repeat; one model, or one (tensor, stages, data) left out; up to the middle number of GPUs ->
more; up to the middle width -> wider; 25 rows -> the rest, ten draws.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_sharded import as_rows, calibrate
from sharded_data import Table, load_tables

from planner.columns import Z95, Flags, Floats
from planner.models.sharded_step_time.fitted_steps import FittedSteps, fit_steps
from planner.models.sharded_step_time.posterior import without_rows
from planner.models.sharded_step_time.prior import ShardedPrior

Parts = Iterator[tuple[Flags, Flags]]  # what is fitted, what is predicted
MANY, SOME, FEW = 300, 100, 40  # rows, for which splits make sense
FOLDS, DRAWS, PROBES = 5, 10, 25
TREES = 40
CONFIGURATION = (
    "model",
    "gpu_type",
    "gpus",
    "tensor",
    "pipeline",
    "context",
    "virtual_stages",
    "sequence_length",
    "micro_batch",
    "global_batch",
    "matmul_flops",
    "gathered_bytes",
)
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--family", nargs="+", help="score only these; the others still make the prior")
    parser.add_argument("--cold", action="store_true", help="only what needs no row of the family")
    arguments = parser.parse_args()
    tables = load_tables(arguments.data)
    rows: list[dict[str, Any]] = []
    for table in tables:
        if arguments.family and table.family not in arguments.family:
            continue
        others = [other for other in tables if other is not table]
        prior = calibrate(others)
        rows += cold(table, others, prior)
        for split, parts in () if arguments.cold else splits(table):
            print(f"{split} …", file=sys.stderr, flush=True)
            rows += scored(split, parts, table, prior)
    print(json.dumps({"rows": rows}) if arguments.json else text(rows))


def cold(table: Table, others: Sequence[Table], prior: ShardedPrior) -> list[dict[str, Any]]:
    median, sd = FittedSteps(without_rows(prior)).predict(table.layout, table.hardware)
    split = f"{table.family}: cold"
    shares = np.array([np.median(other.log_step - ideal_log_step(other)) for other in others])
    guess = ideal_log_step(table) + np.median(shares)
    return [
        row(split, "MFU", guess - table.log_step, np.full(len(table), np.std(shares))),
        row(split, "scav", median - table.log_step, sd),
    ]


def splits(table: Table) -> Iterator[tuple[str, Parts]]:
    name, count = table.family, len(table)
    strategies = table.keys("tensor", "pipeline", "data")
    if count >= MANY:
        yield f"{name}: 5 folds", folds(list(range(count)))
        yield f"{name}: leave one (tp, pp, dp) out", each_left_out(strategies)
    if count >= SOME and len(set(table.model)) >= 3:
        yield f"{name}: leave one model out", each_left_out(table.keys("model"))
    gpus = np.array([each[0] for each in table.keys("gpus")])
    if count >= SOME and len(set(gpus)) > 1:
        yield f"{name}: up to {middle(gpus):g} GPUs -> more", beyond(gpus)
    width = np.array([each[0] for each in table.keys("width")])
    if count >= MANY and len(set(width)) > 1:
        yield f"{name}: width up to {middle(width):g} -> wider", beyond(width)
    if count >= MANY:
        yield f"{name}: {PROBES} rows -> the rest", draws(count)
    elif FEW <= count < SOME:
        # Releases repeat configurations, so that folds of rows would only look them up.
        yield f"{name}: by configuration", folds(table.keys(*CONFIGURATION))


def folds(keys: Sequence[Any]) -> Parts:
    kinds = sorted(set(keys))
    fold = dict(zip(kinds, np.random.default_rng(SEED).permutation(len(kinds)) % FOLDS, strict=True))
    number = np.array([fold[key] for key in keys])
    return ((number != index, number == index) for index in range(FOLDS))


def each_left_out(keys: Sequence[Any]) -> Parts:
    for kind in sorted(set(keys)):
        held = np.array([key == kind for key in keys])
        yield ~held, held


def middle(values: Floats) -> float:
    """The smallest value that half of the rows do not exceed, but never the largest."""
    kinds = np.unique(values)
    return float(next(value for value in kinds if np.mean(values <= value) >= 0.5 or value == kinds[-2]))


def beyond(values: Floats) -> Parts:
    yield values <= middle(values), values > middle(values)


def draws(count: int) -> Parts:
    for seed in range(DRAWS):
        chosen = np.isin(np.arange(count), np.random.default_rng(seed).permutation(count)[:PROBES])
        yield chosen, ~chosen


def scored(split: str, parts: Parts, table: Table, prior: ShardedPrior) -> list[dict[str, Any]]:
    errors: dict[str, list[Floats]] = {}
    spreads: dict[str, list[Floats]] = {}
    for fitted, held in parts:
        known, asked = table.at(fitted), table.at(held)
        for model, predict in predictors(known, prior).items():
            median, sd = predict(asked)
            errors.setdefault(model, []).append(median - asked.log_step)
            spreads.setdefault(model, []).append(np.broadcast_to(sd, len(asked)))
    return [row(split, model, np.concatenate(errors[model]), np.concatenate(spreads[model])) for model in errors]


def predictors(known: Table, prior: ShardedPrior) -> dict[str, Callable[[Table], tuple[Floats, Floats | float]]]:
    share = known.log_step - ideal_log_step(known)
    plain, plain_sd = forest(features(known), known.log_step)
    over, over_sd = forest(features(known), share - np.median(share))
    scav = fit_steps(as_rows(known), prior)
    form = FittedSteps(scav.posterior, None, scav.reach)
    usual = float(np.median(share))
    return {
        "MFU": lambda asked: (ideal_log_step(asked) + usual, float(np.std(share))),
        "forest": lambda asked: (plain.predict(features(asked)), plain_sd),
        "MFU + forest": lambda asked: (ideal_log_step(asked) + usual + over.predict(features(asked)), over_sd),
        "form": lambda asked: form.predict(asked.layout, asked.hardware),
        "scav": lambda asked: scav.predict(asked.layout, asked.hardware),
    }


def forest(columns: Floats, target: Floats) -> tuple[Any, float]:
    from sklearn.ensemble import RandomForestRegressor

    trees = RandomForestRegressor(TREES, max_features=0.5, oob_score=True, random_state=SEED).fit(columns, target)
    return trees, float(np.sqrt(np.mean((target - trees.oob_prediction_) ** 2)))


def features(table: Table) -> Floats:
    names = (
        "layers",
        "width",
        "sequence_length",
        "tensor",
        "pipeline",
        "context",
        "data",
        "micro_batch",
        "accumulation",
    )
    logs = [np.log2(np.array([key[0] for key in table.keys(name)])) for name in names]
    extra = [np.array([key[0] for key in table.keys(name)]) for name in ("recomputed", "matmul_flops", "domain")]
    return np.column_stack((*logs, *extra))


def ideal_log_step(table: Table) -> Floats:
    """At the peak of the data sheet: useful operations alone."""
    layout, hardware = table.layout, table.hardware
    tokens = layout.micro_batch * layout.accumulation * layout.data * layout.sequence_length
    parameters = layout.layers * layout.block_parameters + layout.vocabulary * layout.width
    attention = 12.0 * layout.layers * layout.width * layout.sequence_length
    return np.log(np.asarray(tokens * (6.0 * parameters + attention) / (hardware.matmul_flops * layout.gpus)))


def row(split: str, model: str, error: Floats, sd: Floats) -> dict[str, Any]:
    mape = 100 * float(np.mean(np.abs(np.expm1(error))))
    inside = 100 * float(np.mean(np.abs(error) <= Z95 * np.maximum(sd, 1e-9)))
    return {"split": split, "model": model, "mape": round(mape, 2), "coverage90": round(inside, 1)}


def text(rows: Sequence[dict[str, Any]]) -> str:
    models = ("MFU", "forest", "MFU + forest", "form", "scav")
    cells = {(each["split"], each["model"]): f"{each['mape']:.1f} ({each['coverage90']:.0f})" for each in rows}
    lines = [["error % (inside 90 %)", *models], ["---", *["--:"] * len(models)]]
    named = dict.fromkeys(each["split"] for each in rows)
    lines += [[split, *(cells.get((split, model), "") for model in models)] for split in named]
    mean = np.mean([each["coverage90"] for each in rows if each["model"] == "scav"])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nInside scav's 90 % intervals, mean over splits: {mean:.1f} %."


if __name__ == "__main__":
    main()
