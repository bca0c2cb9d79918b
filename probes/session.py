"""One probe of one configuration, driven by the script's own steps.

Warm-up, then windows of steps in turn with and without communication (A B A B: a busy minute hits both), then the
gradient noise at parameters that stand still, then what needs no steps: all-reduce, checkpoint, memory. Then the
script is ended: what it would train further is of no interest.

A script whose steps are not what was asked for is ended after the warm-up, and nothing is measured.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from probes import after_steps, batch_check, cluster, windows
from probes.counting import StepCount
from probes.instrument import Instrument
from probes.noise import LEAST_GROUP, GradientCollector, NoiseEstimate, estimate
from probes.settings import OTHER_BATCH, Settings

LONGEST_WARM_UP = 3 * windows.WARM_UP_STEPS
MOST_NOISE_GROUPS = 64
LEAST_NOISE_GROUPS = 8
MOST_NOISE_STEPS = 2 * MOST_NOISE_GROUPS * LEAST_GROUP  # though half of the steps are of another size
NOISE_COPIES = 4  # of the parameters in fp32: as they were, a gradient, the sum of gradients, their mean


class ProbeFinished(SystemExit):
    """Ends the script from inside its optimizer step; `except Exception` in the script does not hold it."""


_current: Session | None = None


def current() -> Session | None:
    """The probe that this script is run by, if it is."""
    return _current


def begin(settings: Settings, place: cluster.Place, started: float) -> Session:
    global _current
    _current = Session(settings, place, started)
    _current.instrument.install()
    return _current


@dataclass(slots=True)
class _Timed:
    """Finished windows of one kind, in seconds per step; and how much of each step was waiting for data."""

    finished: list[list[float]] = field(default_factory=list)
    waits: list[list[float]] = field(default_factory=list)


class Session:
    def __init__(self, settings: Settings, place: cluster.Place, started: float) -> None:
        self.settings, self.place, self.started = settings, place, started
        self.steps_are_marked = False  # by the script itself, through probes.scav_probe
        self.instrument = Instrument(place, self.before_step, self.after_optimizer_step)
        self.startup_seconds: float | None = None
        self.steps = 0
        self.peak_memory_bytes = 0
        self.asked = StepCount(settings.gpu_batch * settings.accumulation_steps, settings.accumulation_steps)
        self._counts: list[StepCount] = []  # of the warm-up, then of the timed steps
        self._noise_steps = 0
        self._phase = "warm-up"
        self._clock = 0.0
        self._window: list[float] = []
        self._waits: list[float] = []
        self._warm_up: list[float] = []
        self._with_sync, self._without_sync = _Timed(), _Timed()
        self._collector: GradientCollector | None = None
        self._frozen: list[torch.Tensor] = []

    def before_step(self) -> None:
        if self._collector is None:
            return
        as_asked = self._of_step(self.instrument.counter.of_gradient()) == self.asked or self.steps_are_marked
        (other_size,) = cluster.any_of([not as_asked], self.place)
        if not other_size:
            self._collector.take()

    def after_optimizer_step(self) -> None:
        if not self.steps_are_marked:
            self.after_step(self.instrument.counter.last)

    def after_marked_step(self, samples: int | None) -> None:
        """The script says what a step is, so only the script knows what it took."""
        self.after_step(StepCount(samples, self.asked.micro_steps))

    def after_step(self, count: StepCount) -> None:
        cluster.wait_for_device()
        now = time.perf_counter()
        self.steps += 1
        if self.startup_seconds is None:
            self.startup_seconds = time.time() - self.started
        else:
            self._advance(now - self._clock, self._of_step(count))
        self._clock = time.perf_counter()

    def _of_step(self, count: StepCount) -> StepCount:
        return self.asked if self.settings.samples_are_stated else count

    def _advance(self, seconds: float, count: StepCount) -> None:
        if self._phase == "warm-up":
            self._warm_up.append(seconds)
            self._counts.append(count)
            if len(self._counts) == batch_check.EARLY_STEPS:
                self._refuse_other_batches(early=True)
            if len(self._warm_up) % windows.WARM_UP_STEPS == 0:
                (cold,) = cluster.any_of([not windows.is_warm(self._warm_up)], self.place)
                if not cold or len(self._warm_up) >= LONGEST_WARM_UP:
                    self._begin_timing()
        elif self._phase == "timing":
            self._window.append(seconds)
            self._waits.append(self.instrument.data_wait_seconds)
            self._counts.append(count)
            self.instrument.data_wait_seconds = 0.0
            if len(self._window) == self.settings.window_steps:
                self._end_window()
        elif self._collector is not None:
            self._continue_noise(self._collector)

    def _refuse_other_batches(self, *, early: bool = False) -> None:
        reason = batch_check.fault(self._counts, self.asked, self.place, early=early)
        if reason is not None:
            self._leave({"outcome": OTHER_BATCH, "reason": reason})

    def _begin_timing(self) -> None:
        self._refuse_other_batches()
        self._phase, self._counts = "timing", []
        self.instrument.data_wait_seconds = 0.0
        self.instrument.synchronize_gradients(True)

    def _end_window(self) -> None:
        kind = self._next_kind()
        as_asked = [count == self.asked for count in self._counts[-len(self._window) :]]
        kind.finished.append(windows.chosen(self._window, as_asked))
        kind.waits.append(windows.chosen(self._waits, as_asked))
        self._window, self._waits = [], []
        following = self._next_kind()
        enough = len(self._with_sync.finished) >= self.settings.windows
        if enough and (self.place.world_size == 1 or len(self._without_sync.finished) >= self.settings.windows):
            self._end_timing()
        else:
            self.instrument.synchronize_gradients(following is self._with_sync)

    def _next_kind(self) -> _Timed:
        behind = len(self._without_sync.finished) < len(self._with_sync.finished)
        return self._without_sync if behind and self.place.world_size > 1 else self._with_sync

    def _end_timing(self) -> None:
        self._refuse_other_batches()
        self.peak_memory_bytes = after_steps.peak_memory_bytes()  # of training: what follows keeps copies of its own
        parameters = self.instrument.parameters()
        copies = NOISE_COPIES * sum(4 * parameter.numel() for parameter in parameters)
        # A batch that fills the memory fits, though it leaves no room for the noise: smaller ones tell that.
        (too_full,) = cluster.any_of([not after_steps.has_room_for(copies)], self.place)
        if too_full or not self.settings.measure_noise:
            self._finish(None)
        self._phase = "noise"
        if dist.is_initialized():  # windows without communication let the processes drift apart
            for parameter in parameters:
                dist.broadcast(parameter.data, src=0)
        self._frozen = [parameter.detach().clone() for parameter in parameters]
        self.instrument.synchronize_gradients(False)
        self._collector = GradientCollector(parameters, self.settings.gpu_batch * self.settings.accumulation_steps)

    def _continue_noise(self, collector: GradientCollector) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.instrument.parameters(), self._frozen, strict=True):
                parameter.copy_(value)
        self._noise_steps += 1
        groups = len(collector.groups)
        found = None if groups < LEAST_NOISE_GROUPS else estimate(collector.groups)  # its sums were all-reduced
        enough = groups >= MOST_NOISE_GROUPS or self._noise_steps >= MOST_NOISE_STEPS
        if enough or (found is not None and found.reached):
            self._collector = None
            self._finish(found)

    def _finish(self, noise: NoiseEstimate | None) -> NoReturn:
        self._leave(self._record(noise))

    def _leave(self, record: dict[str, Any]) -> NoReturn:
        if self.place.rank == 0:
            self.settings.output.write_text(json.dumps(record) + "\n", encoding="utf-8")
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        raise ProbeFinished(0)

    def _record(self, noise: NoiseEstimate | None) -> dict[str, Any]:
        parameters = self.instrument.parameters()
        own = windows.summarize(self._with_sync.finished)
        p50, p90, variation, data_wait, startup, memory = cluster.largest(
            [
                own.p50,
                own.p90,
                own.variation,
                windows.summarize(self._with_sync.waits).p50,  # as the step itself, so that it is a part of it
                self.startup_seconds or 0.0,
                self.peak_memory_bytes,
            ],
            self.place,
        )
        record: dict[str, Any] = {
            "outcome": "measured",
            "nodes": self.place.nodes,
            "gpus_per_node": self.place.local_world_size,
            "gpu_batch": self.settings.gpu_batch,
            "accumulation_steps": self.settings.accumulation_steps,
            **self._observed(),
            "step_seconds": p50,
            "step_seconds_p90": p90,
            "window_variation": variation,
            "windows": own.windows,
            "data_wait_seconds": data_wait,
            "startup_seconds": startup,
            "parameters": sum(parameter.numel() for parameter in parameters),
            "gradient_bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
            "peak_memory_bytes": memory,
            "hardware": cluster.hardware(self.place),
            "software": cluster.software(),
        }
        if self._without_sync.finished:
            (alone,) = cluster.largest([windows.summarize(self._without_sync.finished).p50], self.place)
            record["exposed_sync_seconds"] = max(record["step_seconds"] - alone, 0.0)
        if self.place.world_size > 1:
            timed = after_steps.time_allreduce(record["gradient_bytes"], self.place)
            record["allreduce"] = [asdict(row) for row in timed]
        if self.instrument.model is not None and self.instrument.optimizer is not None:
            record |= after_steps.time_checkpoint(
                self.instrument.model, self.instrument.optimizer, self.settings.checkpoint_folder, self.place
            )
        if noise is not None and math.isfinite(noise.scale) and math.isfinite(noise.high):
            record["noise"] = {**asdict(noise), "reached": noise.reached, "at_step": self.steps}
        return record

    def _observed(self) -> dict[str, Any]:
        """Beside the batch that was timed, which is the one asked for: steps of other sizes are in no window."""
        sizes = [count.samples for count in self._counts if count.samples is not None]
        stated = self.settings.samples_are_stated or self.steps_are_marked
        return {
            "asked_gpu_batch": self.settings.gpu_batch,
            "asked_accumulation_steps": self.settings.accumulation_steps,
            **({"samples_per_step": sum(sizes) / len(sizes)} if sizes else {}),
            "batch_source": "stated" if stated else "counted",
        }
