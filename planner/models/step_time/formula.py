"""The physical form of a step on one node type.

    work  = e^scale · (f + (1-f)(m/m0)^p)     of the GPU
    host  = e^(scale + floor)                                              starting its kernels, feeding it
    link  = l · ring(g)^s                                                  inside a node; ring(n) = 2(n-1)/n
    net   = r · ring(N) · g^x · (k/g)^y · e^pair                           between nodes
    wait  = w · what grows of work with m, from three nodes on             for the slowest of them, for samples
    busy  = (work^c + (link + net + wait)^c)^(1/c)                         c says how much of the shorter hides
    step  = (busy^8 + host^8)^(1/8)                                        the longer of the two, nearly

m samples per GPU, g GPUs on the fullest node, k on the average one, N nodes. A host that is slower than its GPUs hides
their communication too. What grows inside a node saturates: two and four GPUs cannot tell a law that does from one that
does not, and on eight the latter is wrong by a multiple. Two nodes have a factor of their own (`pair`, `pair_alone`
with one GPU each): on Ethernet a pair is slower than three.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.columns import Floats
from planner.models.step_time.rows import Placements


class Parameters(NamedTuple):
    """All real numbers; positive quantities enter as logarithms."""

    scale: float  # log seconds of work at the reference batch
    fixed: float  # log-odds of the share that does not grow with the batch
    floor: float  # log of the host's time over the scale
    link: float  # log seconds
    network: float  # log seconds
    batch_power: float  # log of p
    link_power: float  # log of s
    pair: float
    width_power: float  # x
    overlap: float  # log-odds of c within 1..10
    pair_alone: float
    balance_power: float  # y
    wait: float  # log of w


NAMES = Parameters._fields
COUNT = len(NAMES)


def positions(*names: str) -> list[int]:
    return [NAMES.index(name) for name in names]


SECONDS = positions("scale", "link", "network")  # shift with the unit of time

# A free batch exponent runs away where the batch is extrapolated.
BATCH_POWERS = (-0.3, 0.15)
HOST_SHARPNESS = 8.0
_SMALLEST = 1e-12


class Terms(NamedTuple):
    work: Floats
    sync: Floats
    host: Floats


def log_step(theta: Floats, placements: Placements, reference_batch: float) -> tuple[Floats, Floats]:
    """Log seconds of the step, and of what is left of it without the communication that does not hide behind work."""
    work, sync, host = terms(theta, placements, reference_batch)
    busy = _longer(work, sync, 1 + 9 / (1 + np.exp(-theta[NAMES.index("overlap")])))
    step = _longer(busy, host, HOST_SHARPNESS)
    return np.log(step), np.log(np.maximum(step - (busy - work), _SMALLEST * step))


def terms(theta: Floats, placements: Placements, reference_batch: float) -> Terms:
    """Seconds of work, of communication and of the host, before one hides behind the other."""
    p = Parameters(*theta)
    nodes, most_per_node = placements.nodes.astype(float), placements.most_per_node.astype(float)
    crowd = ring(most_per_node)
    batch = placements.gpu_batch / reference_batch
    share = 1 / (1 + np.exp(-p.fixed))
    samples = (1 - share) * batch ** np.exp(np.clip(p.batch_power, *BATCH_POWERS))
    pace = np.exp(p.scale) * placements.accumulation_steps
    work = pace * (share + samples)
    host = np.exp(p.scale + p.floor) * placements.accumulation_steps
    link = np.exp(p.link) * crowd ** np.exp(p.link_power)
    pair = np.where(most_per_node > 1, p.pair, p.pair_alone) * (nodes == 2)
    width = most_per_node**p.width_power * (placements.workers / nodes / most_per_node) ** p.balance_power
    network = np.exp(p.network + pair) * ring(nodes) * width
    wait = np.exp(p.wait) * pace * samples * (nodes > 2)
    return Terms(work, link + network + wait, host)


def ring(workers: Floats) -> Floats:
    """How many times each worker sends what all of them add up: none when alone, once for two, never twice."""
    return 2 * (workers - 1) / workers


def _longer(one: Floats, other: Floats, power: float) -> Floats:
    """A little more than the larger of two: the sum at power one, the maximum at an infinite one."""
    longer = np.maximum(one, other)
    shorter = np.maximum(np.minimum(one, other), _SMALLEST * longer)
    return np.asarray(longer * (1 + (shorter / longer) ** power) ** (1 / power))


def gradients(theta: Floats, placements: Placements, reference_batch: float) -> tuple[Floats, Floats]:
    """How both logarithms answer to each parameter: two arrays (rows, parameters)."""
    small = 1e-5
    # One column for each moved parameter and a last one where none is: a single pass is much faster than one for each.
    moved = np.repeat(theta[:, None], COUNT + 1, axis=1)
    moved[np.arange(COUNT), np.arange(COUNT)] += small
    step, work = log_step(moved[:, :, None], placements, reference_batch)
    by_step, by_work = (np.ascontiguousarray((each[:-1] - each[-1]).T / small) for each in (step, work))
    return by_step, by_work
