"""What user and world say: the job, the catalogue, measurements, recordings, and how they become a plan's inputs."""

from planner.inputs.catalog.advisor import ADVISOR_URL, parse_advisor
from planner.inputs.catalog.listing import Listing, Order, list_machines, sort_listings
from planner.inputs.catalog.refresh import Machine, RegionAnswer, network_gbps, refresh_catalog
from planner.inputs.catalog.selection import named_instance_type, select_instance_types
from planner.inputs.catalog.snapshot import format_catalog, parse_catalog
from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, Precision, RegionPrices
from planner.inputs.job.fields import CountRange
from planner.inputs.job.parse import JobFile, parse_job
from planner.inputs.job.placeholders import filled_command, placeholder_fault
from planner.inputs.job.schema import LARGEST_BATCH, Constraints, Job, Network, Objective, Run, Workload
from planner.inputs.measured_job import software_ages, torch_version
from planner.inputs.measurements import GradientNoise, Measurement, MeasurementFile, is_json, median, parse_measurements
from planner.inputs.plan_inputs import Hashed, PlanInputs, Provenance, Recordings, Snapshot, plan_inputs
from planner.inputs.traces import Recording, Stretches, Trace, parse_trace

__all__ = [
    "ADVISOR_URL",
    "LARGEST_BATCH",
    "Catalog",
    "Constraints",
    "CountRange",
    "Gpu",
    "GradientNoise",
    "Hashed",
    "InstanceType",
    "Job",
    "JobFile",
    "Listing",
    "Machine",
    "Measurement",
    "MeasurementFile",
    "Network",
    "Objective",
    "Offer",
    "Order",
    "PlanInputs",
    "Precision",
    "Provenance",
    "Recording",
    "Recordings",
    "RegionAnswer",
    "RegionPrices",
    "Run",
    "Snapshot",
    "Stretches",
    "Trace",
    "Workload",
    "filled_command",
    "format_catalog",
    "is_json",
    "list_machines",
    "median",
    "named_instance_type",
    "network_gbps",
    "parse_advisor",
    "parse_catalog",
    "parse_job",
    "parse_measurements",
    "parse_trace",
    "placeholder_fault",
    "plan_inputs",
    "refresh_catalog",
    "select_instance_types",
    "software_ages",
    "sort_listings",
    "torch_version",
]
