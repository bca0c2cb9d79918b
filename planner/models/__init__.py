"""Seconds, samples, memory and overheads of a configuration, as long as no node is lost."""

from planner.models.checkpoints import UNNOTICED_SHARE, intervals_seconds, saved_in_notice
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels, fit_models
from planner.models.step_time.catalogue_prior import hardware_features
from planner.models.step_time.data_sheet import TERMS, StepTerms
from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.posterior import spread_subset
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.unprobed_types import COLD_START, JOB_SD, RESIDUAL_SD, TYPE_SD

__all__ = [
    "COLD_START",
    "JOB_SD",
    "RESIDUAL_SD",
    "TERMS",
    "TYPE_SD",
    "UNNOTICED_SHARE",
    "Configurations",
    "FittedModels",
    "MeasuredRows",
    "StepTerms",
    "StepTimeModel",
    "fit_models",
    "hardware_features",
    "intervals_seconds",
    "saved_in_notice",
    "spread_subset",
]
