"""What to measure next, and when to stop: the rule of `scav tune`.

A bare minimum over a model's predictions finds the model's largest error. So a few spread-out probes come first, then
the configuration that is expected to improve most on the best MEASURED one, for as long as that is worth more than
the machines it takes. Starting a cluster costs more than a probe on it, so each visit to one measures what else is
worth its price there.

Improvement is worth money in proportion to the job: a tenth off its hours counts like a tenth off its bill. Only what
a probe can tell counts: uncertainty about the samples to the target stays, whichever step time is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
MOST_PER_VISIT = 3

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
    stands_in: Ints = field(init=False)  # the row to measure for each: itself, or the one with most nodes; -1: none

    def __post_init__(self) -> None:
        object.__setattr__(self, "stands_in", self._stand_ins())

    def _stand_ins(self) -> Ints:
        """Of the same type, GPUs per node and batch."""
        keys = np.stack((self.instance_type, self.gpus // self.nodes, self.gpu_batch), axis=1)
        group = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        largest = np.full(len(self) + 1, -1, dtype=np.int64)
        for row in np.flatnonzero(self.measurable)[np.argsort(self.nodes[self.measurable], kind="stable")]:
            largest[group[row]] = row  # the last one has most nodes
        return np.where(self.measurable, np.arange(len(self)), largest[group])

    def __len__(self) -> int:
        return len(self.nodes)

    def same_cluster(self, row: int) -> Flags:
        same: Flags = (self.instance_type == self.instance_type[row]) & (self.nodes == self.nodes[row])
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is known of each configuration: the whole job's hours or dollars there, whichever matters.

    `log_sd` is of the step time, which a probe would settle. Infinite `log_value`: may be probed, not chosen.
    """

    log_value: Floats
    log_sd: Floats
    job_usd: Floats  # what the job costs there
    probe_seconds: Floats  # measuring, without the cluster's start
    measured: Mapping[int, float]  # the value of rows that were


class Proposal(NamedTuple):
    """One further probe, and what it is expected to be worth."""

    row: int
    gain_usd: float
    price_usd: float
    gain: float  # as a share of the best measured value


class Visit(NamedTuple):
    """Rows to measure while one cluster runs. The gain is that of the first; a start probe has none."""

    rows: tuple[int, ...]
    gain_usd: float = 0.0


def start_plan(
    space: ProbeSpace,
    probe_seconds: Floats,
    job_usd: float,
    *,
    most: int = MOST_PROBES,
    first_share: float = DEAREST_FIRST,
) -> list[int]:
    """Rows to measure first: shape by shape over all instance types, cheapest type first.

    `job_usd` is what the job is expected to cost. A small job probes the cheapest type only, a tiny one nothing.
    `first_share`: of the job, what all probes on the very first cluster may cost.
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
        limit = first_share * job_usd - first_cluster_usd if on_first else DEAREST_START * job_usd
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


def by_cluster(space: ProbeSpace, rows: Iterable[int]) -> list[Visit]:
    """Each cluster is visited once, in the order in which it is first named."""
    visits: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        visits.setdefault((int(space.instance_type[row]), int(space.nodes[row])), []).append(row)
    return [Visit(tuple(own)) for own in visits.values()]


def next_visit(
    space: ProbeSpace, belief: Belief, tried: Collection[int] = (), *, most: int = MOST_PER_VISIT
) -> Visit | None:
    """The most worthwhile; None when nothing repays its price, or nothing has been measured at all.

    `tried`: rows that were asked for and gave nothing, which are not asked again.
    """
    if belief.measured and best_measured(belief.measured) is None:
        return _most_promising(space, belief, tried)
    found = [row for row in _proposals(space, belief, running=()) if row.row not in tried]
    if not found or found[0].gain_usd <= found[0].price_usd:
        return None
    first = found[0]
    beside = space.same_cluster(first.row) & (space.gpus == space.gpus[first.row])
    others = [
        row.row
        for row in _proposals(space, belief, running=(first.row,))
        if beside[row.row] and row.row != first.row and row.row not in tried and row.gain_usd > row.price_usd
    ]
    return Visit((first.row, *others)[: min(most, MOST_PER_VISIT)], first.gain_usd)


def _most_promising(space: ProbeSpace, belief: Belief, tried: Collection[int]) -> Visit | None:
    """Where nothing that was measured can be chosen, what may be; as long as it costs no more than a first cluster."""
    price = price_usd(space, belief.probe_seconds, ())
    open_rows = space.measurable & np.isfinite(belief.log_value) & (price <= DEAREST_FIRST * belief.job_usd)
    open_rows[[*tried, *belief.measured]] = False
    rows = np.flatnonzero(open_rows)
    return Visit((int(rows[np.argmin(belief.log_value[rows])]),)) if len(rows) else None


def _proposals(space: ProbeSpace, belief: Belief, *, running: Iterable[int]) -> list[Proposal]:
    """Rows that may improve on the best measured one, by what they are worth beyond their price.

    `running`: rows whose clusters need not be started again.
    """
    best = best_measured(belief.measured)
    if best is None:
        return []
    improvement = expected_improvement(belief.log_value, belief.log_sd, belief.measured[best])
    known = space.stands_in >= 0
    gain = np.zeros(len(space))
    np.maximum.at(gain, space.stands_in[known], improvement[known])  # what larger clusters would take is learned there
    gain[list(belief.measured)] = 0.0
    gain_usd = gain * float(belief.job_usd[best])
    price = price_usd(space, belief.probe_seconds, running)
    order = np.lexsort((np.arange(len(space)), price, price - gain_usd))
    order = order[gain[order] >= LEAST_GAIN]
    columns = (order, gain_usd[order], price[order], gain[order])
    return [Proposal(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


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


def probe_in_turn(
    space: ProbeSpace,
    start: Iterable[int],
    believe: Callable[[], Belief],
    measure: Callable[[Visit], bool],
    *,
    tell: Callable[[Belief, Visit | None], None] = lambda _belief, _visit: None,
    most: int = MOST_PROBES,
) -> Belief:
    """The whole rule, from the start plan to the end: what is believed then.

    `believe` fits the models to all that is measured, also before: nothing of that is asked again, which is how an
    interrupted search goes on. `tell` hears of every decision, None for the end. `measure` says whether it was done:
    if there is no money left for it, the search ends.
    """
    planned, tried = by_cluster(space, start), set[int]()
    while True:
        belief = believe()
        visit = _of_the_start(planned, {*tried, *belief.measured})
        if visit is None and len(belief.measured) < most:
            visit = next_visit(space, belief, tried, most=most - len(belief.measured))
        tell(belief, visit)
        if visit is None or not measure(visit):
            return belief
        tried.update(visit.rows)


def _of_the_start(planned: Sequence[Visit], done: Collection[int]) -> Visit | None:
    """The first that has anything left to measure."""
    left = (tuple(row for row in visit.rows if row not in done) for visit in planned)
    return next((Visit(rows) for rows in left if rows), None)
