"""What a probe is told, through the environment: the script's batch, and how long to measure. Standard library only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

OTHER_BATCH = "other_batch"  # the outcome of a script whose steps are not what was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """SCAV_* variables; the first three are for the script as well."""

    gpu_batch: int
    accumulation_steps: int
    checkpoint_folder: Path
    output: Path
    windows: int
    window_steps: int
    measure_noise: bool
    samples_are_stated: bool = False  # by the user, who knows that the script does what it is asked

    @classmethod
    def from_environment(cls) -> Settings:
        def number(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        return cls(
            gpu_batch=number("SCAV_GPU_BATCH", 1),
            accumulation_steps=number("SCAV_ACCUMULATION", 1),
            checkpoint_folder=Path(os.environ.get("SCAV_CHECKPOINT_DIR", ".")),
            output=Path(os.environ.get("SCAV_PROBE_OUTPUT", "probe.json")),
            windows=number("SCAV_PROBE_WINDOWS", 8),
            window_steps=number("SCAV_PROBE_WINDOW_STEPS", 20),
            measure_noise=os.environ.get("SCAV_PROBE_NOISE", "1") == "1",
            samples_are_stated=os.environ.get("SCAV_PROBE_SAMPLES_ARE_STATED", "0") == "1",
        )

    def to_environment(self, *, workers: int, reference_batch: int) -> dict[str, str]:
        """For a probe that starts now; what a script may rely on is there as in the real run."""
        global_batch = workers * self.gpu_batch * self.accumulation_steps
        return {
            "SCAV_GLOBAL_BATCH": str(global_batch),
            "SCAV_GPU_BATCH": str(self.gpu_batch),
            "SCAV_ACCUMULATION": str(self.accumulation_steps),
            "SCAV_LR_SCALE": repr(global_batch / reference_batch),
            "SCAV_CHECKPOINT_DIR": str(self.checkpoint_folder),
            "SCAV_CHECKPOINT_INTERVAL_SECONDS": "3600",
            "SCAV_RUN_ID": "probe",
            "SCAV_PROBE_OUTPUT": str(self.output),
            "SCAV_PROBE_STARTED": repr(time.time()),
            "SCAV_PROBE_WINDOWS": str(self.windows),
            "SCAV_PROBE_WINDOW_STEPS": str(self.window_steps),
            "SCAV_PROBE_NOISE": str(int(self.measure_noise)),
            "SCAV_PROBE_SAMPLES_ARE_STATED": str(int(self.samples_are_stated)),
        }
