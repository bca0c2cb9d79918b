"""What DeepVM would rent for this job and so much an hour: its inputs from the catalogue, its answers as candidates.

Operations per second are the data sheet's at the job's precision, prices those of the cheapest zone, and the scaling
curve of each type is fitted to the speed-ups that scav's own step-time model predicts: also of the three types whose
curves the paper measured, because it measured another job. The budget pays machines alone, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.columns import Quantiles
from planner.errors import NoFeasiblePlan
from planner.inputs import GP3_MIBPS, Catalog, CountRange, InstanceType, Job
from planner.models import Configurations
from planner.search.candidates import every_split, root_volume_gib, volume_hourly_usd
from planner.search.deepvm.inputs import Cluster, CpuType, GpuType, Limits, Quota
from planner.search.deepvm.policies import recommend
from planner.search.deepvm.published import CPU_TYPES
from planner.search.deepvm.scaling import Scaling, fit_scaling
from planner.search.every_candidate import evaluate
from planner.search.pricing import Candidate, Predictors
from planner.search.ranking import preference

# The catalogue prices GPU machines only. These are the DeepVM paper's (arXiv 2403.05861): on-demand prices of 2023,
# which are those of us-east-1; without a price there is no memory tier elsewhere.
MEMORY_TYPES: Mapping[str, tuple[CpuType, ...]] = {"us-east-1": CPU_TYPES}
MEMORY_TYPES_SOURCE = "the DeepVM paper's of 2023"
# A memory node keeps checkpoints in half of its memory, and a file stays on one node (modules/gpu-cluster/README.md):
# so each has room for two of them, one being written beside the last.
CHECKPOINTS_IN_MEMORY = 4.0
MOST_MEMORY_NODES = 100  # as the Terraform module allows
_FEWEST_NODES_TO_FIT, _MOST_POINTS_TO_FIT = 8, 16

ScalingOf = Callable[[InstanceType], Scaling | None]


class Rental(NamedTuple):
    """One of DeepVM's clusters, and where it stands."""

    region: str
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepVm:
    """DeepVM on a job and a catalogue. `scaling_of` replaces the curves that scav's step times give."""

    job: Job
    catalog: Catalog
    instance_types: Sequence[InstanceType]
    regions: tuple[str, ...]
    predictors: Predictors
    memory_types: Mapping[str, tuple[CpuType, ...]] = field(default_factory=lambda: MEMORY_TYPES)
    scaling_of: ScalingOf | None = None

    def rentals(self, hourly_budget_usd: float, count: int) -> list[Rental]:
        """The best first, runners-up after it. Raises NoFeasiblePlan where the money buys none."""
        limits, found, refusals = self._limits(hourly_budget_usd), [], []
        machines = list(self._machines())
        for region in self.regions:
            gpus = [gpu for machine in machines for gpu in self._offered(machine, region)]
            try:
                best = recommend(gpus, self.memory_types.get(region, ()), limits, count)
            except NoFeasiblePlan as error:
                refusals.append((region, error))
                continue
            found += [Rental(region, cluster) for cluster in best]
        if not found:
            raise self._refusal(refusals)
        found.sort(key=lambda row: (-row.cluster.value, row.cluster.hourly_micro_usd))
        return found[:count]

    def candidate(self, rental: Rental) -> Candidate:
        """With the batch that is cheapest at the job's confidence; hours and dollars are scav's own estimate."""
        cluster = rental.cluster
        instance_type = self.catalog.instance_type_by_name[cluster.gpu.name]
        nodes = CountRange(cluster.nodes, cluster.nodes)
        rows = every_split(self.catalog, instance_type, nodes, self.job.workload.global_batch)
        rows = rows.at(self.predictors.fits(rows))
        base = cluster.on_demand_nodes
        found = evaluate(self.job, self.catalog, rows, (rental.region,), self.predictors, "spot", base)
        return self._with_memory_nodes(min(found, key=lambda row: preference(row, "cost")), rental)

    def scaled_batch(self, instance_type: InstanceType) -> int:
        """The local batch of the scaling curve: the largest that fits the memory and, on one node, the job's range."""
        most = self.job.workload.global_batch.high // instance_type.gpu_count
        return max(min(self.predictors.largest_batch(instance_type), most), 1)

    @property
    def scaled_nodes(self) -> CountRange:
        """Over which the curve is fitted: the job's range, or a little more where that has too few points."""
        return CountRange(1, max(self.job.constraints.nodes.high, _FEWEST_NODES_TO_FIT))

    def holds_checkpoints(self, region: str) -> bool:
        """Whether some priced machine there could be a memory node."""
        needed = self._limits(1.0).memory_gib
        return any(cpu.memory_gib >= needed for cpu in self.memory_types.get(region, ()))

    def _limits(self, hourly_budget_usd: float) -> Limits:
        quotas = self.job.constraints.quotas
        by_class = {
            name: Quota(on_demand_vcpu=getattr(quotas.on_demand, name), spot_vcpu=getattr(quotas.spot, name))
            for name in ("g", "p")
        }
        # DeepVM takes one node less than a quota allows.
        by_class |= {
            cpu.quota_class: Quota(on_demand_vcpu=(MOST_MEMORY_NODES + 1) * cpu.vcpu)
            for cpus in self.memory_types.values()
            for cpu in cpus
        }
        return Limits(
            hourly_budget_usd=hourly_budget_usd,
            checkpoint_gib=self.job.workload.checkpoint_bytes_or_default / 2**30,
            buffered_checkpoints=CHECKPOINTS_IN_MEMORY,
            quotas=by_class,
        )

    def _machines(self) -> Iterator[_Machine]:
        """Types that can run the job, with what does not depend on the region."""
        constraints, workload = self.job.constraints, self.job.workload
        splits: dict[int, Configurations] = {}  # by GPUs per node: the same for every type with as many
        for instance_type in self.instance_types:
            flops = self.catalog.gpu_of(instance_type).peak_flops_per_second(workload.precision)
            if instance_type.gpu_count not in splits:
                splits[instance_type.gpu_count] = every_split(
                    self.catalog, instance_type, constraints.nodes, workload.global_batch
                )
            rows = splits[instance_type.gpu_count].on(self.catalog, instance_type)
            counts = np.unique(rows.nodes[self.predictors.fits(rows)])
            sold = any(offer.region in self.regions for offer in self.catalog.offers_by_type[instance_type.name])
            if flops is not None and len(counts) and sold:
                scaling = (self.scaling_of or self._predicted_scaling)(instance_type)
                yield _Machine(instance_type, flops * instance_type.gpu_count, tuple(counts.tolist()), scaling)

    def _predicted_scaling(self, instance_type: InstanceType) -> Scaling:
        low, high = self.scaled_nodes
        nodes = np.unique(np.round(np.geomspace(low, high, _MOST_POINTS_TO_FIT)).astype(np.int64))
        batch = np.full_like(nodes, self.scaled_batch(instance_type))
        rows = Configurations.of(self.catalog, instance_type, nodes=nodes, gpu_batch=batch)
        seconds = self.predictors.step_seconds(rows).p50
        return fit_scaling(nodes.tolist(), (nodes * seconds[0] / seconds).tolist())

    def _offered(self, machine: _Machine, region: str) -> Iterator[GpuType]:
        instance_type = machine.instance_type
        for offer in self.catalog.offers_by_type[instance_type.name]:
            spot = [usd for usd in offer.spot_usd.values() if usd is not None]
            if offer.region == region and offer.on_demand_usd is not None and spot:
                yield GpuType(
                    name=instance_type.name,
                    on_demand_usd=offer.on_demand_usd,
                    spot_usd=min(spot),
                    vcpu=instance_type.vcpu,
                    bandwidth_gbps=instance_type.network_peak_gbps,  # as the paper's table of saturation
                    flops=machine.flops,
                    scaling=machine.scaling,
                    quota_class=instance_type.quota_class,
                    node_counts=machine.node_counts,
                )

    def _with_memory_nodes(self, row: Candidate, rental: Rental) -> Candidate:
        """They are paid as long as the run takes, like storage, and count as that."""
        cpu, count = rental.cluster.cpu, rental.cluster.cpu_nodes
        if cpu is None:
            return row
        hourly = count * (cpu.on_demand_usd + self._volume_hourly_usd(rental.region))
        usd = Quantiles(*(dollars + hours * hourly for dollars, hours in zip(row.usd, row.hours, strict=True)))
        return row._replace(
            hourly_usd=row.hourly_usd + hourly,
            storage_hourly_usd=row.storage_hourly_usd + hourly,
            usd=usd,
            usd_limit=row.usd_limit + row.hours_limit * hourly,
        )

    def _volume_hourly_usd(self, region: str) -> float:
        """Of one memory node: as large as the others', and as fast as it comes."""
        month = next(row.volume_usd_per_gib_month for row in self.catalog.regions if row.name == region)
        gib = root_volume_gib(self.job.workload.checkpoint_bytes_or_default, self.job.run.copied_bytes)
        return volume_hourly_usd(gib, GP3_MIBPS, month)

    def _refusal(self, refusals: Sequence[tuple[str, NoFeasiblePlan]]) -> NoFeasiblePlan:
        region, error = refusals[0]
        return error if len(refusals) == 1 else NoFeasiblePlan(f"DeepVM finds nothing; in {region}: {error}")


class _Machine(NamedTuple):
    instance_type: InstanceType
    flops: float
    node_counts: tuple[int, ...]
    scaling: Scaling | None
