"""Runs probes: processes on this machine, containers on it, or a cluster that is rented, watched and destroyed."""

from planner.outside.runners.aws.cluster import ClusterRunner, Identity
from planner.outside.runners.aws.report import NoCapacity
from planner.outside.runners.aws.teardown import PROBES_FOLDER, leftovers, probing
from planner.outside.runners.container import ContainerRunner
from planner.outside.runners.fitting import measure_what_fits
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import LocalRunner, Script

__all__ = [
    "PROBES_FOLDER",
    "ClusterRunner",
    "ContainerRunner",
    "Identity",
    "Interrupts",
    "LocalRunner",
    "NoCapacity",
    "Script",
    "leftovers",
    "measure_what_fits",
    "probing",
]
