"""In words: what the samples to the target come from, and what one more probe is worth."""

from __future__ import annotations

from planner.inputs import Job
from planner.probing.further_probe import FurtherProbe
from planner.units import format_percent, format_usd


def convergence_source(job: Job, measured_noise: float | None) -> str:
    """What the samples to the target come from."""
    runs = len(job.workload.convergence.runs)
    if runs:
        return f"from {runs + 1} batch sizes"
    if job.workload.convergence.noise_scale:
        return "from the given noise scale"
    if measured_noise:
        return f"from a measured noise scale of {measured_noise:,.0f} samples"
    return "from a wide prior"


def worth(further: FurtherProbe, *, first: bool) -> str:
    """What one more probe costs and saves."""
    where = f"{further.nodes} x {further.instance_type} at local batch {further.gpu_batch:,}"
    price = format_usd(further.price_usd)
    saved = f"{format_percent(further.gain)} of the hours" if further.of_hours else format_usd(further.gain_usd)
    if further.repays:
        return f"{'a probe' if first else 'one more probe'}, {where} for about {price}, is expected to save {saved}"
    return f"{not_worth(first=first)} (the best, {where}, costs about {price} and saves {saved})"


def not_worth(*, first: bool) -> str:
    return f"{'no probe' if first else 'no further probe'} is expected to repay its price"
