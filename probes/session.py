"""One probe of one configuration, driven by the script's own steps.

Warm-up, then windows of steps in turn with and without communication (A B A B: a busy minute hits both), then the
gradient noise at parameters that stand still, the same for all probes of a sweep, then what needs no steps: all-reduce,
checkpoint, memory. Then the script is ended: what it would train further is of no interest.

A script whose steps are not what was asked for is ended after the warm-up, and nothing is measured. So is one that
spreads its model in another way, after its first step. Of a model in shards there are no steps without communication,
which is gathered anyway; gathering and reducing are timed beside the all-reduce instead.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from probes import after_steps, batch_check, cluster, sharded, training_state, windows
from probes.counting import StepCount
from probes.instrument import Instrument
from probes.noise import LEAST_GROUP, GradientCollector, NoiseEstimate, estimate
from probes.settings import OTHER_BATCH, OTHER_MODEL, OTHER_STRATEGY, Settings
from probes.strategy import Strategy
from probes.training_state import TrainingStage

LONGEST_WARM_UP = 3 * windows.WARM_UP_STEPS
MOST_NOISE_GROUPS = 64
LEAST_NOISE_GROUPS = 8
MOST_NOISE_STEPS = 2 * MOST_NOISE_GROUPS * LEAST_GROUP  # though half of the steps are of another size
NOISE_COPIES = 4  # of the parameters in fp32: as they were, a gradient, the sum of gradients, their mean


def most_steps(settings: Settings) -> int:
    """Of a probe, on several processes and with noise: a script that goes on for so many is long enough."""
    return 1 + LONGEST_WARM_UP + 2 * settings.windows * settings.window_steps + MOST_NOISE_STEPS


class ProbeFinished(SystemExit):
    """Ends the script from inside its optimizer step; `except Exception` in the script does not hold it."""


_current: Session | None = None


def current() -> Session | None:
    """The probe that this script is run by, if it is."""
    return _current


def begin(session: Session) -> Session:
    global _current
    _current = session
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
        self.batch_is_taken = False  # by the script itself, through probes.scav_probe
        self.strategy_is_taken = settings.strategy_is_in_command  # or by the script itself, in the same way
        self.strategy = settings.strategy or Strategy()
        self.adapted: list[str] = []  # libraries that scav handed the batch to
        plain = self.strategy.sharding == "ddp" and self.strategy.model_processes == 1
        self.instrument = Instrument(
            place, self.before_step, self.after_optimizer_step, self._stand_still, script_spreads=not plain
        )
        self.compares_sync = place.world_size > 1 and plain
        self.startup_seconds: float | None = None
        self.steps = 0
        self.peak_memory_bytes = 0
        self.asked = StepCount(settings.gpu_batch * settings.accumulation_steps, settings.accumulation_steps)
        self._counts: list[StepCount] = []  # of the warm-up, then of the timed steps
        self._input_cpu_seconds = 0.0  # of the timed steps
        self._noise_steps = 0
        self._phase = "warm-up"
        self._clock = 0.0
        self._window: list[float] = []
        self._waits: list[float] = []
        self._warm_up: list[float] = []
        self._with_sync, self._without_sync = _Timed(), _Timed()
        self._collector: GradientCollector | None = None
        self._frozen: list[torch.Tensor] = []
        self._old_gradients = True  # from before the parameters became those that the noise is measured at
        self._state, self._stage = "", TrainingStage(None, None)  # where the noise is measured

    def before_step(self) -> None:
        if self._collector is None:
            return
        if self._old_gradients:  # of a step that computes its gradients only now these are still the last one's
            self._old_gradients = False
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
            self._refuse_other_strategy()
            self._refuse_other_model()
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
            self._waits.append(self.instrument.loading.wait_seconds)
            self._counts.append(count)
            self.instrument.loading.wait_seconds = 0.0
            if len(self._window) == self.settings.window_steps:
                self._end_window()
        elif self._collector is not None:
            self._continue_noise(self._collector)

    def _refuse_other_batches(self, *, early: bool = False) -> None:
        reason = batch_check.fault(self._counts, self.asked, self.place, early=early)
        if reason is not None:
            self._leave({"outcome": OTHER_BATCH, "reason": reason})

    def _refuse_other_strategy(self) -> None:
        model = self.instrument.model
        if model is None:
            return
        reason = sharded.fault(
            model, self.settings.strategy, is_taken=self.strategy_is_taken, recomputes=self.instrument.recomputes
        )
        (anywhere,) = cluster.any_of([reason is not None], self.place)
        if anywhere:
            self._leave({"outcome": OTHER_STRATEGY, "reason": reason})

    def _refuse_other_model(self) -> None:
        """At once: the user waits for the noise at that checkpoint, and at no other state."""
        file, reason = self.settings.noise_state, None
        if file is None or not self.settings.noise_state_is_given:
            return
        if self.place.rank == 0:
            reason = training_state.fault(file, self.instrument)
        (anywhere,) = cluster.any_of([reason is not None], self.place)
        if anywhere:
            self._leave({"outcome": OTHER_MODEL, "reason": reason})

    def _begin_timing(self) -> None:
        self._refuse_other_batches()
        self._phase, self._counts = "timing", []
        self.instrument.loading.wait_seconds = 0.0
        self._input_cpu_seconds = -self.instrument.loading.cpu_seconds()
        self.instrument.synchronize_gradients(True)

    def _end_window(self) -> None:
        kind = self._next_kind()
        as_asked = [count == self.asked for count in self._counts[-len(self._window) :]]
        kind.finished.append(windows.chosen(self._window, as_asked))
        kind.waits.append(windows.chosen(self._waits, as_asked))
        self._window, self._waits = [], []
        following = self._next_kind()
        enough = len(self._with_sync.finished) >= self.settings.windows
        if enough and (not self.compares_sync or len(self._without_sync.finished) >= self.settings.windows):
            self._end_timing()
        else:
            self.instrument.synchronize_gradients(following is self._with_sync)

    def _next_kind(self) -> _Timed:
        behind = len(self._without_sync.finished) < len(self._with_sync.finished)
        return self._without_sync if behind and self.compares_sync else self._with_sync

    def _end_timing(self) -> None:
        self._refuse_other_batches()
        self._input_cpu_seconds += self.instrument.loading.cpu_seconds()
        self.peak_memory_bytes = after_steps.peak_memory_bytes()  # of training: what follows keeps copies of its own
        parameters = self.instrument.parameters()
        copies = NOISE_COPIES * sum(4 * sharded.own_part(parameter).numel() for parameter in parameters)
        # A batch that fills the memory fits, though it leaves no room for the noise: smaller ones tell that.
        (too_full,) = cluster.any_of([not after_steps.has_room_for(copies)], self.place)
        if too_full or not self.settings.measure_noise:
            self._finish(None)
        self._phase = "noise"
        self._go_to_state()
        self._frozen = [parameter.detach().clone() for parameter in parameters]
        self.instrument.synchronize_gradients(False)
        own = self.settings.gpu_batch * self.settings.accumulation_steps
        is_sharded = self.instrument.is_sharded
        self._collector = GradientCollector(parameters, own * self._parts if is_sharded else own, are_means=is_sharded)

    @property
    def _parts(self) -> int:
        """Of a batch; processes that share a model take the same."""
        return self.place.world_size // self.strategy.model_processes

    def _go_to_state(self) -> None:
        """The first process reads or writes the file; the others get what it has."""
        own = TrainingStage(self.steps, self.steps * (self.asked.samples or 0) * self._parts)
        file, given = self.settings.noise_state, self.settings.noise_state_is_given
        if self.instrument.is_sharded:
            from probes import sharded_state

            self._stage = own if file is None else sharded_state.share(file, self.instrument, own, given=given)
            self._state = training_state.fingerprint(map(sharded.whole, self.instrument.parameters()))
            return
        if file is None or self.place.rank != 0:
            self._stage = own
        elif given:
            self._stage = training_state.load(file, self.instrument)
        else:
            self._stage = training_state.share(file, self.instrument, own)
        training_state.make_equal(training_state.tensors_of(self.instrument).values())
        self._state = training_state.fingerprint(self.instrument.parameters())

    def _stand_still(self) -> None:
        """While noise is measured, what any optimizer has moved is put back."""
        if self._collector is not None:
            with torch.no_grad():
                for parameter, value in zip(self.instrument.parameters(), self._frozen, strict=True):
                    parameter.copy_(value)

    def _continue_noise(self, collector: GradientCollector) -> None:
        self._stand_still()
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
            **({"strategy": asdict(self.settings.strategy)} if self.settings.strategy else {}),
        }
        (loading,) = cluster.largest([self._input_cpu_seconds_per_sample()], self.place)
        if loading > 0:
            record["input_cpu_seconds_per_sample"] = loading
        if self._without_sync.finished:
            (alone,) = cluster.largest([windows.summarize(self._without_sync.finished).p50], self.place)
            record["exposed_sync_seconds"] = max(record["step_seconds"] - alone, 0.0)
        record |= self._beside()
        if noise is not None and math.isfinite(noise.scale) and math.isfinite(noise.high):
            record["noise"] = {**asdict(noise), "reached": noise.reached, "state": self._state, **self._at()}
        return record

    def _beside(self) -> dict[str, Any]:
        """What needs no steps."""
        parameters = self.instrument.parameters()
        gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        record = self._communication(gradient_bytes) if self.place.world_size > 1 else {}
        model, optimizers = self.instrument.model, self.instrument.optimizers()
        if model is not None and optimizers:
            is_sharded = self.instrument.is_sharded
            time_checkpoint = after_steps.time_sharded_checkpoint if is_sharded else after_steps.time_checkpoint
            record |= time_checkpoint(model, optimizers, self.settings.checkpoint_folder, self.place)
        return record

    def _communication(self, gradient_bytes: int) -> dict[str, Any]:
        """Of a model in shards at the size of a block: whole, its gradient may not fit."""
        model = self.instrument.model
        if model is None or not self.instrument.is_sharded:
            return {"allreduce": [asdict(row) for row in after_steps.time_allreduce(gradient_bytes, self.place)]}
        size, group = sharded.largest_unit_bytes(model), sharded.shard_group(model.parameters())
        timed = {
            "allreduce": after_steps.time_allreduce(size, self.place),
            "allgather": after_steps.time_gather(size, group, self.place),
            "reduce_scatter": after_steps.time_reduce_scatter(size, group, self.place),
        }
        return {name: [asdict(row) for row in rows] for name, rows in timed.items()}

    def _at(self) -> dict[str, int]:
        stage = {"at_step": self._stage.step, "at_samples": self._stage.samples}
        return {name: value for name, value in stage.items() if value is not None}

    def _input_cpu_seconds_per_sample(self) -> float:
        """Zero where the script has no data loader. Workers are ahead of the steps, at both ends by as much."""
        asked = self.settings.gpu_batch * self.settings.accumulation_steps
        samples = sum(asked if count.samples is None else count.samples for count in self._counts)
        return self._input_cpu_seconds / samples if self.instrument.loading.is_used and samples else 0.0

    def _observed(self) -> dict[str, Any]:
        """Beside the batch that was timed, which is the one asked for: steps of other sizes are in no window."""
        sizes = [count.samples for count in self._counts if count.samples is not None]
        stated = self.settings.samples_are_stated or self.steps_are_marked
        return {
            "asked_gpu_batch": self.settings.gpu_batch,
            "asked_accumulation_steps": self.settings.accumulation_steps,
            **({"samples_per_step": sum(sizes) / len(sizes)} if sizes else {}),
            "batch_source": "stated" if stated else "counted",
            **({"adapter": self.adapted[0]} if self.adapted and not self.batch_is_taken else {}),
        }
