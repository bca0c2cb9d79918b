"""What measurements say of the job itself, wherever they were taken: how large it is, and with which PyTorch.

Sizes that the job file leaves open are taken from them, but not from those of another model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from planner.inputs.job.parse import JobFile
from planner.inputs.job.workload import Workload
from planner.inputs.measurements import Measurement, median

SAME_PARAMETERS = 0.01  # a job file rounds them
SAME_SIZE = 10.0  # times more or less bytes than the parameters suggest: no precision or optimizer explains that
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


def with_measured_sizes(job_file: JobFile, rows: Sequence[Measurement]) -> JobFile:
    """With the bytes of gradient and checkpoint, and what loading takes, as measured, where the job file says none."""
    workload = job_file.job.workload
    of_model = [row for row in rows if _other_model(row, workload) is None]
    own = [row for row in of_model if row.precision == workload.precision]
    measured = {
        "gradient_bytes": median([row.gradient_bytes for row in own]),
        "checkpoint_bytes": median([row.checkpoint_bytes for row in own]),
    }
    found: dict[str, object] = {
        key: value for key, value in measured.items() if value is not None and getattr(workload, key) is None
    }
    loading = median([row.input_cpu_seconds_per_sample for row in of_model])
    if workload.input and workload.input.cpu_seconds_per_sample is None and loading is not None:
        found["input"] = workload.input.model_copy(update={"cpu_seconds_per_sample": loading})
    job = job_file.job.model_copy(update={"workload": workload.model_copy(update=found)})
    return replace(job_file, job=job) if found else job_file


def other_models(workload: Workload, rows: Sequence[Measurement]) -> list[str]:
    """A warning for every size that is not the job's."""
    reasons = Counter(reason for row in rows if (reason := _other_model(row, workload)) is not None)
    return [
        f"{count} of {len(rows)} measurements may be of another model: {reason}"
        for reason, count in sorted(reasons.items())
    ]


def _other_model(row: Measurement, workload: Workload) -> str | None:
    said = workload.parameters
    if row.parameters is not None and abs(row.parameters / said - 1) > SAME_PARAMETERS:
        return f"{row.parameters:,} parameters, the job file says {said:,}"
    usual = {"gradient": 4.0 * said, "checkpoint": 4.0 * said + workload.optimizer_state_bytes}
    measured = {"gradient": row.gradient_bytes, "checkpoint": row.checkpoint_bytes}
    for name, size in measured.items():
        if size is not None and not 1 / SAME_SIZE <= size / usual[name] <= SAME_SIZE:
            return f"a {name} of {size:.3g} bytes, {said:,} parameters have about {usual[name]:.3g}"
    return None


def torch_version(row: Measurement) -> tuple[int, int] | None:
    """Major and minor: between these, kernels and communication become faster or slower."""
    found = _VERSION.match(row.software.get("torch", ""))
    return (int(found[1]), int(found[2])) if found else None


def newest_release(rows: Sequence[Measurement]) -> float | None:
    """Of PyTorch, counted in minor releases, about one a quarter: 2.0 followed 1.13."""
    known = [version for row in rows if (version := torch_version(row)) is not None]
    return max((float(minor if major >= 2 else minor - 14) for major, minor in known), default=None)


def software_ages(rows: Sequence[Measurement]) -> str | None:
    """`4 of torch 2.3 beside 6 of torch 2.13`; None where all are of one version."""
    counts = Counter(version for row in rows if (version := torch_version(row)) is not None)
    named = [f"{count} of torch {major}.{minor}" for (major, minor), count in sorted(counts.items())]
    return f"{', '.join(named[:-1])} beside {named[-1]}" if len(named) > 1 else None
