"""A probe that wastes nothing: a stretch of the real run, measured while it trains.

The script goes on from its checkpoint. After the warm-up its steps are timed, all of them with communication, then the
gradient noise is taken from steps as they go. A stretch that was only to measure is then told to stop as a spot notice
would, by SIGTERM: the script saves and leaves. One that is to train to the end goes on; its steps are timed again each
time their number has grown by a half, and what was found then is written beside the progress.

Progress is one small file: whoever started the stretch sees there how far it got, even if it was killed.
"""

from __future__ import annotations

import atexit
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from probes import after_steps, cluster, training_state
from probes.counting import StepCount
from probes.noise import NoiseEstimate, estimate
from probes.noise_on_the_way import MovingCollector
from probes.session import LEAST_NOISE_GROUPS, MOST_NOISE_GROUPS, Session
from probes.settings import Settings

CANNOT_STOP = "cannot_stop"  # the outcome of a script that would not save when it is told to stop
_LOOK_AGAIN = 1.5  # times the steps so far
_STEPS_BETWEEN_REPORTS = 20
_PROGRESS = "progress.json"


class Stretch(Session):
    def __init__(self, settings: Settings, place: cluster.Place, started: float) -> None:
        super().__init__(settings, place, started)
        self.compares_sync = False  # steps without communication would train each process by itself
        self.samples = 0
        self._progress = _begun(settings.output)
        self._looks: list[dict[str, Any]] = []
        self._moving: MovingCollector | None = None
        self._look_at = 0
        atexit.register(self._write_last)

    def before_step(self) -> None:
        if self.startup_seconds is None:  # nothing has moved since the checkpoint
            self._progress["from_state"] = training_state.fingerprint(self.instrument.parameters())
            self._progress["learning_rate"] = self._learning_rate()
            self._progress["startup_seconds"] = time.time() - float(self._progress.get("begun", self.started))
        if self._moving is not None:
            as_asked = self._of_step(self.instrument.counter.of_gradient()) == self.asked or self.steps_are_marked
            (other_size,) = cluster.any_of([not as_asked], self.place)
            self._moving.take(wanted=not other_size)

    def after_step(self, count: StepCount) -> None:
        own = self._of_step(count).samples or self.asked.samples or 0
        self.samples += own * self._parts
        super().after_step(count)
        if self.steps % _STEPS_BETWEEN_REPORTS == 0:
            self._write()

    def _advance(self, seconds: float, count: StepCount) -> None:
        if self._phase == "noise" and self._moving is not None:
            self._continue_moving(self._moving)
        elif self._phase == "training":
            if self.steps >= self._look_at:
                self._begin_timing()
        else:
            super()._advance(seconds, count)

    def _end_timing(self) -> None:
        self._refuse_other_batches()
        self._input_cpu_seconds += self.instrument.loading.cpu_seconds()
        self.peak_memory_bytes = after_steps.peak_memory_bytes()
        self._moving = self._moving or MovingCollector.of(self.instrument, self.asked)
        if self._moving is None or not self.settings.measure_noise:
            self._looked(None)
            return
        self._phase = "noise"
        self._state = training_state.fingerprint(self.instrument.parameters())
        self._stage = training_state.TrainingStage(self.steps, self.samples)
        self._moving.begin()

    def _continue_moving(self, moving: MovingCollector) -> None:
        groups = len(moving.groups)
        found = None if groups < LEAST_NOISE_GROUPS else estimate(moving.groups)
        if groups >= MOST_NOISE_GROUPS or (found is not None and found.reached):
            moving.end()
            self._looked(found)

    def _looked(self, noise: NoiseEstimate | None) -> None:
        """All that this look was for is known."""
        record = self._record(noise)
        self._with_sync.finished.clear()
        self._with_sync.waits.clear()
        self._looks.append(record)
        self._phase, self._look_at = "training", round(_LOOK_AGAIN * self.steps)
        if self.settings.stretch == "probe":
            self._stop()
        self._write()

    def _stop(self) -> None:
        if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal.SIG_IGN, None):
            reason = "the script does not save and leave on SIGTERM: probes.checkpoints does"
            self._leave({"outcome": CANNOT_STOP, "reason": reason})
        self._look_at = sys.maxsize
        self._progress["stopped"] = time.time()
        signal.raise_signal(signal.SIGTERM)

    def _beside(self) -> dict[str, Any]:
        """What takes time beside the steps waits for a probe of its own."""
        return {}

    def _learning_rate(self) -> float | None:
        rates = [group.get("lr") for optimizer in self.instrument.optimizers() for group in optimizer.param_groups]
        return float(rates[0]) if rates and rates[0] is not None else None

    def _write_last(self) -> None:
        """At the end of the process, whichever: the parameters are those that were saved, if they were."""
        if self.steps and self.instrument.parameters():
            self._progress["to_state"] = training_state.fingerprint(self.instrument.parameters())
        self._write()

    def _write(self) -> None:
        if self.place.rank != 0:
            return
        self._progress |= {"steps": self.steps, "samples": self.samples, "looks": self._looks}
        file = progress_file(self.settings.output)
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._progress), encoding="utf-8")
        temporary.replace(file)


def progress_file(output: Path) -> Path:
    return output.with_name(_PROGRESS)


def _begun(output: Path) -> dict[str, Any]:
    """What whoever started the stretch wrote there of it stays."""
    file = progress_file(output)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found
