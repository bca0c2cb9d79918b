"""The journal of a run that is tuned while it trains: its stretches, which of them count, and how far it got.

A stretch is what one start of the script trained. It counts if the next one began with the parameters that it left
behind. What a killed one trained since the last checkpoint is lost, and its time is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError

from planner.contract import Contract, first_fault
from planner.errors import InputError
from planner.inputs import ShortHash
from planner.models import ConvergenceModel

_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Many = Annotated[int, Field(ge=0, le=10**18)]


class Stretch(Contract):
    """One line of the journal."""

    schema_version: Literal[1] = 1
    workers: Annotated[int, Field(gt=0, le=4096)]
    gpu_batch: Annotated[int, Field(gt=0, le=2**24)]
    seconds: _Seconds = Field(description="of the clock, with its start")
    startup_seconds: _Seconds | None = Field(default=None, description="from a warm start to the first step")
    stopping_seconds: _Seconds | None = Field(default=None, description="after it was told to save and leave")
    steps: _Many = 0
    samples: _Many = 0
    step_seconds: Annotated[_Seconds, Field(gt=0)] | None = Field(default=None, description="as it measured last")
    from_state: ShortHash | None = Field(default=None, description="of the parameters that it began with")
    to_state: ShortHash | None = Field(default=None, description="of those that it left; null if it was killed")
    learning_rate: float | None = None
    fits: bool = Field(default=True, description="the memory")
    ended: bool = Field(default=False, description="the script came to its own end")
    run_key: ShortHash | None = Field(default=None, description="of the script and its arguments")

    @property
    def global_batch(self) -> int:
        return self.workers * self.gpu_batch


def parse_stretches(text: str, *, file: str) -> list[Stretch]:
    """A torn last line is of a killed writer."""
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(Stretch.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            fault = first_fault(error, Stretch)
            raise InputError(fault.message, file=file, line=number, key=fault.key) from None
    return found


def counting(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Those whose training is in the parameters that the last one had."""
    kept: list[Stretch] = []
    for stretch in stretches:
        if stretch.from_state is None:  # it made no step
            continue
        origin = [number for number, before in enumerate(kept) if before.to_state == stretch.from_state]
        if origin:
            kept = kept[: origin[-1] + 1]
        elif kept and stretch.from_state == kept[0].from_state:
            kept = []
        else:  # a killed one had saved something on its way: nobody knows how much
            kept = [before for before in kept if before.to_state is not None]
        kept.append(stretch)
    return kept


def fault_of_last(stretches: Sequence[Stretch]) -> str | None:
    """One line where the script did not go on from what it had saved, in order, before."""
    began = [stretch for stretch in stretches if stretch.from_state is not None]
    if len(began) < 2 or began[-2].to_state is None or began[-1].from_state == began[-2].to_state:
        return None
    anew = began[-1].from_state == began[0].from_state
    how = "began anew" if anew else "went on with other parameters than it had"
    return f"the script {how}: it must save in SCAV_CHECKPOINT_DIR on SIGTERM, and load from there when it starts"


def stuck_learning_rate(stretches: Sequence[Stretch]) -> str | None:
    """One line where the batch changed and the rate did not, as an optimizer's loaded state would have it."""
    rated = [stretch for stretch in stretches if stretch.learning_rate]
    for one, other in pairwise(rated):
        if one.global_batch != other.global_batch and one.learning_rate == other.learning_rate:
            batches = f"{one.global_batch:,} to {other.global_batch:,}"
            return (
                f"the learning rate stayed {one.learning_rate:.3g} though the batch went from {batches}: an optimizer "
                "that loads its state has the old rate; set it again by SCAV_LR_SCALE afterwards"
            )
    return None


def share_done(stretches: Sequence[Stretch], samples: ConvergenceModel) -> float:
    """Of the way to the target, as the samples of each batch count; above 1 where it takes more than was thought."""
    kept = counting(stretches)
    if not kept:
        return 0.0
    needed = samples.predict(np.array([stretch.global_batch for stretch in kept])).p50
    return float(np.sum(np.array([stretch.samples for stretch in kept]) / needed))


def trained_samples(stretches: Sequence[Stretch]) -> int:
    return sum(stretch.samples for stretch in counting(stretches))


def restart_seconds(stretches: Sequence[Stretch], usual: float) -> float:
    """What stopping and starting again takes beside the steps: the usual stretch's way to its first step, and out."""
    startups = [stretch.startup_seconds for stretch in stretches if stretch.startup_seconds is not None]
    stops = [stretch.stopping_seconds for stretch in stretches if stretch.stopping_seconds is not None]
    return float(np.median(startups) + np.median(stops or [0.0])) if startups else usual


def too_large(stretches: Sequence[Stretch]) -> list[tuple[int, int]]:
    """Workers and local batch of those that did not fit the memory."""
    return [(stretch.workers, stretch.gpu_batch) for stretch in stretches if not stretch.fits]
