"""Where the probes of one sweep find the parameters that they measure the gradient noise at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from planner.errors import InputError


class NoiseState(NamedTuple):
    """A file that the first probe writes and later ones read; or a checkpoint of the user's, for all to read."""

    file: Path
    is_given: bool


@contextmanager
def noise_state(checkpoint: Path | None) -> Iterator[NoiseState]:
    """For one sweep: afterwards, what the probes left is gone."""
    if checkpoint is not None:
        if not checkpoint.is_file():
            raise InputError("no such checkpoint", file=str(checkpoint))
        yield NoiseState(checkpoint.resolve(), is_given=True)
        return
    with tempfile.TemporaryDirectory(prefix="scav-noise-") as folder:
        yield NoiseState(Path(folder) / "state.pt", is_given=False)
