"""What a probe is told, through the environment: the script's batch, and how long to measure. Standard library only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from probes.strategy import VARIABLE, Strategy

OTHER_BATCH = "other_batch"  # the outcome of a script whose steps are not what was asked for
OTHER_MODEL = "other_model"  # the outcome where a given checkpoint is not of the model that the script trains
OTHER_STRATEGY = "other_strategy"  # the outcome of a script that spreads its model in another way than asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """SCAV_* variables; the first three and the strategy are for the script as well."""

    gpu_batch: int
    accumulation_steps: int
    checkpoint_folder: Path
    output: Path
    windows: int
    window_steps: int
    measure_noise: bool
    samples_are_stated: bool = False  # by the user, who knows that the script does what it is asked
    batch_is_in_command: bool = False  # by placeholders: then nothing else hands it over
    noise_state: Path | None = None  # the parameters to measure the noise at; the first probe of a sweep writes them
    noise_state_is_given: bool = False  # by the user: a checkpoint, which must be of this model
    strategy: Strategy | None = None  # how the script is to spread its model; None: as it likes, or else DDP
    strategy_is_in_command: bool = False  # by a placeholder
    stretch: str = (
        ""  # of the real run: `probe` to measure and leave, `run` to go on to the end; else a probe beside it
    )

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
            batch_is_in_command=os.environ.get("SCAV_PROBE_BATCH_IS_IN_COMMAND", "0") == "1",
            noise_state=Path(state) if (state := os.environ.get("SCAV_PROBE_NOISE_STATE")) else None,
            noise_state_is_given=os.environ.get("SCAV_PROBE_NOISE_STATE_IS_GIVEN", "0") == "1",
            strategy=Strategy.from_environment(),
            strategy_is_in_command=os.environ.get("SCAV_PROBE_STRATEGY_IS_IN_COMMAND", "0") == "1",
            stretch=os.environ.get("SCAV_PROBE_STRETCH", ""),
        )

    def to_environment(self, *, workers: int, reference_batch: int) -> dict[str, str]:
        """For a probe that starts now; what a script may rely on is there as in the real run."""
        parts = workers // (self.strategy or Strategy()).model_processes
        global_batch = parts * self.gpu_batch * self.accumulation_steps
        return {
            "SCAV_GLOBAL_BATCH": str(global_batch),
            "SCAV_GPU_BATCH": str(self.gpu_batch),
            "SCAV_ACCUMULATION": str(self.accumulation_steps),
            "SCAV_LR_SCALE": repr(global_batch / reference_batch),
            "SCAV_CHECKPOINT_DIR": str(self.checkpoint_folder),
            "SCAV_CHECKPOINT_INTERVAL_SECONDS": "600" if self.stretch else "3600",
            "SCAV_RUN_ID": "tune" if self.stretch else "probe",
            "SCAV_PROBE_OUTPUT": str(self.output),
            "SCAV_PROBE_STARTED": repr(time.time()),
            "SCAV_PROBE_WINDOWS": str(self.windows),
            "SCAV_PROBE_WINDOW_STEPS": str(self.window_steps),
            "SCAV_PROBE_NOISE": str(int(self.measure_noise)),
            "SCAV_PROBE_SAMPLES_ARE_STATED": str(int(self.samples_are_stated)),
            "SCAV_PROBE_BATCH_IS_IN_COMMAND": str(int(self.batch_is_in_command)),
            "SCAV_PROBE_NOISE_STATE": str(self.noise_state or ""),
            "SCAV_PROBE_NOISE_STATE_IS_GIVEN": str(int(self.noise_state_is_given)),
            VARIABLE: self.strategy.to_json() if self.strategy else "",
            "SCAV_PROBE_STRATEGY_IS_IN_COMMAND": str(int(self.strategy_is_in_command)),
            "SCAV_PROBE_STRETCH": self.stretch,
        }
