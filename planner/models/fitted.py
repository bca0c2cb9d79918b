"""Everything that is predicted about one job, fitted to what is known of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.columns import Flags, Floats, Prediction
from planner.inputs import Catalog, EarlierJob, InstanceType, Job, MeasuredNoise, Measurement, Workload
from planner.models.configurations import Configurations
from planner.models.convergence.laws import NOISE_SCALE_LOG_SD
from planner.models.convergence.model import ConvergenceModel
from planner.models.doubt import DoubtedSteps
from planner.models.feeding import FeedingModel, computing
from planner.models.memory import MemoryModel
from planner.models.overheads import Overheads, run_overheads
from planner.models.sharded_memory.model import ShardedMemoryModel
from planner.models.sharded_step_time.earlier_jobs import prior_of_next_job
from planner.models.sharded_step_time.model import ShardedStepTimeModel
from planner.models.sharded_step_time.prior import POOLED, ShardedPrior
from planner.models.step_time.earlier_jobs import NO_HISTORY
from planner.models.step_time.history import fit_history
from planner.models.step_time.model import StepTimeModel


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModels:
    step_time: StepTimeModel  # of jobs with a shape without measurements: those are of the next one
    sharded_step_time: ShardedStepTimeModel | None  # of jobs with a shape
    doubted_steps: DoubtedSteps | None  # steps with the doubt about the job file's flat numbers in their intervals
    feeding: FeedingModel
    convergence: ConvergenceModel
    memory: MemoryModel | ShardedMemoryModel
    overheads: Overheads
    history_warnings: tuple[str, ...] = ()  # each begins with the job's name

    def step_seconds(self, configurations: Configurations) -> Prediction:
        """The longer of computing, the job file doubted, and feeding."""
        predict = self.doubted_steps.predict if self.doubted_steps else self.computing_seconds
        step, feeding = predict(configurations), self.feeding.predict(configurations)
        return step if feeding is None else step.longer_of(feeding)

    def computing_seconds(self, configurations: Configurations) -> Prediction:
        """Were every sample there in time, and the job file right."""
        return (self.sharded_step_time or self.step_time).predict(configurations)

    def least_seconds(self, configurations: Configurations) -> Floats | None:
        """At most the middle of a step; None where that takes as long to predict as its interval."""
        if self.sharded_step_time is not None:
            return self.sharded_step_time.median_seconds(configurations)
        if self.step_time.is_probed(configurations.instance_type):
            return None
        feeding, computing = self.feeding.predict(configurations), self.step_time.median_seconds(configurations)
        return computing if feeding is None else np.maximum(computing, feeding.p50)

    @property
    def probed_types(self) -> tuple[str, ...]:
        """Instance types with measurements that are believed."""
        return tuple(self.step_time.rows_ if self.sharded_step_time is None else self.sharded_step_time.fitted_.probed)

    def parallel_efficiency(self, configurations: Configurations) -> Floats:
        return (self.sharded_step_time or self.step_time).parallel_efficiency(configurations)

    def why_extrapolated(self, one: Configurations) -> str | None:
        """In words: "16 nodes, probed up to 4". None where it was probed around."""
        name, nodes, gpu_batch = one.instance_type.name, int(one.nodes[0]), int(one.gpu_batch[0])
        if self.sharded_step_time is not None:
            return self.sharded_step_time.why_extrapolated(name, nodes, gpu_batch, one.strategies)
        return self.step_time.why_extrapolated(name, nodes, gpu_batch)

    def limited_by_feeding(self, configurations: Configurations) -> Flags:
        """Where feeding takes longer than computing, as likely as not."""
        feeding = self.feeding.predict(configurations)
        if feeding is None:
            return np.zeros(len(configurations), dtype=bool)
        return feeding.p50 > self.computing_seconds(configurations).p50

    def feeds(self, instance_type: InstanceType) -> bool:
        """Whether the type's vCPUs prepare samples as fast as its GPUs take them, at the largest batch of one node.

        As the table of decoders has it; what was measured or said of the job is left to the price.
        """
        if not self.feeding.from_table or instance_type.name in self.feeding.seen_:
            return True
        most = self.feeding.workload.global_batch.high // instance_type.gpu_count
        batch = max(min(self.memory.largest_batch(instance_type), most), 1)
        one = Configurations.of(self.feeding.catalog, instance_type, nodes=1, gpu_batch=batch)
        return not self.limited_by_feeding(one)[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of measurements that cannot be what they say."""
        own = (*(self.sharded_step_time or self.step_time).warnings_, *self.memory.warnings_)
        return (*own, *(f"other job {warning}" for warning in self.history_warnings))


def fit_models(
    job: Job,
    catalog: Catalog,
    measurements: Sequence[Measurement],
    measured_noise: MeasuredNoise | None = None,
    history: Sequence[EarlierJob] = (),
) -> FittedModels:
    """What the job file says of the noise goes before what was measured. `history`: other jobs."""
    workload = job.workload
    timed = [computing(row) for row in measurements] if workload.input else measurements
    shape = workload.transformer
    plain = [each for each in history if each.workload is None or each.workload.transformer is None]
    known = fit_history(plain, catalog) if shape is None else NO_HISTORY
    step_time = StepTimeModel(workload, catalog, known).fit(timed if shape is None else ())
    prior, odd = (POOLED, ()) if shape is None else prior_of_next_job(history, catalog)
    memory = (
        MemoryModel(workload, catalog)
        if shape is None
        else ShardedMemoryModel(workload, shape, catalog, job.constraints.confidence)
    )
    return FittedModels(
        step_time=step_time,
        sharded_step_time=None if shape is None else _sharded_steps(workload, catalog, prior).fit(timed),
        doubted_steps=DoubtedSteps(step_time, measurements) if shape is None else None,
        feeding=FeedingModel(workload, catalog, job.run.volume_mibps_or_default).fit(measurements),
        convergence=fit_convergence(job, measured_noise),
        memory=memory.fit(measurements),
        overheads=run_overheads(workload, measurements, job.run.copied_bytes, job.run.volume_mibps_or_default),
        history_warnings=(*known.warnings, *odd),
    )


def fit_convergence(job: Job, measured_noise: MeasuredNoise | None) -> ConvergenceModel:
    """What reaching the target takes, from the runs of the job file and the gradient noise."""
    workload = job.workload
    runs = [(float(run.batch), workload.samples_of(run)) for run in workload.convergence.runs]
    points = [(float(workload.target.reference_batch), workload.target_samples), *runs]
    return ConvergenceModel().fit(points, *_noise(workload.convergence.noise_scale, measured_noise))


def _noise(given: float | None, measured: MeasuredNoise | None) -> tuple[float | None, float]:
    """The noise scale, and how sure it says where the critical batch lies: less so if it is not well known itself."""
    if given is not None or measured is None:
        return given, NOISE_SCALE_LOG_SD
    return measured.scale, math.hypot(NOISE_SCALE_LOG_SD, measured.log_sd)


def _sharded_steps(workload: Workload, catalog: Catalog, prior: ShardedPrior) -> ShardedStepTimeModel:
    training, rank = workload.training_or_default, workload.lora_rank_or_default
    return ShardedStepTimeModel(workload, catalog, training=training, lora_rank=rank, prior=prior)
