"""How much worse than the best is what gets chosen, and what do the probes cost? On measured jobs (data/README.md).

Regret: dollars (or hours) of the choice over the best measured configuration, less one. scav is its commands:
`scav probe --on aws` measures its plan on whole nodes, `scav plan` chooses among the measured whole-node configurations
(`regret_commands.py`); once within the default of --max-cost, once with the whole plan measured. The others choose
among the same, by what they predict from that whole plan. CherryPick and random take as many probes of their own, and
the best of them. The best of all may lie on a part of a node, which nobody here can choose: the last row is what whole
nodes allow at best. `scav plan` takes the best at the upper end of its interval; beside it, from the same probes, what
would be the best by its median, and the best of those that were measured. `over whole nodes` is the same over the best
of whole nodes: how well the choice was made among what can be chosen.

Jobs are scaled so that their best configuration costs $1,000, for `probe_share`: dollars spent on probes over that.
A cluster takes 180 s to start, a configuration 450 steps and 60 s. The second table scales jobs to $5, $100 and $1,000:
does probing pay? The third is what `scav predict` says of the whole-node configurations that were not probed. Means
over applications; random starts over several seeds.

Nothing is fitted to the application that is tested but its probes and three batch sizes of convergence. The step-time
model has its prior from all of them; --leave-out-app estimates it again from the other applications alone, and compares
the rules so, with several limits (`regret_rules.py`). `scav tune` decides itself what to measure, for each objective,
here without a limit on its spending.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from regret_commands import Commands, Probed, Rule, whole_nodes
from regret_data import Problem, load_problems
from regret_methods import (
    AS_SCAV_PROBE,
    Task,
    Trial,
    at_random,
    bare_minimum,
    cherry_pick,
    constant_samples,
    ernest,
    forest,
    pollux,
    samples_by_model,
    scavenger,
    scavenger_samples,
)
from regret_rules import as_markdown as rules_table
from regret_rules import compared
from regret_tables import OBJECTIVES, as_markdown, by_job_size, by_method, means
from step_time import Nested
from step_time_data import load_groups

from planner.inputs.job.schema import Objective

JOB_USD = 1000.0
JOB_SIZES = (5.0, 100.0, 1000.0)
SEEDS = {"random": 200, "CherryPick": 10}
QUICK_SEEDS = {"random": 200, "CherryPick": 1}
MAX_COST_USD = 25.0  # what `scav probe` may spend unless it is told otherwise
OTHER_RULES: tuple[Rule, ...] = ("median", "best measured")
NO_PROBES, CAPPED = "scav plan, no probes", f"scav probe for at most ${MAX_COST_USD:g}, scav plan"
PROBES, LEFT_OUT = "scav probe, scav plan", "scav probe, scav plan; app left out"
TUNED, TUNED_LEFT_OUT = "scav tune", "scav tune; app left out"


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
    nested = Nested(load_groups(arguments.data / "sia-sosp23")) if arguments.leave_out_app else None
    jobs = [Job.of(problem, JOB_USD, nested) for problem in problems]
    judged = [row for job in jobs for row in job.judged(seeds)]
    by_size = [row for size in JOB_SIZES for problem in problems for row in Job.of(problem, size, nested).priced()]
    predicted = [row for job in jobs for row in job.predicted()]
    rules = compared(problems, nested, JOB_USD) if nested else []
    if arguments.json:
        step_time = means(predicted, ("method",), ("mape", "coverage90"))
        result = {
            "rows": by_method(judged),
            "by_job_size": by_job_size(by_size),
            "step_time": step_time,
            "rules": rules,
        }
        print(json.dumps(result, indent=2))
    else:
        print(as_markdown(judged, by_size, by_app=arguments.by_app))
        print(step_time_table(predicted))
        if rules:
            print(rules_table(rules))
    print(f"{len(problems)} applications, {time.perf_counter() - started:.0f} s", file=sys.stderr)


class Job(NamedTuple):
    """One application whose best configuration costs `usd`, and what scav's commands know of it in each way."""

    problem: Problem
    whole: Problem
    usd: float
    ways: dict[str, tuple[Commands, Probed]]
    tuners: dict[str, Commands]

    @classmethod
    def of(cls, problem: Problem, usd: float, nested: Nested | None) -> Job:
        whole, scale = whole_nodes(problem), usd / float(problem.truth("cost").min())
        commands = Commands(whole, scale)
        ways = {
            NO_PROBES: (commands, commands.without_probes()),
            CAPPED: (commands, commands.with_probes(MAX_COST_USD)),
            PROBES: (commands, commands.with_probes(math.inf)),
        }
        tuners = {TUNED: commands}
        if nested is not None:
            others = Commands(whole, scale, nested.prior_without(problem.app))
            ways[LEFT_OUT] = (others, others.with_probes(math.inf))
            tuners[TUNED_LEFT_OUT] = others
        return cls(problem, whole, usd, ways, tuners)

    def judged(self, seeds: dict[str, int]) -> Iterator[dict]:
        for objective in OBJECTIVES:
            for method, (commands, probed) in self.ways.items():
                yield self._row(method, objective, commands.choose(probed, objective), probed.probe_usd)
                for rule in OTHER_RULES if probed.measured else ():
                    trial = commands.choose(probed, objective, rule)
                    yield self._row(f"{method}; by {rule}", objective, trial, probed.probe_usd)
            yield from self._tuned(objective)
            probed = self.ways[PROBES][1]
            for method, trial in self._others(objective, seeds):
                own = method in SEEDS
                usd = self._task(objective).probe_share(trial) * self.usd if own else probed.probe_usd
                yield self._row(method, objective, trial, usd)
            best = int(np.argmin(self.whole.truth(objective)))
            yield self._row("the best of whole nodes", objective, Trial([], best), 0.0)

    def _tuned(self, objective: Objective) -> Iterator[dict]:
        for method, commands in self.tuners.items():
            probed = commands.tuned(objective)
            yield self._row(method, objective, commands.choose(probed, objective), probed.probe_usd)

    def _others(self, objective: str, seeds: dict[str, int]) -> Iterator[tuple[str, Trial]]:
        task, (commands, probed) = self._task(objective), self.ways[PROBES]
        measured, own = probed.measured, commands.step_model(probed)
        yield "scav without statistical term", bare_minimum(task, own, measured, constant_samples)
        yield "forest", bare_minimum(task, forest, measured, samples_by_model)
        yield "Pollux", bare_minimum(task, pollux, measured, samples_by_model)
        yield "Ernest", bare_minimum(task, ernest, measured, samples_by_model)
        yield "Scavenger", bare_minimum(task, scavenger, measured, scavenger_samples)
        for seed in range(seeds["CherryPick"]):
            yield "CherryPick", cherry_pick(task, len(measured), seed)
        for seed in range(seeds["random"]):
            yield "random", at_random(task, len(measured), seed)

    def priced(self) -> Iterator[dict]:
        """The cheapest configuration of a job of this size."""
        for method, (commands, probed) in self.ways.items():
            yield self._row(method, "cost", commands.choose(probed, "cost"), probed.probe_usd) | {"job_usd": self.usd}
        for row in self._tuned("cost"):
            yield row | {"job_usd": self.usd}

    def predicted(self) -> Iterator[dict]:
        for method, (commands, probed) in self.ways.items():
            yield {"method": method, "app": self.problem.app, **commands.score(probed)._asdict()}

    def _task(self, objective: str) -> Task:
        return Task(self.whole, objective, self.usd, length=AS_SCAV_PROBE)

    def _row(self, method: str, objective: str, trial: Trial, probe_usd: float) -> dict:
        whole = self.whole.truth(objective)
        return {
            "method": method,
            "objective": objective,
            "app": self.problem.app,
            "probes": len(trial.measured),
            "regret": 100 * float(whole[trial.chosen] / self.problem.truth(objective).min() - 1),
            "over_whole": 100 * float(whole[trial.chosen] / whole.min() - 1),
            "probe_share": 100 * probe_usd / self.usd,
        }


def step_time_table(predicted: list[dict]) -> str:
    lines = ["", "| step time of whole nodes that were not probed | error % | inside 90 % |", "|---|--:|--:|"]
    lines += [
        f"| {row['method'].replace('scav plan', 'scav predict')} | {row['mape']:.1f} | {row['coverage90']:.0f} |"
        for row in means(predicted, ("method",), ("mape", "coverage90"))
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
