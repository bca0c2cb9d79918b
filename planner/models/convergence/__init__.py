"""How many samples the target takes at a batch size."""

from __future__ import annotations

from planner.models.convergence.model import ConvergenceModel

__all__ = ["ConvergenceModel"]
