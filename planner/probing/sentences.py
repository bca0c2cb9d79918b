"""In words: what the samples to the target come from, and what one more probe is worth."""

from __future__ import annotations

from planner.inputs import Job, MeasuredNoise
from planner.probing.further_probe import FurtherProbe
from planner.units import format_percent, format_usd


def convergence_source(job: Job, measured_noise: MeasuredNoise | None) -> str:
    """What the samples to the target come from."""
    runs = len(job.workload.convergence.runs)
    if runs:
        return f"from {runs + 1} batch sizes"
    if job.workload.convergence.noise_scale:
        return "from the given noise scale"
    if measured_noise:
        return f"from a measured noise scale of {measured_noise}"
    return "from a wide prior"


def worth(further: FurtherProbe, *, first: bool, chosen: str | None = None) -> str:
    """What one more probe costs and saves; `chosen`: the instance type of the choice, if there is one."""
    where = f"{further.nodes} x {further.instance_type} at local batch {further.gpu_batch:,}"
    price = format_usd(further.price_usd)
    saved = f"{format_percent(further.gain)} of the hours" if further.of_hours else format_usd(further.gain_usd)
    if further.repays:
        expected = f"{'a probe' if first else 'one more probe'}, {where} for about {price}, is expected to save {saved}"
        return expected + (f" ({_why_another(further)})" if chosen not in {None, further.instance_type} else "")
    return f"{not_worth(first=first)} (the best, {where}, costs about {price} and saves {saved})"


def _why_another(further: FurtherProbe) -> str:
    """Why it is not the choice that is measured."""
    if further.choice_gain is None:
        return "not of the choice, which was measured"
    saved = (
        f"{format_percent(further.choice_gain)} of the hours"
        if further.of_hours
        else format_usd(further.choice_gain * further.gain_usd / further.gain)
    )
    return f"not of the choice: measuring that would save {saved}, this may turn out better"


def not_worth(*, first: bool) -> str:
    return f"{'no probe' if first else 'no further probe'} is expected to repay its price"
