"""What user and world say: the job, the catalogue, measurements, recordings, and how they become a plan's inputs."""

from planner.inputs.catalog.advisor import ADVISOR_URL, parse_advisor
from planner.inputs.catalog.listing import Listing, Order, checked_regions, list_machines, sort_listings
from planner.inputs.catalog.refresh import Machine, RegionAnswer, network_gbps, refresh_catalog
from planner.inputs.catalog.selection import named_instance_type, select_instance_types
from planner.inputs.catalog.snapshot import format_catalog, parse_catalog
from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, Precision, RegionPrices
from planner.inputs.earlier_jobs import EarlierJob
from planner.inputs.huggingface.described import described_model
from planner.inputs.inspected_script import InspectedScript, job_notes, job_values, not_found
from planner.inputs.job.draft import drafted_job, job_name
from planner.inputs.job.fields import LARGEST_BATCH, CountRange
from planner.inputs.job.parse import JobFile, parse_job
from planner.inputs.job.placeholders import filled_command, holds_strategy, placeholder_fault
from planner.inputs.job.remembered import with_command, written_command
from planner.inputs.job.schema import GP3_MIBPS, Constraints, Job, Network, Objective, Run
from planner.inputs.job.strategies import (
    RECOMPUTES,
    SHARDINGS,
    ParallelStrategy,
    Recompute,
    Sharding,
    States,
    StrategyOptions,
    Training,
)
from planner.inputs.job.transformer import TransformerShape
from planner.inputs.job.workload import OPTIMIZER_STATE_BYTES, InputPipeline, Optimizer, Origin, Workload
from planner.inputs.logs.columns import MEANINGS, logged_progress, logged_runs, parse_csv
from planner.inputs.logs.imported import Said, imported
from planner.inputs.logs.logged_run import LoggedRun
from planner.inputs.logs.progress import LoggedProgress
from planner.inputs.logs.trainer_state import is_trainer_state, trainer_state_progress, trainer_state_run
from planner.inputs.measured_job import newest_release, software_ages, torch_version
from planner.inputs.measured_noise import MeasuredNoise, measured_noise
from planner.inputs.measurement_lines import with_run_last, without_rows
from planner.inputs.measurements import (
    HERE_ONLY,
    LOCAL,
    GradientNoise,
    ImportedFrom,
    Measurement,
    MeasurementFile,
    ShortHash,
    is_json,
    median,
    parse_measurements,
    unusable,
)
from planner.inputs.observations import Kind, Observation, Observed, parse_observations
from planner.inputs.plan_inputs import Earlier, Hashed, PlanInputs, Provenance, Recordings, Snapshot, plan_inputs
from planner.inputs.runs import Ran, are_older, digest_of
from planner.inputs.strategy_text import parse_strategy, refuse_strategy, strategy_text
from planner.inputs.traced_peak import TracedPeak
from planner.inputs.traces import Recording, Stretches, Trace, parse_trace

__all__ = [
    "ADVISOR_URL",
    "GP3_MIBPS",
    "HERE_ONLY",
    "LARGEST_BATCH",
    "LOCAL",
    "MEANINGS",
    "OPTIMIZER_STATE_BYTES",
    "RECOMPUTES",
    "SHARDINGS",
    "Catalog",
    "Constraints",
    "CountRange",
    "Earlier",
    "EarlierJob",
    "Gpu",
    "GradientNoise",
    "Hashed",
    "ImportedFrom",
    "InputPipeline",
    "InspectedScript",
    "InstanceType",
    "Job",
    "JobFile",
    "Kind",
    "Listing",
    "LoggedProgress",
    "LoggedRun",
    "Machine",
    "MeasuredNoise",
    "Measurement",
    "MeasurementFile",
    "Network",
    "Objective",
    "Observation",
    "Observed",
    "Offer",
    "Optimizer",
    "Order",
    "Origin",
    "ParallelStrategy",
    "PlanInputs",
    "Precision",
    "Provenance",
    "Ran",
    "Recompute",
    "Recording",
    "Recordings",
    "RegionAnswer",
    "RegionPrices",
    "Run",
    "Said",
    "Sharding",
    "ShortHash",
    "Snapshot",
    "States",
    "StrategyOptions",
    "Stretches",
    "Trace",
    "TracedPeak",
    "Training",
    "TransformerShape",
    "Workload",
    "are_older",
    "checked_regions",
    "described_model",
    "digest_of",
    "drafted_job",
    "filled_command",
    "format_catalog",
    "holds_strategy",
    "imported",
    "is_json",
    "is_trainer_state",
    "job_name",
    "job_notes",
    "job_values",
    "list_machines",
    "logged_progress",
    "logged_runs",
    "measured_noise",
    "median",
    "named_instance_type",
    "network_gbps",
    "newest_release",
    "not_found",
    "parse_advisor",
    "parse_catalog",
    "parse_csv",
    "parse_job",
    "parse_measurements",
    "parse_observations",
    "parse_strategy",
    "parse_trace",
    "placeholder_fault",
    "plan_inputs",
    "refresh_catalog",
    "refuse_strategy",
    "select_instance_types",
    "software_ages",
    "sort_listings",
    "strategy_text",
    "torch_version",
    "trainer_state_progress",
    "trainer_state_run",
    "unusable",
    "with_command",
    "with_run_last",
    "without_rows",
    "written_command",
]
