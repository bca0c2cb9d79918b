"""The physical form of a step: what the data sheets say it should take, term by term.

    work = a * (launch + m * per_sample) + update        a micro-steps of m samples, then the optimizer
    sync = link + network                                all-reduce inside the node, then between nodes
    step = (work^g + sync^g)^(1/g)                       g says how much of the shorter hides behind the longer

A ring all-reduce saturates: each GPU moves 2(K-1)/K of the gradient, however large K is. A term that grows with K
instead would be harmless where it was fitted and wrong by half on four times as many nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.inputs import Gpu, InstanceType, Workload
from planner.models.bandwidth import EffectiveNetwork
from planner.models.configurations import Configurations

TERMS = ("compute", "launch", "link", "network")

# Share of the dense peak that large matrix multiplications reach in training.
FLOPS_EFFICIENCY = 0.45
# Memory traffic of a sample, in units of the activations it keeps, at the full bandwidth of the data sheet: training
# of ResNet-50 and BERT is bound by it from V100 to H100. `benchmarks/cold_start.py` prints how well this holds.
ACTIVATION_PASSES = 17.5
LAUNCH_SECONDS = 0.004  # starting the kernels of one micro-step from Python
OVERLAP = 2.0

NVLINK_EFFICIENCY = 0.7
PCIE_EFFICIENCY = 0.3  # staged through the host, shared by the node's GPUs
EFA_NVLINK_EFFICIENCY = 0.7  # GPUs write to the network card themselves
EFA_PCIE_EFFICIENCY = 0.3
SOCKET_EFFICIENCY = 0.7
SOCKET_LIMIT_GBPS = 5.0  # what NCCL moves through kernel sockets, whatever the card could do

LINK_LATENCY_SECONDS = 0.0002
NETWORK_LATENCY_SECONDS = 0.001
NETWORK_HOP_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds per row and term, shape (rows, 4), in the order of TERMS."""

    seconds: Floats

    def step(self, log_multipliers: Floats) -> tuple[Floats, Floats]:
        """Step seconds, and how their logarithm answers to each term's logarithm (rows, 4).

        Multipliers of one instance type (4), or of each row's (rows, 4).
        """
        seconds = self.seconds * np.exp(log_multipliers)
        work, sync, ratio = _parts(seconds)
        step = work * (1.0 + ratio) ** (1.0 / OVERLAP)
        work_weight = 1.0 / (1.0 + ratio)
        with np.errstate(invalid="ignore"):  # one GPU does not synchronise: 0/0, weight 0
            shares = seconds / np.stack((work, work, sync, sync), axis=1)
        weights = np.stack((work_weight, work_weight, 1 - work_weight, 1 - work_weight), axis=1)
        return step, np.where(weights > 0, shares * weights, 0.0)

    def step_seconds(self, log_multipliers: Floats) -> Floats:
        """The first of these alone, which takes a third of the time."""
        work, _, ratio = _parts(self.seconds * np.exp(log_multipliers))
        return np.asarray(work * (1.0 + ratio) ** (1.0 / OVERLAP))

    def work(self, log_multipliers: Floats) -> tuple[Floats, Floats]:
        """The same for the step without its communication."""
        seconds = self.seconds[:, :2] * np.exp(log_multipliers[..., :2])
        work = seconds.sum(axis=1)
        gradient = np.zeros_like(self.seconds)
        gradient[:, :2] = seconds / work[:, None]
        return work, gradient


def _parts(seconds: Floats) -> tuple[Floats, Floats, Floats]:
    """Work, communication, and how much the latter counts beside the former."""
    work = seconds[:, 0] + seconds[:, 1]
    sync = seconds[:, 2] + seconds[:, 3]
    return work, sync, (sync / work) ** OVERLAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What all-reduces of an instance type measured; None where the data sheet must do."""

    inside: EffectiveNetwork | None = None  # one node
    between: EffectiveNetwork | None = None  # nodes


UNMEASURED = Links()


def step_terms(configurations: Configurations, workload: Workload, links: Links = UNMEASURED) -> StepTerms:
    """From the data sheet, but for links that were measured."""
    instance_type, gpu = configurations.instance_type, configurations.gpu
    bandwidth = gpu.memory_bandwidth_gb_per_second * 1e9
    micro_steps = configurations.accumulation_steps.astype(float)
    compute = micro_steps * configurations.gpu_batch * _seconds_per_sample(gpu, workload)
    weight_passes = 3 * 4.0 * workload.parameters / bandwidth  # read forward, read backward, gradient written
    update = 2 * (8.0 * workload.parameters + workload.optimizer_state_bytes) / bandwidth
    launch = micro_steps * (LAUNCH_SECONDS + weight_passes) + update
    gradient = workload.gradient_bytes_or_default
    link = link_seconds(instance_type, gradient, links.inside) + np.zeros_like(compute)
    network = network_seconds(instance_type, configurations.nodes.astype(float), gradient, links.between)
    return StepTerms(np.stack((compute, launch, link, network), axis=1))


def _seconds_per_sample(gpu: Gpu, workload: Workload) -> float:
    peak = gpu.peak_flops_per_second(workload.precision)
    if peak is None:
        raise ValueError(f"{gpu.name} has no {workload.precision}")
    by_flops = workload.flops_per_sample / (peak * FLOPS_EFFICIENCY)
    traffic = ACTIVATION_PASSES * workload.activation_bytes_per_sample
    return max(by_flops, traffic / (gpu.memory_bandwidth_gb_per_second * 1e9))


def link_seconds(instance_type: InstanceType, gradient_bytes: float, measured: EffectiveNetwork | None = None) -> float:
    """An all-reduce inside one node."""
    if instance_type.gpu_count == 1:
        return 0.0
    if measured is not None:
        return measured.allreduce_seconds(gradient_bytes, instance_type.gpu_count)
    efficiency = NVLINK_EFFICIENCY if _has_nvlink(instance_type) else PCIE_EFFICIENCY
    bandwidth = instance_type.gpu_link_gb_per_second * 1e9 * efficiency
    ring = 2 * (instance_type.gpu_count - 1) / instance_type.gpu_count * gradient_bytes / bandwidth
    return LINK_LATENCY_SECONDS + ring


def network_seconds(
    instance_type: InstanceType, nodes: Floats, gradient_bytes: float, measured: EffectiveNetwork | None = None
) -> Floats:
    """An all-reduce between nodes, once each has added up its own."""
    if measured is not None:
        return np.where(nodes > 1, measured.allreduce_seconds(gradient_bytes, nodes), 0.0)
    ring = 2 * (nodes - 1) / nodes * gradient_bytes / allreduce_bytes_per_second(instance_type)
    latency = NETWORK_LATENCY_SECONDS + NETWORK_HOP_SECONDS * np.log2(nodes)
    return np.where(nodes > 1, ring + latency, 0.0)


def allreduce_bytes_per_second(instance_type: InstanceType) -> float:
    """Measured between such nodes if anyone did; a spec sheet says little on machines without NVLink."""
    if instance_type.measured_allreduce_gbps is not None:
        gbps = instance_type.measured_allreduce_gbps
    elif instance_type.efa_interfaces:
        gbps = instance_type.network_baseline_gbps * (
            EFA_NVLINK_EFFICIENCY if _has_nvlink(instance_type) else EFA_PCIE_EFFICIENCY
        )
    else:
        gbps = min(instance_type.network_baseline_gbps * SOCKET_EFFICIENCY, SOCKET_LIMIT_GBPS)
    return gbps * 1e9 / 8


def _has_nvlink(instance_type: InstanceType) -> bool:
    return instance_type.gpu_link.startswith("NVLink")
