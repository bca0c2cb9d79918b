"""Which clusters to rent for measuring, cheapest first, and the most that each can cost.

A cluster's start costs more than what is measured on it, so each measures several batch sizes. Its world size is
fixed, so every node count is a cluster of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InputError
from planner.inputs import InstanceType, Job, Measurement, ParallelStrategy, PlanInputs, Precision, refuse_strategy
from planner.models import Configurations, Strategies, Strategy, check_strategy
from planner.probing.probe_plan import Probe, batches_between, measuring_seconds, missing, workers_of_a_model
from planner.search import STOP_SLACK_HOURS, Candidate, Survey, preference, root_volume_gib, volume_hourly_usd
from planner.units import format_usd

NODE_COUNTS = (1, 2, 4)  # the smallest that tell the network's terms apart; time on more of them is predicted
FAMILIES = 3
_SHORTEST_SECONDS, _LONGEST_SECONDS = 60, 14_400  # as templates/probe allows
_SAFETY = 2.0  # a cluster that takes longer than this times what is expected is ended
_SLOW_START_SECONDS = 300.0
_USUAL_LIMIT_SECONDS = 3600.0
_LARGEST_BATCH = 1 << 16  # that is looked for where a strategy says what fits


class ProbeCluster(NamedTuple):
    """One cluster, what is measured on it, and what it costs by the catalogue."""

    instance_type: str
    region: str
    zone: str
    nodes: int
    gpus_per_node: int
    gpu_batches: tuple[int, ...]
    precision: Precision
    spot: bool
    hourly_usd: float
    highest_hourly_usd: float
    startup_seconds: float
    expected_seconds: float
    max_seconds: int
    strategy: ParallelStrategy | None = None  # as asked for, or of the candidate that the cluster is rented for

    @property
    def expected_usd(self) -> float:
        return self.hourly_usd * self.expected_seconds / 3600

    @property
    def max_usd(self) -> float:
        """Should scav die, the nodes end themselves at `max_seconds`; should they hang, AWS ends them soon after."""
        return self.highest_hourly_usd * (self.max_seconds / 3600 + STOP_SLACK_HOURS)

    @property
    def name(self) -> str:
        return f"{self.nodes} x {self.instance_type}"

    def probe(self, gpu_batch: int) -> Probe:
        kind = self.instance_type, self.nodes, self.gpus_per_node
        return Probe(*kind, gpu_batch, 1, self.precision, self.strategy)


def probe_clusters(
    inputs: PlanInputs,
    survey: Survey,
    *,
    node_counts: Sequence[int],
    spot: bool,
    longest_seconds: float | None = None,
    strategy: ParallelStrategy | None = None,
) -> list[ProbeCluster]:
    """For the most promising instance families, of each the type that would be rented; all in one region.

    `longest_seconds` and `strategy` are what the user says; otherwise they follow from what is expected.
    """
    if max(node_counts) > max(NODE_COUNTS):
        raise InputError(f"a probe takes at most {max(NODE_COUNTS)} nodes; more are predicted", key="--nodes")
    if longest_seconds is not None and not _SHORTEST_SECONDS <= longest_seconds <= _LONGEST_SECONDS:
        raise InputError("a probing cluster may run between a minute and four hours", key="--max-duration")
    if strategy is not None:
        refuse_strategy(inputs.job_file.job.workload, strategy)
    offers = promising(inputs, survey)
    clusters = [
        cluster
        for offer in (offers if strategy is None else [offer._replace(strategy=strategy) for offer in offers])
        for nodes in node_counts
        if nodes <= inputs.job_file.job.constraints.nodes.high
        if (cluster := _cluster(inputs, survey, offer, nodes, spot, longest_seconds)) is not None
    ]
    return sorted(clusters, key=lambda cluster: (cluster.max_usd, cluster.instance_type, cluster.nodes))


def promising(inputs: PlanInputs, survey: Survey) -> list[Candidate]:
    """The best of each family; those with measurements first, so that what was begun is finished.

    A VPC is in one region, so all are in that of the best.
    """
    objective = inputs.job_file.job.objective_or_default
    ranked = sorted(survey.found.finalists, key=lambda row: preference(row, objective))
    probed = {row.instance_type for row in inputs.measurements}
    best: dict[str, Candidate] = {}
    for row in sorted(ranked, key=lambda row: row.instance_type not in probed):
        if row.region == ranked[0].region:
            best.setdefault(row.instance_type.partition(".")[0], row)
    return list(best.values())[:FAMILIES]


def _cluster(
    inputs: PlanInputs, survey: Survey, offer: Candidate, nodes: int, spot: bool, longest_seconds: float | None
) -> ProbeCluster | None:
    """None when the batch range is too small for so many GPUs, nothing fits, or nothing is sold that way."""
    copies, fitting = _room(inputs, survey, offer, nodes)
    batches = _batches(inputs.job_file.job, nodes, copies, fitting)
    price = node_price(inputs, offer, spot=spot)
    if not batches or price is None:
        return None
    return cluster_of(inputs, survey, offer, price, nodes, batches, longest_seconds)


def _room(inputs: PlanInputs, survey: Survey, offer: Candidate, nodes: int) -> tuple[int, int]:
    """Copies of the model on so many nodes, and samples that fit a GPU; none where the strategy cannot be."""
    instance_type, strategy = inputs.catalog.instance_type_by_name[offer.instance_type], offer.strategy
    gpus, shape = nodes * instance_type.gpu_count, inputs.job_file.job.workload.transformer
    if strategy is None or shape is None:
        return gpus, survey.models.memory.largest_batch(instance_type, nodes)
    try:
        check_strategy(shape, Strategy(gpus=gpus, gpus_per_node=instance_type.gpu_count, **strategy.model_dump()))
    except InputError:
        return gpus, 0
    copies = gpus // workers_of_a_model(strategy)
    most = min(inputs.job_file.job.workload.global_batch.high // copies, _LARGEST_BATCH)
    sizes = np.arange(1, most + 1)
    same = Strategies.repeated(strategy, len(sizes))
    rows = Configurations.of(inputs.catalog, instance_type, nodes=nodes, gpu_batch=sizes, strategies=same)
    return copies, int(sizes[survey.predictors.fits(rows)].max(initial=0)) if most else 0


def cluster_of(
    inputs: PlanInputs,
    survey: Survey,
    offer: Candidate,
    price: NodePrice,
    nodes: int,
    batches: tuple[int, ...],
    longest_seconds: float | None = None,
) -> ProbeCluster:
    """So many nodes of what is offered, to measure these batches one after the other."""
    instance_type = inputs.catalog.instance_type_by_name[offer.instance_type]
    strategies = None if offer.strategy is None else Strategies.repeated(offer.strategy, len(batches))
    configurations = Configurations.of(
        inputs.catalog, instance_type, nodes=nodes, gpu_batch=batches, strategies=strategies
    )
    startup = survey.models.overheads.startup_seconds
    expected = startup + measuring_seconds(survey.models.step_seconds(configurations).p50.tolist())
    longest = longest_seconds or min(_SAFETY * expected + _SLOW_START_SECONDS, _USUAL_LIMIT_SECONDS)
    return ProbeCluster(
        instance_type=instance_type.name,
        region=offer.region,
        zone=offer.zone,
        nodes=nodes,
        gpus_per_node=instance_type.gpu_count,
        gpu_batches=batches,
        precision=inputs.job_file.job.workload.precision,
        spot=price.spot,
        hourly_usd=nodes * price.usd,
        highest_hourly_usd=nodes * price.highest_usd,
        startup_seconds=startup,
        expected_seconds=expected,
        max_seconds=math.ceil(longest / 60) * 60,
        strategy=offer.strategy,
    )


def _batches(job: Job, nodes: int, copies: int, fitting: int) -> tuple[int, ...]:
    """Three on one node, which separate a step's fixed part from its samples; the ends on more.

    Where the job would accumulate gradients the range begins with what fits at once: more steps take as much longer.
    """
    allowed = job.workload.global_batch
    high = min(allowed.high // copies, fitting)
    low = min(-(-allowed.low // copies), high)
    if high < 1:
        return ()
    return batches_between(low, high) if nodes == 1 else tuple(dict.fromkeys((low, high)))


class NodePrice(NamedTuple):
    """An hour of a node with its volume: as bought, and on demand, which bounds it."""

    spot: bool
    usd: float
    highest_usd: float


def node_price(inputs: PlanInputs, offer: Candidate, *, spot: bool) -> NodePrice | None:
    """None where nothing is sold that way."""
    sold = next(row for row in inputs.catalog.offers_by_type[offer.instance_type] if row.region == offer.region)
    as_bought = sold.spot_usd.get(offer.zone) if spot else sold.on_demand_usd
    if as_bought is None or sold.on_demand_usd is None:
        return None
    monthly = next(row.volume_usd_per_gib_month for row in inputs.catalog.regions if row.name == offer.region)
    instance_type = inputs.catalog.instance_type_by_name[offer.instance_type]
    gib = _root_volume_gib(inputs.job_file.job, instance_type)
    volume = volume_hourly_usd(gib, inputs.job_file.job.run.volume_mibps_or_default, monthly)
    return NodePrice(spot, as_bought + volume, sold.on_demand_usd + volume)


def still_to_measure(clusters: Iterable[ProbeCluster], measurements: Sequence[Measurement]) -> list[ProbeCluster]:
    """Without the batches of which enough is known."""
    shortened = []
    for cluster in clusters:
        probes = missing([cluster.probe(batch) for batch in cluster.gpu_batches], measurements)
        shortened.append(cluster._replace(gpu_batches=tuple(probe.gpu_batch for probe in probes)))
    return [cluster for cluster in shortened if cluster.gpu_batches]


def refuse_too_small_a_cap(clusters: Sequence[ProbeCluster], max_usd: float) -> None:
    cheapest = min(clusters, key=lambda cluster: cluster.max_usd)
    if cheapest.max_usd > max_usd:
        message = f"{format_usd(max_usd)} is below what the cheapest probe ({cheapest.name}) can cost at most, "
        raise InputError(f"{message}{format_usd(cheapest.max_usd)}", key="--max-cost")


def probe_variables(
    job: Job,
    cluster: ProbeCluster,
    instance_type: InstanceType,
    command: Sequence[str],
    run_id: str,
    *,
    measure_noise: bool = True,
) -> dict[str, Any]:
    """The root variables of templates/probe."""
    several = cluster.nodes > 1
    gpu_batch = cluster.gpu_batches[0]
    global_batch = cluster.probe(gpu_batch).global_batch
    asked: dict[str, Any] = {} if cluster.strategy is None else {"strategy": cluster.strategy.model_dump()}
    if job.run.data:
        asked |= {"data": job.run.data_values, "security_group_ids": list(job.network.security_groups)}
    return asked | {
        "region": cluster.region,
        "run_id": run_id,
        "availability_zone_id": cluster.zone,
        "instance_type": cluster.instance_type,
        "node_count": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "spot": cluster.spot,
        "efa_interfaces": instance_type.efa_interfaces if several else 0,
        "network_cards": instance_type.network_cards,
        "placement_group": several and instance_type.efa_interfaces > 0,
        "root_volume_gib": _root_volume_gib(job, instance_type),
        "root_volume_mibps": job.run.volume_mibps_or_default,
        "container_command": sweep_command(
            cluster, job.workload.target.reference_batch, command, measure_noise=measure_noise
        ),
        "global_batch": global_batch,
        "gpu_batch": gpu_batch,
        "learning_rate_scale": global_batch / job.workload.target.reference_batch,
        "max_runtime_seconds": cluster.max_seconds,
        "vpc_id": job.network.vpc,
        "subnet_ids": list(job.network.subnets),
        "ami_id": job.run.ami,
        "container_image": job.run.image,
    }


def _root_volume_gib(job: Job, instance_type: InstanceType) -> int:
    return root_volume_gib(job.workload.checkpoint_bytes_or_default, job.run.copied_bytes, instance_type.local_ssd_gb)


def sweep_command(
    cluster: ProbeCluster, reference_batch: int, command: Sequence[str], *, measure_noise: bool = True
) -> list[str]:
    """What torchrun starts on every node: the job's own script, once per batch size."""
    seconds = max((cluster.max_seconds - cluster.startup_seconds) / len(cluster.gpu_batches), _SHORTEST_SECONDS)
    options = {
        "--batches": ",".join(str(batch) for batch in cluster.gpu_batches),
        "--reference-batch": str(reference_batch),
        "--seconds-per-batch": str(math.floor(seconds)),
    }
    words = [word for option in options.items() for word in option]
    return ["-m", "probes.sweep", *words, *([] if measure_noise else ["--no-noise"]), "--", *command]


def missing_answers(job: Job, command: Sequence[str]) -> list[str]:
    """Keys of the job file that a cluster cannot do without."""
    answers = {
        "network.vpc": job.network.vpc,
        "network.subnets": job.network.subnets,
        "run.ami": job.run.ami,
        "run.image": job.run.image,
        "run.command": command,
    }
    return [key for key, value in answers.items() if not value]
