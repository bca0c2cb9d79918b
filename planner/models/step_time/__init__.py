"""How long one optimizer step takes on a cluster, probed or not."""

from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.physical import peak_flops_per_second

__all__ = ["StepTimeModel", "peak_flops_per_second"]
