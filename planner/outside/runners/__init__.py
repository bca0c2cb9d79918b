"""Runs probes: processes here, containers here, a Ray cluster, or one that is rented, watched and destroyed."""

from planner.outside.runners.aws.cluster import ClusterRunner, Identity
from planner.outside.runners.aws.report import NoCapacity
from planner.outside.runners.aws.teardown import PROBES_FOLDER, leftovers, probing
from planner.outside.runners.container import ContainerRunner
from planner.outside.runners.fitting import measure_what_fits
from planner.outside.runners.inspecting import inspect_script
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import LocalRunner, Script
from planner.outside.runners.machine_lock import only_probe_here
from planner.outside.runners.noise_state import NoiseState, noise_state
from planner.outside.runners.ray_runner import RayRunner
from planner.outside.runners.shared_with_probes import hold_batch
from planner.outside.runners.stretch import SeenStretch, StretchRunner
from planner.outside.runners.tracing import trace_script
from planner.outside.runners.warm_start import WarmProcesses

__all__ = [
    "PROBES_FOLDER",
    "ClusterRunner",
    "ContainerRunner",
    "Identity",
    "Interrupts",
    "LocalRunner",
    "NoCapacity",
    "NoiseState",
    "RayRunner",
    "Script",
    "SeenStretch",
    "StretchRunner",
    "WarmProcesses",
    "hold_batch",
    "inspect_script",
    "leftovers",
    "measure_what_fits",
    "noise_state",
    "only_probe_here",
    "probing",
    "trace_script",
]
