"""Columns that know how they answer to parameters: the few operations that the form needs, each with its derivative.

A slope is kept only for parameters that a column depends on. Parameters without slopes make columns without them, at
the price of the plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.columns import Flags, Floats

Number = float | Floats


@dataclass(frozen=True, slots=True)
class Traced:
    value: Number
    slopes: Mapping[int, Number]  # by parameter

    def __add__(self, other: Traced) -> Traced:
        slopes = dict(self.slopes)
        for index, slope in other.slopes.items():
            slopes[index] = slopes[index] + slope if index in slopes else slope
        return Traced(self.value + other.value, slopes)

    def __mul__(self, factor: Number) -> Traced:
        return Traced(self.value * factor, {index: slope * factor for index, slope in self.slopes.items()})

    def over(self, other: Traced) -> Traced:
        inverse = 1.0 / other.value
        turned = {index: -slope * inverse * inverse for index, slope in other.slopes.items()}
        return self * inverse + Traced(0.0, {index: self.value * slope for index, slope in turned.items()})

    def lowering(self, exponent: Number) -> Traced:
        """exp(-exponent x value)."""
        found = np.exp(-exponent * np.asarray(self.value))
        return Traced(found, {index: -exponent * slope * found for index, slope in self.slopes.items()})


def constant(value: Number) -> Traced:
    return Traced(value, {})


def joined(one: Traced, other: Traced, power: Traced) -> Traced:
    """(x^q + y^q)^(1/q): with a power of 1 their sum, with a large one the larger. The first may not be zero."""
    if np.ndim(other.value) == 0 and other.value == 0.0:
        return one
    share = np.asarray(other.value / one.value)
    relative = share**power.value
    whole = 1.0 + relative
    stretch = whole ** (1.0 / power.value)
    value = one.value * stretch
    if not (one.slopes or other.slopes or power.slopes):
        return Traced(value, {})
    weight = relative / whole  # of the second in the result's logarithm
    mine = one * (stretch * (1.0 - weight))
    with np.errstate(divide="ignore", invalid="ignore"):  # the second may be zero, and then answers with nothing
        theirs = other * np.where(share > 0, weight * stretch / share, 0.0)
        logs = np.where(share > 0, weight * np.log(share), 0.0)
    by_power = value * (logs - np.log(whole) / power.value) / power.value
    bent = Traced(0.0, {index: by_power * slope for index, slope in power.slopes.items()})
    found = mine + theirs + bent
    return Traced(value, found.slopes)


def smaller(one: Traced, other: Traced) -> Traced:
    """Row by row."""
    return chosen(np.asarray(one.value) <= np.asarray(other.value), one, other)


def chosen(first: Flags, one: Traced, other: Traced) -> Traced:
    """The first where the flag says so, else the second."""
    slopes: dict[int, Number] = {index: np.where(first, slope, 0.0) for index, slope in one.slopes.items()}
    for index, slope in other.slopes.items():
        slopes[index] = np.where(first, slopes.get(index, 0.0), slope)
    return Traced(np.where(first, one.value, other.value), slopes)
