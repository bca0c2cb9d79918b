"""By which number should `scav plan` choose: the upper end of an interval, or its median? Nested, over whole nodes.

Both rules get the same probes, within several limits of `scav probe --max-cost`, and a prior from the other
applications. Each is judged by what its choice costs (or takes) over the best configuration of whole nodes, which is
all that it can choose from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from regret_commands import Commands, Rule, whole_nodes
from regret_data import Problem
from regret_tables import OBJECTIVES
from step_time import Nested

MAX_COSTS_USD = (10.0, 25.0, 50.0, 100.0, math.inf)
RULES: tuple[Rule, ...] = ("upper end", "median")


def compared(problems: Sequence[Problem], nested: Nested, job_usd: float) -> list[dict]:
    """Percent over the best of whole nodes, of each application, objective, limit and rule."""
    return [row for problem in problems for row in _of_problem(problem, nested, job_usd)]


def _of_problem(problem: Problem, nested: Nested, job_usd: float) -> list[dict]:
    whole, scale = whole_nodes(problem), job_usd / float(problem.truth("cost").min())
    commands = Commands(whole, scale, nested.prior_without(problem.app))
    found = []
    for limit in MAX_COSTS_USD:
        probed = commands.with_probes(limit)
        for objective in OBJECTIVES if probed.measured else ():
            truth = whole.truth(objective)
            row = {"app": problem.app, "objective": objective, "max_usd": limit}
            for rule in RULES:
                row[rule] = 100 * float(truth[commands.choose(probed, objective, rule).chosen] / truth.min() - 1)
            found.append(row)
    return found


def as_markdown(rows: Sequence[dict]) -> str:
    """The last row of an objective takes an application as one draw, whatever its limits were."""
    lines = ["", "| objective | probes for at most | upper end % | median % | median less upper end % | ± |"]
    lines += ["|---|---|--:|--:|--:|--:|"]
    for objective in OBJECTIVES:
        own = [row for row in rows if row["objective"] == objective]
        for limit in dict.fromkeys(row["max_usd"] for row in own):
            lines.append(_line(objective, _limit(limit), [row for row in own if row["max_usd"] == limit]))
        lines.append(_line(objective, "**each**", own))
    return "\n".join(lines)


def _line(objective: str, limit: str, rows: Sequence[dict]) -> str:
    apps = dict.fromkeys(row["app"] for row in rows)
    upper, median = (
        [statistics.fmean(row[rule] for row in rows if row["app"] == app) for app in apps] for rule in RULES
    )
    apart = [other - one for one, other in zip(upper, median, strict=True)]
    error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    numbers = (statistics.fmean(upper), statistics.fmean(median), statistics.fmean(apart), error)
    return f"| {objective} | {limit} | {' | '.join(f'{number:.2f}' for number in numbers)} |"


def _limit(usd: float) -> str:
    return "the whole plan" if math.isinf(usd) else f"${usd:g}"
