"""How long it takes to feed a step: samples are read, decoded and handed over while the GPUs compute.

A step takes the longer of the two. Feeding is the longest of three, each with its interval; all of them grow with the
samples of the step, so a sample takes the same on every cluster of an instance type:

    processors   c · GPUs / vCPUs      c: vCPU seconds of a sample while every vCPU of the node prepares samples
    loader       h                     one process hands them to its GPU, however many workers prepare them; and where
                                       a probe saw it waiting beside idle vCPUs, what its own workers manage
    storage      bytes · GPUs / throughput of the node

c is the table's for JPEG files until somebody says or measures what one processor takes alone. What a probe saw of
waiting on an instance type goes before all of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from planner.columns import Floats, Prediction, Quantiles
from planner.inputs import GP3_MIBPS, Catalog, InputPipeline, InstanceType, Measurement, Workload, median
from planner.models.configurations import Configurations

WAITING = "waiting"  # beside the names of the resources
WAITING_SHARE = 0.1  # of a step spent waiting for data: from here on feeding set its time
IDLE_SHARE = 0.5  # of the time between two samples that the node's vCPUs would take to prepare one
_LEAST_PROBABILITY = 1e-9  # of what was seen all the same


class Doubtful(NamedTuple):
    """A quantity by its median and the standard deviation of its logarithm."""

    median: float
    log_sd: float

    def times(self, factor: float, *, log_sd: float = 0.0) -> Doubtful:
        return Doubtful(self.median * factor, float(np.hypot(self.log_sd, log_sd)))

    @property
    def prediction(self) -> Prediction:
        return Prediction.log_normal(np.array([self.median]), self.log_sd, np.array([False]))


# What benchmarks/feeding.py makes of imread_benchmark (arXiv 2605.08731, commit f869db8, 2026: 11 decoders in PyTorch's
# DataLoader on four processors with 16 vCPUs each) and of FFCV's documentation (commit 1e4b03a: 96 vCPUs). Decoding
# alone, but for FFCV, and no two of them agree: the interval is a factor of three to either side.
JPEG_VCPU_SECONDS = Doubtful(1 / 97.3, 0.65)
MOST_VCPUS = 16  # of one loader in that table: more were never seen to feed faster
# The next three are of so few processors that Student's distribution widens them for a further one.
HANDOVER_SECONDS = Doubtful(1 / 1550, 0.41)  # the best of each decoder there, however fast it is alone
WORKER_YIELD = Doubtful(0.87, 0.12)  # of two workers, each over one process alone
PROCESSOR_LOG_SD = 0.37  # between processors, of one decoder
# AWS sells hyperthreads as vCPUs. Two of a core do 1 to 1.6 times the work of one alone, so each does half to 0.8.
HYPERTHREAD_YIELD = Doubtful(0.63, 0.14)
SEEN_WAITING_LOG_SD = 0.1  # of probes of one cluster on different days

JPEG_BYTES = 115e3  # 147.9 GB of ILSVRC 2012 over its 1,281,167 training images
VOLUME_LOG_SD = 0.1  # of the throughput that is ordered
NETWORK_SHARE = Doubtful(0.7, 0.21)  # of a node's network that reading gets: half to all of it
CACHED_SHARE = 0.5  # of a node's memory: a data set this small is read from its volume once


class FeedingModel:
    """Predicts how long feeding a step takes; None where nothing is known that could limit it."""

    def __init__(self, workload: Workload, catalog: Catalog, volume_mibps: int = GP3_MIBPS) -> None:
        self.workload = workload
        self.volume = Doubtful(volume_mibps * 2**20, VOLUME_LOG_SD)
        self.catalog = catalog
        self.input: InputPipeline | None = workload.input
        self.seen_: Mapping[str, MeasuredFeeding] = {}
        self.few_workers_: Doubtful | None = None

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """What it says of other machines is in the workload already; here is what was seen on each type."""
        names = sorted({row.instance_type for row in measurements}) if self.input else []
        seen = {name: _seen([row for row in measurements if row.instance_type == name]) for name in names}
        self.seen_ = {name: found for name, found in seen.items() if any(value is not None for value in found)}
        idle = [found.waiting for name, found in self.seen_.items() if found.waiting and self._leaves_idle(name)]
        self.few_workers_ = min(idle, default=None)
        return self

    def _leaves_idle(self, name: str) -> bool:
        """Whether steps waited though most of the vCPUs had nothing to do: the loader has too few workers."""
        processors, waiting = self._processors(self.catalog.instance_type_by_name[name]), self.seen_[name].waiting
        return processors is not None and waiting is not None and processors.median < IDLE_SHARE * waiting.median

    @property
    def from_table(self) -> bool:
        """Whether it rests on the table of decoders, which is wide, and on nothing of this job."""
        return self.input is not None and self.input.kind == "jpeg" and self.input.cpu_seconds_per_sample is None

    def longest(self, instance_type: InstanceType) -> str:
        """Which of the resources, by the medians, or waiting where probes saw that."""
        seen = self.seen_.get(instance_type.name)
        if seen is not None and seen.waiting is not None:
            return WAITING
        resources = self.resources(instance_type)
        return max(resources, key=lambda name: resources[name].median)

    def predict(self, configurations: Configurations) -> Prediction | None:
        each = self.seconds_per_sample(configurations.instance_type)
        samples = (configurations.gpu_batch * configurations.accumulation_steps).astype(float)
        return None if each is None else _repeated(each, samples)

    def seconds_per_sample(self, instance_type: InstanceType) -> Quantiles | None:
        """Of one GPU, while the others of its node are fed too."""
        seen = self.seen_.get(instance_type.name)
        if seen is not None and seen.waiting is not None:
            return seen.waiting.prediction.rows()[0]
        resources = list(self.resources(instance_type).values())
        if not resources:
            return None
        longest = resources[0].prediction
        for resource in resources[1:]:
            longest = longest.longer_of(resource.prediction)
        return _known_at_most(longest, seen.fed_at_seconds if seen else None)

    def resources(self, instance_type: InstanceType) -> dict[str, Doubtful]:
        """Seconds per sample and GPU of what is known, by its name."""
        if self.input is None:
            return {}
        known = {
            "processors": self._processors(instance_type),
            "loader": self.few_workers_ or (HANDOVER_SECONDS if self.input.kind == "jpeg" else None),
            "storage": self._storage(self.input, instance_type),
        }
        if self.from_table and not self.few_workers_:
            known["loader"] = None  # the table's figures have it
        return {name: seconds for name, seconds in known.items() if seconds is not None}

    def _processors(self, instance_type: InstanceType) -> Doubtful | None:
        """From what one processor takes alone, sharper where it was measured on this type; else from the table."""
        vcpus = instance_type.vcpu / instance_type.gpu_count
        seen = self.seen_.get(instance_type.name)
        here = seen.cpu_seconds if seen else None
        alone = here or (self.input.cpu_seconds_per_sample if self.input else None)
        if alone is None:
            return JPEG_VCPU_SECONDS.times(1 / min(vcpus, MOST_VCPUS)) if self.from_table else None
        yielded = WORKER_YIELD.times(HYPERTHREAD_YIELD.median, log_sd=HYPERTHREAD_YIELD.log_sd)
        elsewhere = 0.0 if here else PROCESSOR_LOG_SD
        return Doubtful(alone / yielded.median / vcpus, float(np.hypot(yielded.log_sd, elsewhere)))

    def _storage(self, pipeline: InputPipeline, instance_type: InstanceType) -> Doubtful | None:
        """Per sample of each GPU; None where source or size are not known."""
        size = pipeline.bytes_per_sample or (JPEG_BYTES if pipeline.kind == "jpeg" else None)
        if pipeline.source is None or size is None:
            return None
        if pipeline.source == "volume":
            if size * self.workload.dataset_samples <= CACHED_SHARE * instance_type.ram_gib * 2**30:
                return None
            throughput = self.volume
        else:
            throughput = NETWORK_SHARE.times(instance_type.network_baseline_gbps * 1e9 / 8)
        return Doubtful(size * instance_type.gpu_count / throughput.median, throughput.log_sd)


class MeasuredFeeding(NamedTuple):
    """What probes of one instance type saw of feeding."""

    waiting: Doubtful | None  # seconds per sample where steps waited for data
    fed_at_seconds: float | None  # the shortest per sample at which none did
    cpu_seconds: float | None


def computing(row: Measurement) -> Measurement:
    """The step without what it waited for data, where that set its time: what another machine need not wait for."""
    if not _waited(row):
        return row
    step = max(row.step_seconds - (row.data_wait_seconds or 0.0), 1e-6)
    sync = row.exposed_sync_seconds
    return row.model_copy(
        update={"step_seconds": step, "exposed_sync_seconds": None if sync is None else min(sync, step)}
    )


def _seen(rows: Sequence[Measurement]) -> MeasuredFeeding:
    """Of one instance type. A script without a data loader waits for nothing, and says nothing of feeding.

    Rows that do not tell what they waited are of real training, of which some tool kept the step time alone.
    """
    waiting = median([_seconds_per_sample(row) for row in rows if _waited(row)])
    fed = [
        _seconds_per_sample(row)
        for row in rows
        if row.data_wait_seconds is None or (row.input_cpu_seconds_per_sample and not _waited(row))
    ]
    return MeasuredFeeding(
        waiting=None if waiting is None else Doubtful(waiting, SEEN_WAITING_LOG_SD),
        fed_at_seconds=min(fed, default=None),
        cpu_seconds=median([row.input_cpu_seconds_per_sample for row in rows]),
    )


def _waited(row: Measurement) -> bool:
    return row.data_wait_seconds is not None and row.data_wait_seconds >= WAITING_SHARE * row.step_seconds


def _seconds_per_sample(row: Measurement) -> float:
    return row.step_seconds / (row.gpu_batch * row.accumulation_steps)


def _repeated(each: Quantiles, samples: Floats) -> Prediction:
    return Prediction(
        p05=each.p05 * samples,
        p50=each.p50 * samples,
        p95=each.p95 * samples,
        extrapolated=np.zeros(len(samples), dtype=bool),
    )


def _known_at_most(longest: Prediction, limit: float | None) -> Quantiles:
    """Given that it is at most `limit`: a GPU that took a sample in that time did not wait."""
    if limit is None:
        return longest.rows()[0]
    below = float(longest.probability_at_most(limit)[0])
    at = [max(share * below, _LEAST_PROBABILITY) for share in (0.05, 0.5, 0.95)]
    return Quantiles(*(min(float(longest.quantile(probability)[0]), limit) for probability in at))
