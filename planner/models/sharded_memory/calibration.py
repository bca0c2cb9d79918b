"""From formulas to what a GPU reports, and to the probability that it is enough.

    allocated = ALLOCATED * formula                  what PyTorch has given out at its fullest moment
    reserved  = RESERVED or RESERVED_VARYING * formula, at most what the GPU has beside the CUDA context
    P(fits)   = Phi(ln((memory - context) / (FRAGMENTED * allocated)) / sd)

The allocator gives its cache back before it fails, so what is reserved does not decide whether a run fits; what is
allocated does, and a little that no block of the cache fits. Medians and spreads are what `benchmarks/memory.py` prints
from all published measurements; there they are scored with the set under test left out. Peaks that a job's own probes
measured move the median, and leave the spread that one job's configurations have among themselves:

    ln(allocated / formula) of a job ~ N(ln ALLOCATED, sd^2 - within^2), of a configuration of it + N(0, within^2)

A trace of the job's own script (`probes/trace_script.py`) replaces the formula for its configuration, with the spread
that `benchmarks/traced_memory.py` finds; for the others its ratio to the formula is one more such peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

GIB = 2.0**30
CONTEXT_GIB = 0.7  # CUDA context and NCCL: assumed, between the 0.45 of a bare context and 1.0 with communicators
FRAGMENTED = 1.02  # assumed
_P95 = NormalDist().inv_cdf(0.95)


class Calibration(NamedTuple):
    """Medians of measured over formula, and standard deviations of logarithms."""

    allocated: float = 1.005
    reserved: float = 1.042
    reserved_varying: float = 1.135
    sd: float = 0.177
    sd_varying: float = 0.181  # texts of varying length
    within: float = 0.107  # of that, between configurations of one job: what its own peaks leave open

    def measured(self, log_ratios: Sequence[float]) -> Calibration:
        """Moved by peaks of the job's own configurations over formula: between one and what was measured."""
        if not log_ratios:
            return self
        between, within, count = self.sd**2 - self.within**2, self.within**2, len(log_ratios)
        trust = count * between / (count * between + within)
        middle = (1 - trust) * log(self.allocated) + trust * sum(log_ratios) / count
        left = sqrt((1 - trust) * between + within)
        return self._replace(allocated=exp(middle), sd=left, sd_varying=left)


SHIPPED = Calibration()
TRACED = SHIPPED._replace(allocated=1.0, sd=0.06, sd_varying=0.06)  # two projects' peaks are 0.04 off, and are but two


class MemoryInterval(NamedTuple):
    """Bytes allocated at the fullest moment."""

    p05: float
    p50: float
    p95: float


def allocated_interval(formula_bytes: float, calibration: Calibration = SHIPPED) -> MemoryInterval:
    middle, spread = calibration.allocated * formula_bytes, exp(_P95 * calibration.sd)
    return MemoryInterval(middle / spread, middle, middle * spread)


def reserved_interval(
    formula_bytes: float, memory_gib: float, *, varying: bool = False, calibration: Calibration = SHIPPED
) -> MemoryInterval:
    """What PyTorch holds of a GPU of that memory, its cache included: the lengths of the samples vary or do not."""
    factor = calibration.reserved_varying if varying else calibration.reserved
    spread = exp(_P95 * (calibration.sd_varying if varying else calibration.sd))
    free = free_bytes(memory_gib)
    return MemoryInterval(*(min(factor * formula_bytes * by, free) for by in (1 / spread, 1.0, spread)))


def fit_probability(
    formula_bytes: float, memory_gib: float, *, varying: bool = False, calibration: Calibration = SHIPPED
) -> float:
    """That a run of this peak fits a GPU of that memory."""
    free = free_bytes(memory_gib)
    if free <= 0:
        return 0.0
    sd = calibration.sd_varying if varying else calibration.sd
    return NormalDist().cdf(log(free / (FRAGMENTED * calibration.allocated * formula_bytes)) / sd)


def largest_formula_bytes(memory_gib: float, confidence: float, calibration: Calibration = SHIPPED) -> float:
    """The largest peak by formula that fits a GPU of that memory with this probability."""
    margin = exp(NormalDist().inv_cdf(confidence) * calibration.sd)
    return max(free_bytes(memory_gib), 0.0) / (FRAGMENTED * calibration.allocated * margin)


def free_bytes(memory_gib: float) -> float:
    return (memory_gib - CONTEXT_GIB) * GIB
