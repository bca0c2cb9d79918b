"""Seconds, samples, memory and overheads of a configuration, as long as no node is lost."""

from planner.models.checkpoints import UNNOTICED_SHARE, intervals_seconds, saved_in_notice
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels, fit_models
from planner.models.step_time.catalogue_prior import catalogue_priors, hardware_features
from planner.models.step_time.data_sheet import TERMS, StepTerms
from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.node_type import fit_node_types
from planner.models.step_time.pooling import pooled_priors
from planner.models.step_time.posterior import spread_subset
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.table import tabulated
from planner.models.step_time.unprobed_types import (
    COLD_START,
    JOB_SD,
    RESIDUAL_SD,
    TYPE_SD,
    Multipliers,
    TypedRows,
    unprobed,
)

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
    "Multipliers",
    "StepTerms",
    "StepTimeModel",
    "TypedRows",
    "catalogue_priors",
    "fit_models",
    "fit_node_types",
    "hardware_features",
    "intervals_seconds",
    "pooled_priors",
    "saved_in_notice",
    "spread_subset",
    "tabulated",
    "unprobed",
]
