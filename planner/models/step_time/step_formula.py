"""The physical form of a step on one node type, and what its parameters usually are.

    work  = e^scale · (f + (1-f)(m/m0)^p) · (1 + contention · (g-1)^q)   of the GPU
    host  = e^(scale + floor) · (m/m0)^h                                 starting its kernels, feeding it
    link  = l · (g-1)^s    or    l · (2(g-1)/g)^s                        inside a node
    net   = r · 2(N-1)/N · (1 + d·log2(N/2)) · g^x · (k/g)^y · e^(pair)  between nodes
    wait  = w · what grows of work with m, from three nodes on           for the slowest of them, for samples
    busy  = (work^c + (link + net + wait)^c)^(1/c)                       c says how much of the shorter hides
    step  = (busy^8 + host^8)^(1/8)                                      the longer of the two, nearly

m samples per GPU, g GPUs on the fullest node, k on the average one, N nodes. A host that is slower than its GPUs hides
their communication too. The two laws of the link stand for a shared bus (every GPU adds its traffic) and a ring (which
saturates); few probes cannot tell them apart, so both are fitted and averaged. Two nodes have a factor of their own
(`pair`, `pair_alone` with one GPU each): on Ethernet a pair is slower than three.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.columns import Floats
from planner.models.step_time.rows import Placements


class Parameters(NamedTuple):
    """All real numbers; positive quantities enter as logarithms."""

    scale: float  # log seconds of work at the reference batch
    fixed: float  # log-odds of the share that does not grow with the batch
    floor: float  # log of the host's time over the scale
    contention: float  # log
    link: float  # log seconds
    network: float  # log seconds
    batch_power: float  # log of p
    contention_power: float  # log of q
    link_power: float  # log of s
    growth: float  # log of d: never negative
    pair: float
    width_power: float  # x
    overlap: float  # log-odds of c within 1..10
    pair_alone: float
    balance_power: float  # y
    wait: float  # log of w
    host_growth: float  # h


NAMES = Parameters._fields
COUNT = len(NAMES)
SECONDS = [NAMES.index(name) for name in ("scale", "link", "network")]  # shift with the unit of time
WAITING = [NAMES.index(name) for name in ("link", "network", "wait")]  # the sizes of communication
SHAPES = [NAMES.index(name) for name in ("link_power", "growth", "pair", "width_power", "pair_alone")]
# How communication grows with the GPUs of a node, and waiting: alike on most node types, but far from it on a few.
LONG_TAILED = [NAMES.index(name) for name in ("link_power", "width_power", "balance_power", "wait")]

# A free batch exponent runs away where the batch is extrapolated.
BATCH_POWERS = (-0.3, 0.15)
HOST_GROWTHS = (0.0, 0.3)
HOST_SHARPNESS = 8.0
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True)
class Prior:
    """Independent normals: means and standard deviations in the order of NAMES; `law` is "bus" or "ring"."""

    law: str
    mean: Floats
    sd: Floats

    def shifted(self, log_seconds: float) -> Prior:
        """Of a job whose work takes that long: what is in seconds scales with it."""
        mean = self.mean.copy()
        mean[SECONDS] += log_seconds
        return replace(self, mean=mean)


def _prior(law: str, **parameters: tuple[float, float]) -> Prior:
    columns = np.array([parameters[name] for name in NAMES]).T
    return Prior(law, columns[0], columns[1])


# Medians and spreads over four networks on four node types (benchmarks/step_time.py, Sia's measurements), rounded;
# seconds are relative to the work at the reference batch. `--leave-out-app` measures what they owe to each network.
_COMMON = {
    "scale": (0.0, 1.0),
    "fixed": (0.0, 2.5),
    "floor": (-1.0, 1.0),
    "contention": (-5.0, 1.0),
    "link": (-2.2, 1.2),
    "network": (-1.1, 1.5),
    "batch_power": (0.0, 0.1),
    "contention_power": (-0.2, 0.3),
    "link_power": (-0.4, 0.45),
    "growth": (-2.1, 0.55),
    "pair": (0.1, 0.5),
    "width_power": (-0.25, 0.35),
    "overlap": (-2.5, 1.0),
    "pair_alone": (0.15, 0.3),
    "balance_power": (0.35, 0.4),
    "wait": (-4.0, 1.2),
    "host_growth": (0.03, 0.05),
}
DEFAULT_PRIORS = (
    _prior("bus", **_COMMON),
    _prior("ring", **{**_COMMON, "link": (-1.5, 1.2), "link_power": (0.0, 0.3), "width_power": (0.0, 0.15)}),
)


class Terms(NamedTuple):
    work: Floats
    sync: Floats
    host: Floats


def log_step(theta: Floats, placements: Placements, reference_batch: float, law: str) -> tuple[Floats, Floats]:
    """Log seconds of the step, and of what is left of it without the communication that does not hide behind work."""
    work, sync, host = terms(theta, placements, reference_batch, law)
    busy = _longer(work, sync, 1 + 9 / (1 + np.exp(-theta[NAMES.index("overlap")])))
    step = _longer(busy, host, HOST_SHARPNESS)
    return np.log(step), np.log(step - (busy - work))


def terms(theta: Floats, placements: Placements, reference_batch: float, law: str) -> Terms:
    """Seconds of work, of communication and of the host, before one hides behind the other."""
    p = Parameters(*theta)
    nodes, most_per_node = placements.nodes.astype(float), placements.most_per_node.astype(float)
    others = most_per_node - 1
    batch = placements.gpu_batch / reference_batch
    share = 1 / (1 + np.exp(-p.fixed))
    samples = (1 - share) * batch ** np.exp(np.clip(p.batch_power, *BATCH_POWERS))
    pace = np.exp(p.scale) * placements.accumulation_steps
    pace = pace * (1 + np.exp(p.contention) * others ** np.exp(p.contention_power))
    work = pace * (share + samples)
    host = np.exp(p.scale + p.floor) * batch ** np.clip(p.host_growth, *HOST_GROWTHS) * placements.accumulation_steps
    crowd = others if law == "bus" else 2 * others / most_per_node
    link = np.where(others > 0, np.exp(p.link) * crowd ** np.exp(p.link_power), 0.0)
    pair = np.where(most_per_node > 1, p.pair, p.pair_alone) * (nodes == 2)
    growth = 1 + np.exp(p.growth) * np.log2(np.maximum(nodes, 2) / 2)
    width = most_per_node**p.width_power * (placements.workers / nodes / most_per_node) ** p.balance_power
    network = np.exp(p.network + pair) * 2 * (nodes - 1) / nodes * growth * width
    wait = np.exp(p.wait) * pace * samples * (nodes > 2)
    return Terms(work, link + network + wait, host)


def _longer(one: Floats, other: Floats, power: float) -> Floats:
    """A little more than the larger of two: the sum at power one, the maximum at an infinite one."""
    longer = np.maximum(one, other)
    shorter = np.maximum(np.minimum(one, other), _SMALLEST * longer)
    return np.asarray(longer * (1 + (shorter / longer) ** power) ** (1 / power))


def gradients(theta: Floats, placements: Placements, reference_batch: float, law: str) -> tuple[Floats, Floats]:
    """How both logarithms answer to each parameter: two arrays (rows, parameters)."""
    small = 1e-5
    # One column for each moved parameter and a last one where none is: a single pass is much faster than one for each.
    moved = np.repeat(theta[:, None], COUNT + 1, axis=1)
    moved[np.arange(COUNT), np.arange(COUNT)] += small
    step, work = log_step(moved[:, :, None], placements, reference_batch, law)
    by_step, by_work = (np.ascontiguousarray((each[:-1] - each[-1]).T / small) for each in (step, work))
    return by_step, by_work
