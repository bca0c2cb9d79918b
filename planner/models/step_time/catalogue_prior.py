"""What the catalogue knows of an instance type, as a prior of the physical form and as features for the forest."""

from __future__ import annotations

import numpy as np

from planner.columns import Floats
from planner.inputs import Catalog, Gpu, InstanceType, Workload
from planner.models.configurations import Configurations
from planner.models.step_time.data_sheet import UNMEASURED, Links, step_terms
from planner.models.step_time.posterior import reference_point
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.step_formula import DEFAULT_PRIORS, NAMES, Prior
from planner.models.step_time.unprobed_types import Multipliers

COMPUTE, LAUNCH, LINK, NETWORK = range(4)
# Where anything was measured, the data sheet must not argue with it about the speed of the GPU. Robust errors pull
# with limited force, and a narrow prior would win.
LEAST_SCALE_SD = 1.0


def catalogue_priors(
    rows: MeasuredRows,
    catalog: Catalog,
    instance_type: InstanceType,
    workload: Workload,
    multipliers: Multipliers,
    links: Links = UNMEASURED,
) -> tuple[Prior, ...]:
    """The default priors with every scale at its data-sheet value times the multiplier of the other types."""
    batch, log_seconds = reference_point(rows)
    pair = Configurations.of(catalog, instance_type, nodes=2, gpu_batch=max(round(batch), 1))
    seconds = step_terms(pair, workload, links).seconds[0] * np.exp(multipliers.mean)
    variance = np.diag(multipliers.covariance)
    return tuple(_informed(prior, seconds, variance, instance_type.gpu_count, log_seconds) for prior in DEFAULT_PRIORS)


def _informed(prior: Prior, seconds: Floats, variance: Floats, gpus: int, log_seconds: float) -> Prior:
    mean, sd = prior.mean.copy(), prior.sd.copy()

    def inform(name: str, value: float, spread: float) -> None:
        mean[NAMES.index(name)], sd[NAMES.index(name)] = value, spread

    def usual(name: str) -> float:
        return float(prior.mean[NAMES.index(name)])

    work = seconds[COMPUTE] + seconds[LAUNCH]
    share = seconds[COMPUTE] / work
    doubt = np.sqrt(share**2 * variance[COMPUTE] + (1 - share) ** 2 * variance[LAUNCH])
    inform("scale", np.log(work) - log_seconds, max(float(doubt), LEAST_SCALE_SD))
    inform("fixed", np.log(seconds[LAUNCH] / seconds[COMPUTE]), np.sqrt(variance[COMPUTE] + variance[LAUNCH]))
    if gpus > 1:
        crowd = gpus - 1 if prior.law == "bus" else 2 * (gpus - 1) / gpus
        link = np.log(seconds[LINK]) - np.exp(usual("link_power")) * np.log(crowd)
        inform("link", link - log_seconds, np.sqrt(variance[LINK]))
    network = np.log(seconds[NETWORK]) - usual("width_power") * np.log(gpus)
    inform("network", network - log_seconds, np.sqrt(variance[NETWORK]))
    inform("pair", 0.0, sd[NAMES.index("pair")])
    return Prior(prior.law, mean, sd)


def hardware_features(instance_type: InstanceType, gpu: Gpu, workload: Workload) -> Floats:
    """Job and resources, in doublings."""
    peak = gpu.peak_flops_per_second(workload.precision) or 1.0
    resources = (peak, gpu.memory_bandwidth_gb_per_second, gpu.memory_gib, instance_type.vcpu / instance_type.gpu_count)
    links = (instance_type.network_baseline_gbps, instance_type.network_peak_gbps, instance_type.gpu_link_gb_per_second)
    demands = (workload.flops_per_sample, workload.gradient_bytes_or_default, workload.activation_bytes_per_sample)
    return np.asarray(np.log2(np.array((*resources, *links, *demands))))
