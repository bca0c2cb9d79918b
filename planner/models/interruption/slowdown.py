"""What spot nodes cost a candidate in lost work and waiting, for a hundred thousand candidates at once.

Renewal theory instead of simulation: each loss takes back part of an interval, a restart and a wait; their number and
their spread follow from the up- and down-times. From a day of work on it is near the simulation (a test says how near);
shorter runs come out too slow.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtri

from planner.models.interruption.checkpoints import UNNOTICED_SHARE
from planner.models.interruption.process import SpotProcess, area_by_row, moments_by_row, survival_by_row
from planner.models.prediction import Floats, Ints, Prediction

# A gang is lost more often than a node, but far less often than its nodes would be one by one: losses come together.
# Exponents of the node count, read off two recordings of 4 nodes and two of 16: losses grow by 0 to 0.66, so rough.
LOSS_EXPONENT = 0.25
RETURN_EXPONENT = -0.05
_LEAST_KEPT_HOURS = 1e-6  # of a stint: with a restart that outlasts every one, the rest is as good as nothing

# Twice the rates is twice the waste where losses are rare, and far more where long stretches become rare.
# Both set by simulations of the pooled process and of the advisor's classes, for 1 to 8 nodes and 3 to 200 hours.
_MORE_ELASTIC, _OFTEN = 1.4, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRates:
    """A row per candidate, or one row for all: rates by age, and what is not known of them."""

    loss_per_hour: Floats  # shape (rows, ages)
    return_per_hour: Floats
    loss_log_sd: Floats
    return_log_sd: Floats

    @classmethod
    def of(cls, *processes: SpotProcess) -> SpotRates:
        return cls(
            loss_per_hour=np.array([process.loss_per_hour for process in processes]),
            return_per_hour=np.array([process.return_per_hour for process in processes]),
            loss_log_sd=np.array([process.loss_log_sd for process in processes]),
            return_log_sd=np.array([process.log_sd for process in processes]),
        )

    def at(self, rows: Ints) -> SpotRates:
        return SpotRates(
            loss_per_hour=self.loss_per_hour[rows],
            return_per_hour=self.return_per_hour[rows],
            loss_log_sd=self.loss_log_sd[rows],
            return_log_sd=self.return_log_sd[rows],
        )

    def for_gang(self, spot_nodes: Ints) -> SpotRates:
        """A gang without spot nodes is never lost."""
        nodes = np.maximum(np.asarray(spot_nodes, dtype=float), 1.0)[:, None]
        losing = np.where(np.asarray(spot_nodes)[:, None] > 0, nodes**LOSS_EXPONENT, 0.0)
        return SpotRates(
            loss_per_hour=self.loss_per_hour * losing,
            return_per_hour=self.return_per_hour * nodes**RETURN_EXPONENT,
            loss_log_sd=self.loss_log_sd + 0.0 * nodes[:, 0],
            return_log_sd=self.return_log_sd + 0.0 * nodes[:, 0],
        )

    @property
    def mean_up_hours(self) -> Floats:
        return moments_by_row(self.loss_per_hour)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotBurden:
    """What a gang adds to each busy hour and to the start: mean and variance of hours, and its losses.

    A row per offer and node count, of which there are far fewer than candidates.
    """

    losses_per_hour: Floats
    hours_per_hour: Floats
    waiting_share: Floats  # of these hours, in which no spot node is paid; the rest is work done again
    variance_per_hour: Floats
    shortage: Floats  # the chance that capacity is not there at the start
    start_hours: Floats
    start_variance: Floats
    loss_log_sd: Floats
    return_log_sd: Floats

    @classmethod
    def of(
        cls,
        rates: SpotRates,
        *,
        interval_hours: Floats | float,
        restart_hours: float = 0.1,
        saves_on_notice: bool = False,
    ) -> SpotBurden:
        up, up_square = moments_by_row(rates.loss_per_hour)
        down, down_square = moments_by_row(rates.return_per_hour)
        started = survival_by_row(rates.loss_per_hour, restart_hours)
        rollback = np.asarray(interval_hours, dtype=float) / 2 * started * (UNNOTICED_SHARE if saves_on_notice else 1.0)
        after_restart = up - area_by_row(rates.loss_per_hour, restart_hours)
        # Where even the interval outlasts most stints next to nothing is kept; nothing at all would never end.
        kept = np.maximum(np.maximum(after_restart - rollback, 0.05 * after_restart), _LEAST_KEPT_HOURS)
        endless = np.isinf(up)
        up, up_square, kept = (np.where(endless, 1.0, column) for column in (up, up_square, kept))
        losses = np.where(endless, 0.0, 1 / kept)
        shortage = np.where(endless, 0.0, down / (up + down))
        rest = down_square / (2 * down)  # what is left of a shortage that is met at a random moment
        return cls(
            losses_per_hour=losses,
            hours_per_hour=losses * (up - kept + down),
            waiting_share=np.where(np.isinf(down), 1.0, down / (up - kept + down)),
            variance_per_hour=losses * (down_square - down**2 + (down / kept) ** 2 * (up_square - up**2)),
            shortage=shortage,
            start_hours=shortage * rest,
            start_variance=shortage * rest**2 * (2 - shortage),
            loss_log_sd=rates.loss_log_sd,
            return_log_sd=rates.return_log_sd,
        )

    def at(self, rows: Ints) -> SpotBurden:
        return SpotBurden(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def spot_slowdown(busy_hours: Floats, burden: SpotBurden) -> Prediction:
    """Wall time with spot nodes over wall time without: rework, restarts and waiting for capacity.

    `busy_hours` are steps and saves.
    """
    mean = burden.hours_per_hour * busy_hours + burden.start_hours
    square = burden.variance_per_hour * busy_hours + burden.start_variance + mean**2
    spared = _chance_of_none(busy_hours, burden)
    hit = np.maximum(1 - spared, 1e-12)
    typical, log_variance = _log_normal(mean / hit, square / hit)
    elasticity = 1 + _MORE_ELASTIC * burden.hours_per_hour / (_OFTEN + burden.hours_per_hour)
    sd = np.hypot(np.sqrt(log_variance), elasticity * np.hypot(burden.loss_log_sd, burden.return_log_sd))
    quantiles = {
        name: 1 + np.where(share > spared, typical * np.exp(sd * ndtri((share - spared) / hit)), 0.0) / busy_hours
        for name, share in (("p05", 0.05), ("p50", 0.5), ("p95", 0.95))
    }
    return Prediction(**quantiles, extrapolated=np.zeros(len(mean), dtype=bool))


def _chance_of_none(busy_hours: Floats, burden: SpotBurden) -> Floats:
    """That capacity is there at the start and stays, over what is not known of the rate (three points of a normal)."""
    losses = burden.losses_per_hour * busy_hours
    none = sum(
        weight * np.exp(-losses * np.exp(burden.loss_log_sd * point))
        for point, weight in ((-(3**0.5), 1 / 6), (0.0, 2 / 3), (3**0.5, 1 / 6))
    )
    return np.asarray(none * (1 - burden.shortage))


def _log_normal(mean: Floats, square: Floats) -> tuple[Floats, Floats]:
    """Median and log variance from two moments; zero where there is nothing."""
    log_variance = np.log(np.divide(square, mean**2, out=np.ones_like(mean), where=mean > 0))
    return mean * np.exp(-log_variance / 2), np.maximum(log_variance, 0.0)


def expected_losses(busy_hours: Floats, burden: SpotBurden) -> Floats:
    """How often each run of so many busy hours loses its gang."""
    return np.asarray(busy_hours * burden.losses_per_hour)
