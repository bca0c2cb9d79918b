"""How long the best gang of two kinds of machines is looked for, and how that grows with kinds and nodes.

    python benchmarks/mixed_gangs.py

The pool is the catalogue's instance types; where these are too few, also further ones of the same machines at other
prices and with other vCPUs, so that no two are alike. The job is the ResNet-50 example over all regions, once under
quotas that bind and once without any, by cost and by time. Tables of step times are part of what is timed. `seconds`
is the processor's, the median of three searches. Srifty's exhaustive search took 1,503.7 s at 70 instances (MLSys
2022), of fewer nodes and on other hardware.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from planner_speed import repeated

from planner.inputs.catalog.tables import Catalog
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.outside.store import load_catalog, load_job
from planner.search.mixed_gangs import best_mixed_gang
from planner.search.survey import take_survey

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50-imagenet"
KINDS, NODES = (10, 20, 40, 70), (16, 32, 64)
QUOTAS = {"on_demand": {"g": 768, "p": 384}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = [*((kinds, NODES[-1]) for kinds in KINDS), *((KINDS[-1], nodes) for nodes in NODES[:-1])]
    rows = [
        search(kinds, nodes, objective, quotas)
        for objective, quotas in itertools.product(("time", "cost"), (QUOTAS, {}))
        for kinds, nodes in sizes
    ]
    print(json.dumps(rows, indent=2) if arguments.json else as_markdown(rows))


def search(kinds: int, nodes: int, objective: str, quotas: dict[str, Any]) -> dict[str, object]:
    wide = {"nodes": f"1..{nodes}", "regions": ["all"], "instance_types": ["*"], "quotas": quotas}
    job_file = load_job(EXAMPLE, {**wide, "deadline": None, "budget": None})
    job = job_file.job.model_copy(update={"objective": objective})
    catalog, name, digest = load_catalog(None, beside=EXAMPLE)
    larger = pool(catalog, kinds)
    provenance = Provenance(
        job_sha256=digest, measurements_sha256=None, catalog_sha256=digest, catalog=name, catalog_date=catalog.date
    )
    inputs = PlanInputs(job_file=job_file, catalog=larger, measurements=(), provenance=provenance)
    survey = take_survey(inputs)
    times, gang = [], None
    for _ in range(3):
        start = time.process_time()
        gang = best_mixed_gang(job, larger, larger.instance_types, survey.regions, survey.predictors)
        times.append(time.process_time() - start)
    named = zip(gang.nodes, gang.instance_types, strict=True) if gang else ()
    found = " + ".join(f"{count} x {kind}" for count, kind in named)
    quota = "binding" if quotas else "none"
    return {
        "kinds": kinds, "nodes": nodes, "objective": objective, "quotas": quota,
        "seconds": statistics.median(times), "found": found,
    }  # fmt: skip


def pool(catalog: Catalog, count: int) -> Catalog:
    """So many kinds, no two alike: copies are up to a quarter dearer or cheaper, and need other quotas."""
    random = np.random.default_rng(0)
    copies = repeated(catalog, -(-count // len(catalog.instance_types)))
    first = [kind for kind in copies.instance_types if kind.name.endswith("-0")]
    chosen = [*first, *(kind for kind in copies.instance_types if not kind.name.endswith("-0"))][:count]
    factor = {kind.name: 1.0 if kind.name.endswith("-0") else float(random.uniform(0.75, 1.25)) for kind in chosen}
    return copies.model_copy(
        update={
            "instance_types": tuple(
                kind.model_copy(update={"vcpu": max(round(kind.vcpu * factor[kind.name]), 1)}) for kind in chosen
            ),
            "offers": tuple(
                offer.model_copy(
                    update={"on_demand_usd": offer.on_demand_usd and offer.on_demand_usd * factor[offer.instance_type]}
                )
                for offer in copies.offers
                if offer.instance_type in factor
            ),
        }
    )


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| kinds | nodes | objective | quotas | seconds | found |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['kinds']} | {row['nodes']} | {row['objective']} | {row['quotas']} | {row['seconds']:.2f} "
        f"| {row['found'] or '-'} |"
        for row in rows
    ]
    return "\n".join([*lines, "", *growth(rows, "kinds", KINDS), *growth(rows, "nodes", NODES)])


def growth(rows: list[dict[str, Any]], axis: str, values: tuple[int, ...]) -> list[str]:
    """The power of the axis that the seconds rise with, between its ends, at the most of the other."""
    other, most = ("nodes", NODES[-1]) if axis == "kinds" else ("kinds", KINDS[-1])
    lines = []
    for objective, quotas in itertools.product(("time", "cost"), ("binding", "none")):
        ends = [
            next(
                row["seconds"]
                for row in rows
                if (row[axis], row[other], row["objective"], row["quotas"]) == (value, most, objective, quotas)
            )
            for value in (values[0], values[-1])
        ]
        power = math.log(ends[1] / ends[0]) / math.log(values[-1] / values[0])
        lines.append(f"- by {objective}, quotas {quotas}: {axis} to the power {power:.2f}")
    return lines


if __name__ == "__main__":
    main()
