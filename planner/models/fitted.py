"""Everything that is predicted about one job, fitted to what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.inputs import Catalog, Job, Measurement
from planner.models.convergence.model import ConvergenceModel
from planner.models.memory import MemoryModel
from planner.models.overheads import Overheads, run_overheads
from planner.models.step_time.model import StepTimeModel, fit_history


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModels:
    step_time: StepTimeModel
    convergence: ConvergenceModel
    memory: MemoryModel
    overheads: Overheads

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of measurements that cannot be what they say."""
        return (*self.step_time.warnings_, *self.memory.warnings_)


def fit_models(
    job: Job,
    catalog: Catalog,
    measurements: Sequence[Measurement],
    measured_noise: float | None = None,
    history: Sequence[Sequence[Measurement]] = (),
) -> FittedModels:
    """What the job file says of the noise goes before what was measured. `history`: other jobs' measurements."""
    workload = job.workload
    runs = [(float(run.batch), run.samples_needed(workload.dataset_samples)) for run in workload.convergence.runs]
    points = [(float(workload.target.reference_batch), workload.target_samples), *runs]
    probed = {row.instance_type for row in measurements}  # only there do the shapes of other jobs say anything
    return FittedModels(
        step_time=StepTimeModel(workload, catalog, fit_history(history, probed)).fit(measurements),
        convergence=ConvergenceModel().fit(points, workload.convergence.noise_scale or measured_noise),
        memory=MemoryModel(workload, catalog).fit(measurements),
        overheads=run_overheads(workload, measurements),
    )
