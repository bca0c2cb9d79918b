"""How long one optimizer step takes on a cluster, probed or not."""

from planner.models.step_time.model import StepTimeModel, fit_history
from planner.models.step_time.physical import peak_flops_per_second

__all__ = ["StepTimeModel", "fit_history", "peak_flops_per_second"]
