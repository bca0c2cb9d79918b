"""How much worse than the best is what gets chosen, and what do the probes cost? On measured jobs (data/README.md).

Regret: dollars (or hours) of the choice over the best possible, less one. Every method may probe as often as scav did,
at most fifteen times over three node types. Jobs are scaled so that their best configuration costs $1,000, for
`probe_share`: dollars spent on probes (180 s for each new cluster to start, 50 steps on each configuration) over that.
The second table scales them to $5, $100 and $1,000: does probing pay? Means over applications; random starts over
several seeds. The rule is told the job's size wrongly by a factor of 1.7 to either side, as a plan from data sheets
would tell it; results are means over both. Nothing is fitted to the application that is tested but its probes and three
batch sizes of convergence; the step-time model's priors are constants, and --leave-out-app estimates them again from
the other applications alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from next_probe import MOST_PROBES
from regret_data import load_problems
from regret_methods import (
    AS_SCAV_PROBE,
    StepModel,
    Task,
    Trial,
    at_random,
    bare_minimum,
    by_rule,
    cherry_pick,
    constant_samples,
    ernest,
    forest,
    greedy,
    pollux,
    samples_by_model,
    scavenger,
    scavenger_samples,
)
from regret_model import scav_with
from step_time import History
from step_time_data import load_groups

from planner.models.step_time.step_formula import DEFAULT_PRIORS

OBJECTIVES = ("cost", "time")
JOB_USD = 1000.0
JOB_SIZES = (5.0, 100.0, 1000.0)
COLD_STARTS = (1 / 1.7, 1.7)  # what a plan without probes says of the job's size, over its true size
SEEDS = {"random": 200, "CherryPick": 10}
QUICK_SEEDS = {"random": 200, "CherryPick": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one random start of CherryPick instead of ten")
    parser.add_argument("--by-app", action="store_true", help="a row for each application as well")
    parser.add_argument("--leave-out-app", action="store_true", help="also with each application's priors from others")
    arguments = parser.parse_args()
    started = time.perf_counter()
    problems = load_problems(arguments.data)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    models = {"scav": scav_with(lambda _app: DEFAULT_PRIORS)}
    if arguments.leave_out_app:
        history = History(load_groups(arguments.data / "sia-sosp23"))
        models["scav, app left out"] = scav_with(cache(history.priors_without))
    tasks = [
        Task(problem, objective, JOB_USD, told=told)
        for problem in problems
        for objective in OBJECTIVES
        for told in COLD_STARTS
    ]
    judged = [judge(task, method, trial) for task in tasks for method, trial in trials(task, models, seeds)]
    by_size = [
        row
        for job_usd in JOB_SIZES
        for problem in problems
        for told in COLD_STARTS
        for row in priced(Task(problem, "cost", job_usd, told=told), models)
    ]
    if arguments.json:
        print(json.dumps({"rows": means(judged, ("method", "objective")), "by_job_size": sizes(by_size)}, indent=2))
    else:
        print(as_markdown(judged, by_size, arguments.by_app))
    print(f"{len(problems)} applications, {time.perf_counter() - started:.0f} s", file=sys.stderr)


def trials(task: Task, models: dict[str, StepModel], seeds: dict[str, int]) -> Iterator[tuple[str, Trial]]:
    """Scav's, its parts taken away, and others with as many probes."""
    own = {name: by_rule(task, model, MOST_PROBES, samples_by_model) for name, model in models.items()}
    yield from own.items()
    scav, measured = models["scav"], own["scav"].measured
    probes = len(measured)
    yield "scav without statistical term", by_rule(task, scav, MOST_PROBES, constant_samples)
    yield "scav, bare minimum of the model", bare_minimum(task, scav, measured)
    yield "forest", greedy(task, forest, probes, samples_by_model)
    yield "Pollux", greedy(task, pollux, probes, samples_by_model)
    yield "Ernest", greedy(task, ernest, probes, samples_by_model)
    yield "Scavenger", greedy(task, scavenger, probes, scavenger_samples)
    for seed in range(seeds["CherryPick"]):
        yield "CherryPick", cherry_pick(task, probes, seed)
    for seed in range(seeds["random"]):
        yield "random", at_random(task, probes, seed)


def priced(task: Task, models: dict[str, StepModel]) -> Iterator[dict]:
    """The cheapest configuration of a job of this size, with the price of probes weighed and without."""
    ways = {name: (task, by_rule(task, model, MOST_PROBES, samples_by_model)) for name, model in models.items()}
    longer = task._replace(length=AS_SCAV_PROBE)
    scav = models["scav"]
    ways["scav, 450 steps and 60 s a probe"] = (longer, by_rule(longer, scav, MOST_PROBES, samples_by_model))
    ways["scav, price ignored"] = (task, by_rule(task, scav, MOST_PROBES, samples_by_model, price_matters=False))
    for method, (priced_task, trial) in ways.items():
        yield judge(priced_task, method, trial) | {"job_usd": task.job_usd}


def judge(task: Task, method: str, trial: Trial) -> dict:
    return {
        "method": method,
        "objective": task.objective,
        "app": task.problem.app,
        "probes": len(trial.measured),
        "regret": 100 * task.regret(trial),
        "probe_share": 100 * task.probe_share(trial),
    }


def means(judged: list[dict], keys: tuple[str, ...]) -> list[dict]:
    """Over the seeds of an application, then over applications."""
    groups: dict[tuple, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for row in judged:
        groups[tuple(row[key] for key in keys)][row["app"]].append(row)
    return [
        dict(zip(keys, group, strict=True))
        | {
            column: statistics.fmean(statistics.fmean(row[column] for row in rows) for rows in apps.values())
            for column in ("probes", "regret", "probe_share")
        }
        for group, apps in groups.items()
    ]


def sizes(by_size: list[dict]) -> list[dict]:
    rows = means(by_size, ("job_usd", "method"))
    return [row | {"probe_share_plus_regret": row["probe_share"] + row["regret"]} for row in rows]


def as_markdown(judged: list[dict], by_size: list[dict], by_app: bool) -> str:
    lines = ["| method | objective | probes | regret % | probe_share % |", "|---|---|--:|--:|--:|"]
    ordered = sorted(means(judged, ("method", "objective")), key=lambda row: OBJECTIVES.index(row["objective"]))
    lines += [f"| {row['method']} | {row['objective']} | {_numbers(row)} |" for row in ordered]
    lines += ["", "| job | method | probes | regret % | probe_share % | both % |", "|--:|---|--:|--:|--:|--:|"]
    lines += [
        f"| ${row['job_usd']:,.0f} | {row['method']} | {_numbers(row)} | {row['probe_share_plus_regret']:.1f} |"
        for row in sizes(by_size)
    ]
    if by_app:
        lines += [
            "",
            "| application | method | objective | probes | regret % | probe_share % |",
            "|---|---|---|--:|--:|--:|",
        ]
        lines += [
            f"| {row['app']} | {row['method']} | {row['objective']} | {_numbers(row)} |"
            for row in means(judged, ("app", "method", "objective"))
        ]
        lines += ["", "| application | job | method | probes | regret % | probe_share % |", "|---|--:|---|--:|--:|--:|"]
        lines += [
            f"| {row['app']} | ${row['job_usd']:,.0f} | {row['method']} | {_numbers(row)} |"
            for row in means(by_size, ("app", "job_usd", "method"))
        ]
    return "\n".join(lines)


def _numbers(row: dict) -> str:
    return f"{row['probes']:.1f} | {row['regret']:.2f} | {row['probe_share']:.2f}"


if __name__ == "__main__":
    main()
