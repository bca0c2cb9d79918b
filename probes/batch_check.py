"""Whether a script's steps are what was asked for, decided alike on every process; and one line if they are not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch.distributed as dist

from probes import cluster
from probes.counting import StepCount

EARLY_STEPS = 4  # if none of them is right, there is no need to wait for the warm-up
LEAST_SHARE = 0.5  # of steps that are right: the last batch of an epoch may be smaller
_WAYS = (
    "hand the batch over with {gpu_batch} and {accumulation_steps} in the command, "
    "or read SCAV_GPU_BATCH and SCAV_ACCUMULATION in the script"
)
_PACKED = "; where samples are packed into one row, say --samples-per-step asked"
_OTHER_WAYS = (
    "say --samples-per-step N if the script's own batch is N, --samples-per-step asked if it takes the batch that it "
    "is given, or report steps as docs/measurements.md shows (--writes-steps, scav_probe)"
)


def fault(counts: Sequence[StepCount], asked: StepCount, place: cluster.Place, *, early: bool) -> str | None:
    """None while the steps are right. Every process must ask at the same step."""
    if alone := _alone(place):
        return alone
    right = counts.count(asked)
    wrong = right == 0 if early else right < LEAST_SHARE * len(counts)
    (anywhere,) = cluster.any_of([wrong], place)
    return _told(counts, asked, place) if anywhere else None


def _alone(place: cluster.Place) -> str | None:
    met = dist.get_world_size() if dist.is_initialized() else 1
    if met == place.world_size:
        return None
    return f"{place.world_size} processes were started and {met} train together: the script makes no group of them all"


def _told(counts: Sequence[StepCount], asked: StepCount, place: cluster.Place) -> str:
    """The same on every process, though one of them may be right."""
    seen, _ = Counter(counts).most_common(1)[0]
    samples = math.nan if seen.samples is None else float(seen.samples)
    (uncounted,) = cluster.any_of([math.isnan(samples)], place)
    if uncounted:
        return f"the samples of its steps cannot be counted from the calls of its model: {_OTHER_WAYS}"
    most, least, micro_steps = cluster.largest([samples, -samples, float(seen.micro_steps)], place)
    same = _counted(int(most), "sample") if most == -least else f"{-least:,.0f} to {most:,.0f} samples"
    often = f"{_share(counts, seen)}took {same} in {_counted(int(micro_steps), 'micro-step')}"
    wanted = f"asked for {asked.samples:,} in {_counted(asked.micro_steps, 'micro-step')}"
    return f"each process {often} per optimizer step, {wanted}: {_WAYS}{_PACKED * (most == micro_steps)}"


def _share(counts: Sequence[StepCount], seen: StepCount) -> str:
    return "" if counts.count(seen) == len(counts) else "mostly "


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
