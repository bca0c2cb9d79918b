"""Seconds, samples, memory and overheads of a configuration, as long as no node is lost."""

from planner.models.checkpoints import UNNOTICED_SHARE, intervals_seconds, saved_in_notice
from planner.models.configurations import Configurations
from planner.models.convergence.model import ConvergenceModel
from planner.models.feeding import JPEG_VCPU_SECONDS, WAITING
from planner.models.fitted import FittedModels, fit_convergence, fit_models
from planner.models.loss_curve import LEAST_POINTS, Curve, first_reached, forecast_curve
from planner.models.memory import MemoryModel
from planner.models.sharded_memory.architecture import model_parameters
from planner.models.sharded_memory.calibration import (
    CONTEXT_GIB,
    GIB,
    SHIPPED,
    TRACED,
    Calibration,
    MemoryInterval,
    allocated_interval,
    fit_probability,
    reserved_interval,
)
from planner.models.sharded_memory.model import ShardedMemoryModel
from planner.models.sharded_memory.peak import Peak, moments, peak_memory
from planner.models.sharded_memory.strategy import Strategy, check_strategy, job_strategy
from planner.models.sharded_memory.ways import Way, ways_to_fit
from planner.models.step_time.data_sheet import TERMS, StepTerms
from planner.models.step_time.earlier_jobs import likeness
from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.rows import MeasuredRows, spread_subset
from planner.models.step_time.this_machine import MachineStepTime
from planner.models.step_time.unprobed_types import COLD_START, JOB_SD, RESIDUAL_SD, TYPE_SD
from planner.models.strategies import Strategies

__all__ = [
    "COLD_START",
    "CONTEXT_GIB",
    "GIB",
    "JOB_SD",
    "JPEG_VCPU_SECONDS",
    "LEAST_POINTS",
    "RESIDUAL_SD",
    "SHIPPED",
    "TERMS",
    "TRACED",
    "TYPE_SD",
    "UNNOTICED_SHARE",
    "WAITING",
    "Calibration",
    "Configurations",
    "ConvergenceModel",
    "Curve",
    "FittedModels",
    "MachineStepTime",
    "MeasuredRows",
    "MemoryInterval",
    "MemoryModel",
    "Peak",
    "ShardedMemoryModel",
    "StepTerms",
    "StepTimeModel",
    "Strategies",
    "Strategy",
    "Way",
    "allocated_interval",
    "check_strategy",
    "first_reached",
    "fit_convergence",
    "fit_models",
    "fit_probability",
    "forecast_curve",
    "intervals_seconds",
    "job_strategy",
    "likeness",
    "model_parameters",
    "moments",
    "peak_memory",
    "reserved_interval",
    "saved_in_notice",
    "spread_subset",
    "ways_to_fit",
]
