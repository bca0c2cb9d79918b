"""What the catalogue knows of an instance type, as a prior of the physical form."""

from __future__ import annotations

import numpy as np

from planner.inputs import Catalog, InstanceType, Workload
from planner.models.configurations import Configurations
from planner.models.step_time.data_sheet import UNMEASURED, Links, step_terms
from planner.models.step_time.formula import NAMES, ring
from planner.models.step_time.posterior import reference_point
from planner.models.step_time.prior import Prior
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.unprobed_types import Multipliers


def catalogue_prior(
    usual: Prior,
    rows: MeasuredRows,
    catalog: Catalog,
    instance_type: InstanceType,
    workload: Workload,
    multipliers: Multipliers,
    links: Links = UNMEASURED,
) -> Prior:
    """The usual prior with every scale at its data-sheet value times the multiplier of the other types."""
    batch, log_seconds = reference_point(rows)
    pair = Configurations.of(catalog, instance_type, nodes=2, gpu_batch=max(round(batch), 1))
    seconds = step_terms(pair, workload, links).seconds[0] * np.exp(multipliers.mean)
    compute, launch, link, network = (float(each) for each in seconds)
    doubt = np.sqrt(np.diag(multipliers.covariance))
    gpus, named = instance_type.gpu_count, dict(zip(NAMES, usual.mean.tolist(), strict=True))
    informed = {
        # Where anything was measured, the data sheet must not argue with it about the speed of the GPU.
        # Robust errors pull with limited force, and a narrow prior would win.
        "scale": (np.log(compute + launch) - log_seconds, usual.sd[NAMES.index("scale")]),
        "fixed": (np.log(launch / compute), np.hypot(*doubt[:2])),
        "network": (np.log(network) - named["width_power"] * np.log(gpus) - log_seconds, doubt[3]),
        "pair": (0.0, usual.sd[NAMES.index("pair")]),
    }
    if gpus > 1:
        crowd = np.exp(named["link_power"]) * np.log(ring(np.array(float(gpus))))
        informed["link"] = (np.log(link) - crowd - log_seconds, doubt[2])
    columns = zip(NAMES, zip(usual.mean, usual.sd, strict=True), strict=True)
    return Prior.of(**{name: informed.get(name, known) for name, known in columns})
