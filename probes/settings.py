"""What a probe is told, through the environment: the script's batch, and how long to measure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


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
        )
