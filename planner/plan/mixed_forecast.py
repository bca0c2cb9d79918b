"""What a gang of two kinds of machines would do, beside the best of one kind. Plans rent one kind: this one is told."""

from __future__ import annotations

import json
from typing import NamedTuple

from planner.columns import Quantiles
from planner.contract import six_digits
from planner.errors import InputError, NoFeasiblePlan
from planner.inputs import PlanInputs
from planner.search import NEAR_TIE, Candidate, MixedGang, Survey, best_mixed_gang, choose_candidate, cluster
from planner.units import counted, format_hours, format_usd


class MixedForecast(NamedTuple):
    """The best gang of two kinds, if it wins by more than a near tie; None of one kind where none keeps the limits."""

    gang: MixedGang | None
    alone: Candidate | None


def forecast_mixed(inputs: PlanInputs, survey: Survey) -> MixedForecast:
    job = inputs.job_file.job
    if job.workload.transformer is not None:
        raise InputError("knows no strategies: the job must have no workload.transformer", key="--mixed")
    if job.objective_or_default == "knee":
        raise InputError("needs an objective that orders all clusters: cost or time", key="--mixed")
    try:
        alone = choose_candidate(inputs, survey).candidate
    except NoFeasiblePlan:
        alone = None
    best = float("inf")
    if alone is not None:
        best = alone.hours_limit if job.objective_or_default == "time" else alone.usd_limit
    gang = best_mixed_gang(
        job, inputs.catalog, survey.instance_types, survey.regions, survey.predictors, best / (1 + NEAR_TIE)
    )
    return MixedForecast(gang, alone)


def mixed_text(found: MixedForecast) -> str:
    gang, alone = found
    single = "nothing keeps the limits"
    if alone is not None:
        market = alone.market.replace("_", "-")
        single = f"{cluster(alone)} ({market}): {format_hours(alone.hours.p50)}, {format_usd(alone.usd.p50)}"
    if gang is None and alone is None:
        return "Neither one kind nor a gang of two keeps the limits.\n"
    if gang is None:
        return f"No gang of two kinds beats one kind by more than a near tie.\nOne kind: {single}\n"
    kinds = list(zip(gang.instance_types, gang.nodes, gang.gpus_per_node, gang.gpu_batches, gang.weights, strict=True))
    lines = [
        f"{' + '.join(f'{count} x {name}' for name, count, *_ in kinds)}, on-demand in {gang.zone} ({gang.region})",
        f"  time   {_hours(gang.hours)}",
        f"  cost   {_usd(gang.usd)}, {format_usd(gang.hourly_usd)} an hour",
        f"  step   {gang.step_seconds.p50:.3g} s, global batch {gang.global_batch:,}",
        *(
            f"  each of {counted(count * gpus, 'GPU')} of {name}: local batch {batch:,}, gradient weight {weight:.3f}"
            for name, count, gpus, batch, weight in kinds
        ),
        f"One kind: {single}",
        "No step of such a gang was measured" + ("; far from any probe." if gang.extrapolated else "."),
        "scav plan rents one kind: this cluster, the local batches and the weights are yours to set up.",
    ]
    return "\n".join(lines) + "\n"


def mixed_json(inputs: PlanInputs, found: MixedForecast) -> str:
    gang, alone = found
    content = {
        "job": inputs.job_file.job.name,
        "catalog": inputs.provenance.catalog,
        "gang": None if gang is None else {**_plain(gang), "gradient_weights": list(gang.weights)},
        "one_kind": None
        if alone is None
        else {
            "instance_type": alone.instance_type,
            "nodes": alone.nodes,
            "market": alone.market,
            "hours": alone.hours._asdict(),
            "usd": alone.usd._asdict(),
        },
    }
    return json.dumps(six_digits(content), indent=2, ensure_ascii=False)


def _plain(gang: MixedGang) -> dict[str, object]:
    return {
        name: value._asdict() if isinstance(value, Quantiles) else list(value) if isinstance(value, tuple) else value
        for name, value in gang._asdict().items()
    }


def _hours(hours: Quantiles) -> str:
    return f"{format_hours(hours.p50)} (90 %: {format_hours(hours.p05)} to {format_hours(hours.p95)})"


def _usd(usd: Quantiles) -> str:
    return f"{format_usd(usd.p50)} (90 %: {format_usd(usd.p05)} to {format_usd(usd.p95)})"
