"""What the user wants trained, under which limits: the job file `scav.yaml`."""

from planner.job.parse import JobFile, parse_job
from planner.job.schema import Constraints, Convergence, Job, Network, Run, Target, Workload

__all__ = [
    "Constraints",
    "Convergence",
    "Job",
    "JobFile",
    "Network",
    "Run",
    "Target",
    "Workload",
    "parse_job",
]
