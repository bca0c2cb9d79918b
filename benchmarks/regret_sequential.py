"""One probe at a time, each where it is worth most beyond its price: a rule that no command runs yet.

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
import sys
import time
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
from regret_tables import OBJECTIVES, as_markdown, by_job_size, by_method
from step_time import History
from step_time_data import load_groups

from planner.models.step_time.step_formula import DEFAULT_PRIORS

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
        print(json.dumps({"rows": by_method(judged), "by_job_size": by_job_size(by_size)}, indent=2))
    else:
        print(as_markdown(judged, by_size, by_app=arguments.by_app))
    print(f"{len(problems)} applications, {time.perf_counter() - started:.0f} s", file=sys.stderr)


def trials(task: Task, models: dict[str, StepModel], seeds: dict[str, int]) -> Iterator[tuple[str, Trial]]:
    """Scav's, its parts taken away, and others with as many probes."""
    own = {name: by_rule(task, model, MOST_PROBES, samples_by_model) for name, model in models.items()}
    yield from own.items()
    scav, measured = models["scav"], own["scav"].measured
    probes = len(measured)
    yield "scav without statistical term", by_rule(task, scav, MOST_PROBES, constant_samples)
    yield "scav, bare minimum of the model", bare_minimum(task, scav, measured, samples_by_model)
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


if __name__ == "__main__":
    main()
