"""Writes a choice down as a plan: what it is, takes and costs, and what stood beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner import __version__
from planner.columns import Quantiles
from planner.contract import Interval, kept_digits
from planner.inputs import Catalog, InstanceType, Job, MeasuredNoise, Measurement, Offer, Provenance
from planner.models import FittedModels
from planner.plan import schema, wording
from planner.plan.feeding import feeding_of, waits
from planner.plan.memory_use import memory_of, too_small
from planner.plan.spot import spot_block
from planner.probing import FurtherProbe, convergence_source
from planner.search import (
    MAX_WAIT_HOURS,
    STOP_SLACK_HOURS,
    Candidate,
    Chosen,
    SearchResult,
    SpotOutcome,
    configuration_of,
    front,
    root_volume_gib,
    step_seconds,
)

MAX_RUNTIME_FACTOR = 1.25  # over the p95 hours, then up to the next quarter of an hour
ALIKE_PRICES = 1.1
WORTH_NAMING = 1.05  # an input that changes the hours by less is none that the answer depends on
USUAL_CONFIDENCE = 0.95  # whose quantile every interval shows
SLOWEST_COPY_BYTES_PER_SECOND = 2**30 / 20  # the module gives a node 20 s for a GiB (user_data.tf)
_MOST_PARETO_ROWS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWriter:
    """Writes down a choice: what it is, takes and costs, and what stood beside it."""

    job: Job
    catalog: Catalog
    instance_types: Sequence[InstanceType]
    models: FittedModels
    measurements: Sequence[Measurement]
    measured_noise: MeasuredNoise | None
    found: SearchResult
    chosen: Chosen
    cross_validated_error: float | None
    further: FurtherProbe | None

    @property
    def instance_type(self) -> InstanceType:
        return self.catalog.instance_type_by_name[self.candidate.instance_type]

    @property
    def candidate(self) -> Candidate:
        return self.chosen.candidate

    @property
    def outcome(self) -> SpotOutcome | None:
        return self.chosen.outcome

    @property
    def shown(self) -> Chosen:
        """The choice and what stands beside it to the digits that are written: sentences speak of nothing else."""
        choice, usd = self.candidate, self._usd_interval()
        capped = choice._replace(
            usd=Quantiles(usd.p05, usd.p50, usd.p95), usd_limit=min(choice.usd_limit, self._max_usd())
        )
        beside = (self.chosen.beaten, self.chosen.without_deadline, self.chosen.without_budget)
        beaten, without_deadline, without_budget = (row and _as_written(row) for row in beside)
        return self.chosen._replace(
            measured=self.chosen.measured._replace(candidate=_as_written(capped)),
            rivals=tuple(_as_written(row) for row in self.chosen.rivals),
            beaten=beaten,
            without_deadline=without_deadline,
            without_budget=without_budget,
        )

    def plan(self, provenance: Provenance) -> schema.Plan:
        job, candidate, shown = self.job, self.candidate, self.shown
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
            spot=spot_block(self.outcome, wording.why_mix(candidate)) if self.outcome else None,
            feeding=feeding_of(candidate, self.models, self.catalog),
            memory=memory_of(candidate, self.models, self.catalog),
            too_small=too_small(self.job, self.models, self.catalog, self.found.too_small, len(self.instance_types)),
            constraints=self._constraints(),
            candidate_count=self.found.candidate_count,
            left_out=self._left_out(),
            compared="closed form" if self.chosen.exact else "simulation",
            reason=wording.why(
                job,
                self.found.candidate_count,
                shown,
                estimate.statistical_efficiency,
                estimate.parallel_efficiency,
            ),
            sensitivity=tuple(self._sensitivity(shown)),
            alternatives=tuple(self._alternative(row, shown.candidate) for row in shown.rivals),
            pareto=tuple(self._option(row) for row in _thinned(front(self._comparable()))),
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
            strategy=candidate.strategy,
            learning_rate_scale=growth if linear else math.sqrt(growth),
            learning_rate_rule="linear" if linear else "square root",
            checkpoint_interval_seconds=round(candidate.checkpoint_interval_seconds),
            max_runtime_hours=self._max_runtime_hours(),
            overrides=tuple(instance_type.name for instance_type in self._overrides()),
            efa_interfaces=instance_type.efa_interfaces if several else 0,
            network_cards=instance_type.network_cards,
            placement_group=several and instance_type.efa_interfaces > 0,
            root_volume_gib=root_volume_gib(
                workload.checkpoint_bytes_or_default, self.job.run.copied_bytes, instance_type.local_ssd_gb
            ),
            hourly_usd=candidate.hourly_usd,
            vcpu_quota=self._vcpu_quota(),
        )

    def _vcpu_quota(self) -> schema.NeededQuota:
        """Falling back, every node may be on demand for a while."""
        row, vcpu = self.candidate, self.instance_type.vcpu
        return schema.NeededQuota(
            family=self.instance_type.quota_class.upper(),
            on_demand=(row.nodes if row.falls_back else row.on_demand_count) * vcpu,
            spot=(row.nodes - row.on_demand_count) * vcpu,
        )

    def _left_out(self) -> schema.LeftOut | None:
        reasons = dict(sorted(self.found.left_out.items(), key=lambda item: (-item[1], item[0])))
        return schema.LeftOut(considered=len(self.instance_types), reasons=reasons) if reasons else None

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
            # What is copied lies on local disks, or every type has a root volume for it.
            and (not self.job.run.copied_bytes or other.local_ssd_gb >= self.instance_type.local_ssd_gb)
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
            step_seconds=interval_of(step_seconds(configuration, models.step_seconds).rows()[0]),
            interruptions=schema.Interruptions(mean=candidate.losses),
            statistical_efficiency=float(models.convergence.efficiency(batch, reference_batch)[0]),
            parallel_efficiency=float(models.parallel_efficiency(configuration)[0]),
            breakdown=self._breakdown(),
            at_confidence=self._at_confidence(candidate._replace(usd_limit=min(candidate.usd_limit, self._max_usd()))),
        )

    def _at_confidence(self, row: Candidate) -> schema.AtConfidence | None:
        if self.job.constraints.confidence == USUAL_CONFIDENCE:
            return None
        return schema.AtConfidence(hours=row.hours_limit, usd=row.usd_limit)

    def _usd_interval(self) -> schema.UsdInterval:
        """Spot never costs more than on demand, so nothing exceeds the maximum."""
        p05, p50, p95 = (min(value, self._max_usd()) for value in self.candidate.usd)
        return schema.UsdInterval(p05=p05, p50=p50, p95=p95, max=self._max_usd())

    def _max_usd(self) -> float:
        """A spot node never costs more than on demand; the dearest type that may stand in counts for all."""
        dearest = max(self._on_demand_usd(instance_type) for instance_type in (self.instance_type, *self._overrides()))
        hourly = self.candidate.nodes * dearest + self.candidate.storage_hourly_usd
        copying = self.job.run.copied_bytes / SLOWEST_COPY_BYTES_PER_SECOND / 3600
        return (MAX_WAIT_HOURS + copying + self._max_runtime_hours() + STOP_SLACK_HOURS) * hourly

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
        return schema.Limit(limit=limit, probability=self.chosen.measured.keeps(quantity, limit))

    def _option(self, row: Candidate) -> schema.Option:
        option = option_of(row, self.catalog, self.models)
        return option.model_copy(update={"at_confidence": self._at_confidence(row)})

    def _alternative(self, row: Candidate, choice: Candidate) -> schema.Alternative:
        late = waits(row, self.models, self.catalog)
        why_not = wording.why_not(row, choice, self.job) + (f"; {late}" if late else "")
        return schema.Alternative(**self._option(row).model_dump(), why_not=why_not)

    def _sensitivity(self, shown: Chosen) -> list[str]:
        doubted, first = self._doubted_input(), not self.measurements
        dependence = [wording.dependence(doubted)] if doubted else []
        probe = wording.probe(self.candidate, self.further, first=first)
        return [*wording.sensitivity(shown, self.job), *dependence, probe]

    def _doubted_input(self) -> schema.DoubtedInput | None:
        doubted = self.models.doubted_steps
        found = doubted.strongest(configuration_of(self.candidate, self.catalog)) if doubted else None
        if found is None:
            return None
        working = 1 - min(self.models.overheads.startup_seconds / 3600 / self.candidate.hours.p50, 1.0)
        hours_factor = None if found.step_factor is None else 1 + working * (found.step_factor - 1)
        if hours_factor is not None and 1 / WORTH_NAMING <= hours_factor <= WORTH_NAMING:
            return None
        return schema.DoubtedInput(
            key=found.key,
            value=found.value,
            origin=found.origin,
            factor=found.factor,
            hours_factor=hours_factor,
        )

    def _comparable(self) -> list[Candidate]:
        """What the choice was drawn from: where it is fed, those that are."""
        return [row for row in self.found.finalists if row.fed or not self.candidate.fed]

    def _evidence(self) -> schema.Evidence:
        rows, row = self.measurements, self.candidate
        convergence = convergence_source(self.job, self.measured_noise)
        beyond = self.models.why_extrapolated(configuration_of(row, self.catalog))
        return schema.Evidence(
            probe_count=len(rows),
            probe_usd=sum(row.probe_usd or 0.0 for row in rows),
            cross_validated_error=self.cross_validated_error,
            extrapolated=row.extrapolated,
            statement=wording.evidence(row, rows, convergence, beyond),
            doubted_input=self._doubted_input(),
        )


def option_of(row: Candidate, catalog: Catalog, models: FittedModels) -> schema.Option:
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
        strategy=row.strategy,
        hours=interval_of(row.hours),
        usd=interval_of(row.usd),
        limited_by_feeding=bool(models.limited_by_feeding(configuration_of(row, catalog))[0]),
    )


def _as_written(row: Candidate) -> Candidate:
    return row._replace(
        hours=Quantiles(*map(kept_digits, row.hours)),
        hours_limit=kept_digits(row.hours_limit),
        usd=Quantiles(*map(kept_digits, row.usd)),
        usd_limit=kept_digits(row.usd_limit),
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
