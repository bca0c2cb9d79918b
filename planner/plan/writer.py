"""Writes a choice down as a plan: what it is, takes and costs, and what stood beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner import __version__
from planner.columns import Quantiles
from planner.contract import Interval
from planner.inputs import Catalog, InstanceType, Job, Measurement, Offer, Provenance
from planner.models import FittedModels
from planner.plan import schema, wording
from planner.plan.spot import spot_block
from planner.probing import FurtherProbe, convergence_source
from planner.search import (
    STOP_SLACK_HOURS,
    Candidate,
    SearchResult,
    SpotOutcome,
    configuration_of,
    excess,
    front,
    preference,
    root_volume_gib,
)

MAX_RUNTIME_FACTOR = 1.25  # over the p95 hours, then up to the next quarter of an hour
ALIKE_PRICES = 1.1
_MOST_ALTERNATIVES = 4
_MOST_PARETO_ROWS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWriter:
    """Writes down a choice: what it is, takes and costs, and what stood beside it."""

    job: Job
    catalog: Catalog
    instance_types: Sequence[InstanceType]
    models: FittedModels
    measurements: Sequence[Measurement]
    measured_noise: float | None
    found: SearchResult
    candidate: Candidate
    outcome: SpotOutcome | None
    cross_validated_error: float | None
    further: FurtherProbe | None

    @property
    def instance_type(self) -> InstanceType:
        return self.catalog.instance_type_by_name[self.candidate.instance_type]

    @property
    def expected(self) -> Candidate:
        """The choice as the search saw it, to be compared with what else it found."""
        return self.outcome.expected if self.outcome else self.candidate

    def plan(self, provenance: Provenance) -> schema.Plan:
        job, candidate = self.job, self.candidate
        estimate = self._estimate()
        plan = schema.Plan(
            scav_version=__version__,
            job=job.name,
            run_id=job.run_id,
            summary=wording.job_summary(job),
            inputs=provenance,
            objective=job.objective_or_default,
            choice=self._choice(),
            run=job.run,
            network=job.network,
            estimate=estimate,
            spot=spot_block(self.outcome, wording.why_mix(self.expected, self.found.finalists))
            if self.outcome
            else None,
            constraints=self._constraints(),
            candidate_count=self.found.candidate_count,
            reason=wording.why(
                job,
                self.found.candidate_count,
                candidate,
                estimate.statistical_efficiency,
                estimate.parallel_efficiency,
            ),
            sensitivity=tuple(wording.sensitivity(self.expected, self.found.finalists, job)),
            alternatives=tuple(self._alternatives()),
            pareto=tuple(option_of(row, self.catalog) for row in _thinned(front(self.found.finalists))),
            evidence=self._evidence(),
        )
        return schema.rounded(plan)

    def _choice(self) -> schema.Choice:
        candidate, instance_type, workload = self.candidate, self.instance_type, self.job.workload
        growth = candidate.global_batch / workload.target.reference_batch
        linear = workload.optimizer in {"sgd", "momentum"}
        several = candidate.nodes > 1
        return schema.Choice(
            instance_type=instance_type.name,
            region=candidate.region,
            availability_zone=candidate.zone,
            other_zones=self._other_zones(),
            node_count=candidate.nodes,
            gpu=instance_type.gpu,
            gpus_per_node=instance_type.gpu_count,
            on_demand_count=candidate.on_demand_count,
            spot_count=candidate.nodes - candidate.on_demand_count,
            global_batch=candidate.global_batch,
            gpu_batch=candidate.gpu_batch,
            accumulation_steps=candidate.accumulation_steps,
            learning_rate_scale=growth if linear else math.sqrt(growth),
            learning_rate_rule="linear" if linear else "square root",
            checkpoint_interval_seconds=round(candidate.checkpoint_interval_seconds),
            max_runtime_hours=self._max_runtime_hours(),
            overrides=tuple(instance_type.name for instance_type in self._overrides()),
            efa_interfaces=instance_type.efa_interfaces if several else 0,
            network_cards=instance_type.network_cards,
            placement_group=several and instance_type.efa_interfaces > 0,
            root_volume_gib=root_volume_gib(workload.checkpoint_bytes_or_default),
            hourly_usd=candidate.hourly_usd,
        )

    def _other_zones(self) -> tuple[str, ...]:
        """Several nodes talk to each other, which is slow and dear across zones; one may look for capacity elsewhere.

        Where it costs about the same: the group takes capacity before price, and the estimate is this zone's.
        """
        offer, candidate = self._offer(self.instance_type), self.candidate
        if offer is None or self.outcome is None or candidate.nodes > 1:
            return ()
        history, most = self.outcome.history, ALIKE_PRICES * (offer.spot_usd[candidate.zone] or 0.0)
        return tuple(
            zone
            for usd, zone in sorted((usd, zone) for zone, usd in offer.spot_usd.items() if usd is not None)
            if zone != candidate.zone
            and usd <= most
            and history.source(self.instance_type.name, zone, offer.interruption_class).ever_there
        )

    def _max_runtime_hours(self) -> float:
        asked = self.job.constraints.max_runtime_hours
        return asked or math.ceil(4 * MAX_RUNTIME_FACTOR * self.candidate.hours.p95) / 4

    def _overrides(self) -> list[InstanceType]:
        """Same GPUs and network cards, in the same zone, at a spot price below the choice's on-demand one."""
        if self.candidate.market == "on_demand":
            return []
        ceiling = self._on_demand_usd(self.instance_type)
        equivalent = [
            (spot_usd, other.name, other)
            for other in self.instance_types
            if other.name != self.instance_type.name
            and _can_replace(other, self.instance_type)
            and (spot_usd := self._spot_usd(other)) is not None
            and spot_usd < ceiling
        ]
        return [other for _, _, other in sorted(equivalent, key=lambda row: row[:2])]

    def _offer(self, instance_type: InstanceType) -> Offer | None:
        offers = self.catalog.offers_by_type[instance_type.name]
        return next((offer for offer in offers if offer.region == self.candidate.region), None)

    def _spot_usd(self, instance_type: InstanceType) -> float | None:
        offer = self._offer(instance_type)
        return offer.spot_usd.get(self.candidate.zone) if offer else None

    def _on_demand_usd(self, instance_type: InstanceType) -> float:
        offer = self._offer(instance_type)
        return (offer.on_demand_usd if offer else None) or 0.0

    def _estimate(self) -> schema.Estimate:
        candidate, models = self.candidate, self.models
        configuration = configuration_of(candidate, self.catalog)
        hours = candidate.hours
        batch, reference_batch = np.array([candidate.global_batch]), self.job.workload.target.reference_batch
        return schema.Estimate(
            hours=interval_of(hours),
            usd=self._usd_interval(),
            samples=interval_of(models.convergence.predict(batch).rows()[0]),
            step_seconds=interval_of(models.step_time.predict(configuration).rows()[0]),
            interruptions=schema.Interruptions(mean=candidate.losses),
            statistical_efficiency=float(models.convergence.efficiency(batch, reference_batch)[0]),
            parallel_efficiency=float(models.step_time.parallel_efficiency(configuration)[0]),
            breakdown=self._breakdown(),
        )

    def _usd_interval(self) -> schema.UsdInterval:
        """Spot never costs more than on demand, so nothing exceeds the maximum."""
        p05, p50, p95 = (min(value, self._max_usd()) for value in self.candidate.usd)
        return schema.UsdInterval(p05=p05, p50=p50, p95=p95, max=self._max_usd())

    def _max_usd(self) -> float:
        """A spot node never costs more than on demand; the dearest type that may stand in counts for all."""
        dearest = max(self._on_demand_usd(instance_type) for instance_type in (self.instance_type, *self._overrides()))
        hourly = self.candidate.nodes * dearest + self.candidate.storage_hourly_usd
        return (self._max_runtime_hours() + STOP_SLACK_HOURS) * hourly

    def _breakdown(self) -> schema.Breakdown:
        """Dollars for traffic are zero: one zone, and object storage of the same region."""
        hours, total = self.candidate.hours.p50, self.candidate.usd.p50
        storage = hours * self.candidate.storage_hourly_usd
        rework = self.outcome.extra_usd_share * (total - storage) if self.outcome else 0.0
        return schema.Breakdown(compute=total - storage - rework, storage=storage, network=0.0, rework=rework)

    def _constraints(self) -> schema.LimitsKept:
        limits = self.job.constraints
        return schema.LimitsKept(
            confidence=limits.confidence,
            deadline_hours=self._limit(limits.deadline_hours, "hours"),
            budget_usd=self._limit(limits.budget_usd, "usd"),
        )

    def _limit(self, limit: float | None, quantity: Literal["hours", "usd"]) -> schema.Limit | None:
        if limit is None:
            return None
        if self.outcome:
            probability = float((getattr(self.outcome.runs, quantity) <= limit).mean())
        else:
            probability = getattr(self.candidate, quantity).probability_at_most(limit)
        return schema.Limit(limit=limit, probability=probability)

    def _alternatives(self) -> list[schema.Alternative]:
        """The best of every other instance type, and of the same one in the other market."""
        objective = self.job.objective_or_default
        ranked = sorted(
            self.found.finalists,
            key=lambda row: (max(excess(row, self.job), 1.0), *preference(row, objective)),
        )
        best: dict[tuple[str, str], Candidate] = {}
        for row in ranked:
            same_type = row.instance_type == self.candidate.instance_type
            key = (row.instance_type, row.market if same_type else "")
            if key != (self.candidate.instance_type, self.candidate.market):
                best.setdefault(key, row)
        rows = list(best.values())[:_MOST_ALTERNATIVES]
        return [
            schema.Alternative(
                **option_of(row, self.catalog).model_dump(), why_not=wording.why_not(row, self.expected, self.job)
            )
            for row in rows
        ]

    def _evidence(self) -> schema.Evidence:
        rows, row = self.measurements, self.candidate
        convergence = convergence_source(self.job, self.measured_noise)
        beyond = self.models.step_time.why_extrapolated(row.instance_type, row.nodes, row.gpu_batch)
        return schema.Evidence(
            probe_count=len(rows),
            probe_usd=sum(row.probe_usd or 0.0 for row in rows),
            cross_validated_error=self.cross_validated_error,
            extrapolated=row.extrapolated,
            statement=wording.evidence(row, rows, convergence, beyond, self.further),
        )


def option_of(row: Candidate, catalog: Catalog) -> schema.Option:
    instance_type = catalog.instance_type_by_name[row.instance_type]
    return schema.Option(
        instance_type=row.instance_type,
        node_count=row.nodes,
        gpu=instance_type.gpu,
        gpus_per_node=instance_type.gpu_count,
        region=row.region,
        availability_zone=row.zone,
        market=row.market,
        on_demand_count=row.on_demand_count,
        global_batch=row.global_batch,
        hours=interval_of(row.hours),
        usd=interval_of(row.usd),
    )


def _can_replace(other: InstanceType, instance_type: InstanceType) -> bool:
    """The same GPUs and network cards, and in nothing else weaker: the slowest node sets the pace."""
    same = ("gpu", "gpu_count", "efa_interfaces", "network_cards")
    at_least = ("network_baseline_gbps", "ram_gib", "vcpu")
    return all(getattr(other, name) == getattr(instance_type, name) for name in same) and all(
        getattr(other, name) >= getattr(instance_type, name) for name in at_least
    )


def interval_of(quantiles: Quantiles) -> Interval:
    return Interval(p05=quantiles.p05, p50=quantiles.p50, p95=quantiles.p95)


def _thinned(rows: list[Candidate]) -> list[Candidate]:
    """Evenly, with both ends: a front of hundreds of rows reads like one of forty."""
    if len(rows) <= _MOST_PARETO_ROWS:
        return rows
    return [rows[round(i * (len(rows) - 1) / (_MOST_PARETO_ROWS - 1))] for i in range(_MOST_PARETO_ROWS)]
