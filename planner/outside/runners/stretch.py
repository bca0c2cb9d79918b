"""Stretches of a real run on this machine: started, watched, told to save and leave, and written down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from planner.errors import OutOfMemory, ScavError, ScriptFailed, one_line
from planner.inputs import Measurement
from planner.outside.runners.interrupts import Interrupts
from planner.outside.runners.local import (
    Script,
    probe_environment,
    tail_of,
    watched,
)
from planner.outside.runners.warm_start import Forked, WarmProcesses, probes_path
from planner.probing import Probe, Stretch

_GRACE_SECONDS = 120.0  # to finish a step and save
_OUT_OF_MEMORY = "out_of_memory"
_CHECKPOINTS, _OUTPUT, _PROGRESS, _LOG = "checkpoints", "refused.json", "progress.json", "log.txt"


class SeenStretch(NamedTuple):
    """How far a stretch has got, and what it has measured so far."""

    stretch: Stretch
    looks: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchRunner:
    """Runs one stretch after the other in a folder that keeps the checkpoints."""

    script: Script
    folder: Path
    interrupts: Interrupts
    warm: WarmProcesses
    run_key: str | None
    windows: int
    window_steps: int
    reference_batch: int

    def left_over(self) -> Stretch | None:
        """What a killed scav left of a stretch, which it had not written down."""
        seen = self._seen(None, ended=False)
        self._progress.unlink(missing_ok=True)
        return None if seen is None else seen.stretch.model_copy(update={"to_state": None})

    def run(
        self,
        probe: Probe,
        purpose: Literal["probe", "run"],
        *,
        longest_seconds: float,
        write: Callable[[SeenStretch], None],
        is_enough: Callable[[SeenStretch], bool] = lambda _seen: False,
    ) -> SeenStretch:
        """Until it has measured what it was to, or the script has come to its end, or what was seen is enough.

        Whatever ends it, what it trained is written down before anything is raised.
        """
        (self.folder / _CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for name in (_OUTPUT, _PROGRESS):
            (self.folder / name).unlink(missing_ok=True)
        with self.interrupts.heard():
            self.warm.wait_until_ready()
        self._progress.write_text(json.dumps(_shape(probe, time.time())), encoding="utf-8")
        code: int | None = None
        try:
            code = watched(
                self._started(probe, purpose),
                longest_seconds,
                self.interrupts,
                is_enough=lambda: (seen := self._seen(probe, ended=False)) is not None and is_enough(seen),
                grace_seconds=_GRACE_SECONDS,
            )
        finally:
            seen = self._written(probe, code)
            if seen is not None:
                write(seen)
            self._progress.unlink(missing_ok=True)
        self._refuse(probe, seen, purpose, code)
        assert seen is not None  # noqa: S101 - refused otherwise
        return seen

    def _started(self, probe: Probe, purpose: str) -> Forked:
        return self.warm.start(
            probe.gpus_per_node,
            self.script.arguments(probe, self.reference_batch),
            folder=self.script.folder,
            environment=self._environment(probe, purpose),
            log=self.folder / _LOG,
        )

    def _written(self, probe: Probe, code: int | None) -> SeenStretch | None:
        """When it is over. One that failed saved nothing; one that was refused has said why."""
        was_stopped, refused = bool(self._content().get("stopped")), self._refused()
        seen = self._seen(probe, ended=code == 0 and not was_stopped and not refused)
        if seen is None or not (refused or (code and not was_stopped)):
            return seen
        known = {"to_state": None, "fits": refused.get("outcome") != _OUT_OF_MEMORY}
        return seen._replace(stretch=seen.stretch.model_copy(update=known))

    def _refused(self) -> dict[str, Any]:
        file = self.folder / _OUTPUT
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    def _refuse(self, probe: Probe, seen: SeenStretch | None, purpose: str, code: int | None) -> None:
        where = f"stretch of {probe.gpus_per_node} workers at local batch {probe.gpu_batch}"
        if refused := self._refused():
            if refused["outcome"] == _OUT_OF_MEMORY:
                raise OutOfMemory(f"{where}: does not fit the memory", gpu_batch=probe.gpu_batch)
            raise ScavError(f"{where}: {one_line(str(refused['reason']))}")
        if seen is None or seen.stretch.to_state is None:
            how = "was not finished in time" if code is None else f"failed with exit code {code}"
            raise ScriptFailed(f"{where}: the script {how}", said=tail_of(self.folder / _LOG))
        stopped_in_order = (purpose == "run" and code is None) or seen.looks
        if not seen.stretch.ended and not stopped_in_order:
            raise ScriptFailed(f"{where}: the script failed with exit code {code}", said=tail_of(self.folder / _LOG))
        if not seen.stretch.ended and not any((self.folder / _CHECKPOINTS).rglob("*")):
            raise ScavError(
                f"{where}: the script left nothing in SCAV_CHECKPOINT_DIR when it was told to stop (SIGTERM)"
            )

    def _environment(self, probe: Probe, purpose: str) -> dict[str, str]:
        own = probe_environment(
            probe,
            self.reference_batch,
            self.folder / _CHECKPOINTS,
            self.folder / _OUTPUT,
            self.windows,
            self.window_steps,
            True,
            self.script,
            stretch=purpose,
        )
        return {**os.environ, **own, "PYTHONPATH": probes_path()}

    @property
    def _progress(self) -> Path:
        return self.folder / _PROGRESS

    def _content(self) -> dict[str, Any]:
        try:
            found = json.loads(self._progress.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _seen(self, probe: Probe | None, *, ended: bool) -> SeenStretch | None:
        content = self._content()
        if not content.get("begun"):
            return None
        now = self._progress.stat().st_mtime if probe is None else time.time()
        stopped = content.get("stopped")
        workers, batch = int(content["workers"]), int(content["gpu_batch"])
        looks = tuple(_measurement(look, content) for look in content.get("looks", ()))
        stretch = Stretch(
            workers=workers,
            gpu_batch=batch,
            seconds=max(now - float(content["begun"]), 0.0),
            startup_seconds=content.get("startup_seconds"),
            stopping_seconds=None if stopped is None else max(now - float(stopped), 0.0),
            steps=content.get("steps", 0),
            samples=content.get("samples", 0),
            step_seconds=looks[-1].step_seconds if looks else None,
            from_state=content.get("from_state"),
            to_state=content.get("to_state"),
            learning_rate=content.get("learning_rate"),
            ended=ended,
            run_key=self.run_key,
        )
        return SeenStretch(stretch, looks)


def _shape(probe: Probe, begun: float) -> dict[str, Any]:
    """What the probe keeps in its progress, so that it can be read whoever was killed."""
    shape = {"workers": probe.gpus_per_node, "gpu_batch": probe.gpu_batch, "precision": probe.precision}
    return {**shape, "begun": begun}


def _measurement(look: dict[str, Any], shape: dict[str, Any]) -> Measurement:
    row = {key: value for key, value in look.items() if key != "outcome"}
    return Measurement.model_validate({**row, "instance_type": "local", "precision": shape["precision"]})
