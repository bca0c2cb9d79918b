"""What to measure next, when to stop, and which configuration to take then: a rule that no command runs yet.

A bare minimum over a model's predictions finds the model's largest error. So a few spread-out probes come first, then
one at a time the configuration that is expected to improve most on the best MEASURED one, for as long as that is worth
more than the machines it takes; and what is chosen was measured, or is surely better than what was.

Improvement is worth money in proportion to the job: a tenth off its hours counts like a tenth off its bill. Only what
a probe can tell counts: uncertainty about the samples to the target stays, whichever step time is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.probing.further_probe import LEAST_GAIN, expected_improvement

MOST_PROBES = 15
# The rest of the probes go where the first ones point.
START_SHARE = 0.6
# Parts of the job's cost. Dearer start probes wait until the expected improvement pays for them.
DEAREST_START = 0.01
# All on the very first cluster: choosing without any measurement errs by a factor of 1.7 and more.
DEAREST_FIRST = 0.35
# Standard deviations that an unmeasured configuration must stay ahead by.
SURELY = 1.645

Batch = Literal["smallest", "middle", "largest"]


class Shape(NamedTuple):
    """A start probe: on how many nodes, on one GPU or all of them, with which of the batches that fit."""

    nodes: int
    whole_nodes: bool
    batch: Batch


# In the order in which they tell most: a GPU's speed, what its neighbours cost it, the network, then curvature.
START_SHAPES = (
    Shape(1, True, "largest"),
    Shape(1, False, "largest"),
    Shape(2, True, "middle"),
    Shape(1, True, "smallest"),
    Shape(4, True, "middle"),
    Shape(1, False, "smallest"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpace:
    """Configurations of a few promising instance types, as columns; a cluster is a type and a number of nodes."""

    instance_type: Ints  # any code
    nodes: Ints
    gpus: Ints  # in all
    gpu_batch: Ints
    hourly_usd: Floats  # of the cluster
    measurable: Flags  # others can only be chosen: more nodes than a probe may take
    startup_seconds: float  # of a cluster

    def __len__(self) -> int:
        return len(self.nodes)

    def same_cluster(self, row: int) -> Flags:
        same: Flags = (self.instance_type == self.instance_type[row]) & (self.nodes == self.nodes[row])
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What the models say of each configuration: logarithms of the whole job's hours or dollars, whichever matters.

    `log_sd` is of the step time, which a probe would settle. Infinite `log_value`: may be probed, not chosen.
    """

    log_value: Floats
    log_sd: Floats
    job_usd: Floats  # what the job costs there
    probe_seconds: Floats  # measuring, without the cluster's start


class Proposal(NamedTuple):
    """One further probe, and what it is expected to be worth."""

    row: int
    gain_usd: float
    price_usd: float
    gain: float  # as a share of the best measured value


def start_plan(space: ProbeSpace, probe_seconds: Floats, job_usd: float, *, most: int = MOST_PROBES) -> list[int]:
    """Rows to measure first: shape by shape over all instance types, cheapest type first.

    `job_usd` is what the job is expected to cost. A small job probes the cheapest type only, a tiny one nothing.
    """
    types = sorted(set(space.instance_type[space.measurable].tolist()), key=lambda code: _cheapest(space, code))
    rows = [(shape, code, _row_of(space, code, shape)) for shape in START_SHAPES for code in types]
    planned: list[int] = []
    first_cluster_usd = 0.0
    for shape, code, row in rows:
        if row is None or row in planned:
            continue
        price = float(price_usd(space, probe_seconds, planned)[row])
        on_first = code == types[0] and shape.nodes == 1
        limit = DEAREST_FIRST * job_usd - first_cluster_usd if on_first else DEAREST_START * job_usd
        if price <= limit:
            planned.append(row)
            first_cluster_usd += price if on_first else 0.0
    return planned[: max(round(START_SHARE * most), 1)]


def _cheapest(space: ProbeSpace, code: int) -> tuple[float, int]:
    return float(space.hourly_usd[space.measurable & (space.instance_type == code)].min()), code


def _row_of(space: ProbeSpace, code: int, shape: Shape) -> int | None:
    """None where the type has no such configuration."""
    own = space.measurable & (space.instance_type == code)
    each = int((space.gpus[own] // space.nodes[own]).max()) if shape.whole_nodes else 1
    rows = np.flatnonzero(own & (space.nodes == shape.nodes) & (space.gpus == shape.nodes * each))
    if not len(rows):
        return None
    ordered = rows[np.lexsort((rows, space.gpu_batch[rows]))]
    return int(ordered[{"smallest": 0, "middle": len(ordered) // 2, "largest": -1}[shape.batch]])


def next_probe(
    space: ProbeSpace, belief: Belief, measured: Mapping[int, float], *, running: Collection[int] | None = None
) -> Proposal | None:
    """The most worthwhile row; None when none repays its price, or nothing has been measured to improve on."""
    found = proposals(space, belief, measured, running=running)
    return next((row for row in found[:1] if row.gain_usd > row.price_usd), None)


def proposals(
    space: ProbeSpace, belief: Belief, measured: Mapping[int, float], *, running: Collection[int] | None = None
) -> list[Proposal]:
    """Rows that may improve on the best of `measured` (values by row), by what they are worth beyond their price.

    `running`: rows whose clusters need not be started again; if not said, all that were measured.
    """
    best = best_measured(measured)
    if best is None:
        return []
    gain = np.where(space.measurable, expected_improvement(belief.log_value, belief.log_sd, measured[best]), 0.0)
    gain[list(measured)] = 0.0
    gain_usd = gain * float(belief.job_usd[best])
    price = price_usd(space, belief.probe_seconds, measured if running is None else running)
    order = np.lexsort((np.arange(len(space)), price, price - gain_usd))
    order = order[gain[order] >= LEAST_GAIN]
    columns = (order, gain_usd[order], price[order], gain[order])
    return [Proposal(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def on_the_same_cluster(
    space: ProbeSpace, belief: Belief, measured: Mapping[int, float], first: Proposal, *, most: int = 3
) -> list[Proposal]:
    """`first`, and what is worth measuring beside it now that its cluster runs anyway, on as many GPUs."""
    beside = space.same_cluster(first.row) & (space.gpus == space.gpus[first.row])
    others = [
        row
        for row in proposals(space, belief, measured, running=(first.row,))
        if beside[row.row] and row.row != first.row and row.gain_usd > row.price_usd
    ]
    return [first, *others][:most]


def price_usd(space: ProbeSpace, probe_seconds: Floats, running: Iterable[int]) -> Floats:
    """Of measuring each row next: the steps, and its cluster's start unless that of a `running` row will do."""
    started = np.zeros(len(space), dtype=bool)
    for row in running:
        started |= space.same_cluster(row)
    return np.asarray(space.hourly_usd * (np.where(started, 0.0, space.startup_seconds) + probe_seconds) / 3600)


def best_measured(measured: Mapping[int, float]) -> int | None:
    """None when nothing was measured, or nothing that can be chosen (infinite: it did not fit, say)."""
    usable = [row for row, value in measured.items() if np.isfinite(value)]
    return min(usable, key=lambda row: (measured[row], row), default=None)


def choose(belief: Belief, measured: Mapping[int, float]) -> int:
    """The best measured row, or one that is better even at the upper end of its interval."""
    cautious = belief.log_value + SURELY * belief.log_sd
    for row, value in measured.items():
        cautious[row] = np.log(value)
    return int(np.argmin(cautious))


class ProbedChoice(NamedTuple):
    """Values by row, in the order of measuring; and the row to take."""

    measured: dict[int, float]
    chosen: int


def probe_and_choose(
    space: ProbeSpace,
    believe: Callable[[Sequence[int]], Belief],
    measure: Callable[[int], float],
    *,
    job_usd: float,
    most: int = MOST_PROBES,
) -> ProbedChoice:
    """The whole rule: `believe` fits the models to the rows measured so far, `measure` gives a row's value."""
    first = start_plan(space, believe(()).probe_seconds, job_usd, most=most)
    measured = {row: measure(row) for row in first}
    belief = believe(sorted(measured))
    while len(measured) < most:
        proposal = next_probe(space, belief, measured)
        if proposal is None:
            break
        measured[proposal.row] = measure(proposal.row)
        belief = believe(sorted(measured))
    return ProbedChoice(measured, choose(belief, measured))
