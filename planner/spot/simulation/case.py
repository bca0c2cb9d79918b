"""A cluster and its job as interruptions see them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from planner.columns import Z95, Floats, Quantiles
from planner.contract import kept_digits
from planner.errors import InputError
from planner.models import UNNOTICED_SHARE
from planner.spot.deadline.dynamic_program import solve
from planner.spot.deadline.table import PolicyTable
from planner.spot.deadline.world import World
from planner.spot.price import spot_price_draws
from planner.spot.rates.pooled import LOSS_EXPONENT, RETURN_EXPONENT
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.work import SURVIVING_SHARE, SpotWork

# Shorter steps than the first gain nothing, and within longer ones than the second capacity comes and goes unseen: with
# these, hours come out 2 to 4 % longer than they are.
_STEPS = 300
_SHORTEST_STEP_HOURS, _LONGEST_STEP_HOURS = 0.1, 1.0
# A table over more takes too long to make. Made in longer steps than it is lived in, it still beats one that is made
# for the last 300 hours and stretched: by 7 % where 2,000 hours of work have 4,000 and one node is all there is.
_MOST_TABLE_STEPS = 400
_SURELY_LESS_WORK = 0.999  # of runs: for the few that are longer the table's last row speaks
_HARDLY_ANY_HOURS = 1e-6
_MOST_REPLACEMENTS = 12  # of spot nodes by on-demand ones, however many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster and its job as interruptions see it: all that a simulation needs."""

    work_hours: Quantiles  # steps only: without saves, losses, start-up
    startup_hours: float  # once, at the beginning, and paid
    save_hours: float
    restart_hours: float  # after every loss
    interval_hours: float
    uses_notice: bool
    nodes: int
    on_demand_count: int  # the others are spot nodes
    process: SpotProcess | None  # of all spot nodes together; None without any
    node_on_demand_usd: float  # per hour
    node_spot_usd: float  # in the snapshot
    storage_hourly_usd: float  # of the whole cluster
    price_age_days: float  # of the snapshot
    deadline_hours: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.on_demand_count <= self.nodes or self.nodes < 1:
            raise InputError(f"{self.on_demand_count} of {self.nodes} nodes cannot be on-demand")
        if not (0 < self.work_hours.p05 <= self.work_hours.p50 <= self.work_hours.p95 < math.inf):
            raise InputError(f"work of {self.work_hours.p05} to {self.work_hours.p95} hours cannot be simulated")
        for usd in (self.node_on_demand_usd, self.node_spot_usd, self.storage_hourly_usd):
            if not 0 <= usd < math.inf:
                raise InputError(f"a price of {usd} $/h cannot be")
        times = (self.startup_hours, self.save_hours, self.restart_hours, self.interval_hours)
        if not all(0 <= hours < math.inf for hours in times):
            raise InputError("starting, saving and restarting cannot take less than no time")
        if self.deadline_hours is not None and not self.deadline_hours > 0:
            raise InputError(f"a deadline in {self.deadline_hours} hours cannot be met")
        if self.spot_count:
            self._check_spot()

    def _check_spot(self) -> None:
        if self.process is None:
            raise InputError("nothing is known of when these spot nodes are lost")
        if not self.process.availability > 0:
            raise InputError("spot capacity never comes back in this history: availability is zero")
        if not self.interval_hours > 0:
            raise InputError("spot nodes need a job that saves checkpoints: without them a loss costs everything")

    @property
    def spot_count(self) -> int:
        return self.nodes - self.on_demand_count

    @property
    def on_demand_hourly_usd(self) -> float:
        """Of the whole cluster, when none of it is spot."""
        return self.nodes * self.node_on_demand_usd + self.storage_hourly_usd

    @property
    def base_hourly_usd(self) -> float:
        """Of what is paid whatever the spot nodes do."""
        return self.on_demand_count * self.node_on_demand_usd + self.storage_hourly_usd

    @property
    def surviving_share(self) -> float:
        """Of the spot nodes: those that are there, and paid, while the others are gone."""
        return SURVIVING_SHARE if self.spot_count > 1 else 0.0

    @property
    def waiting_hourly_usd(self) -> float:
        """Of what is paid while spot nodes are gone."""
        return self.base_hourly_usd + self.surviving_share * self.spot_count * self._cheapest_usd

    @property
    def _cheapest_usd(self) -> float:
        return min(self.node_spot_usd, self.node_on_demand_usd)

    @property
    def saving_share(self) -> float:
        """Of the work's time on top of it."""
        return self.save_hours / self.interval_hours if self.interval_hours else 0.0

    def hours_without_losses(self, work_hours: Floats) -> Floats:
        return np.asarray(self.startup_hours + work_hours * (1 + self.saving_share))

    def with_base(self, on_demand_count: int) -> Case:
        """The same cluster with another mix; the fewer spot nodes, the less often one of them is lost."""
        if self.process is None or on_demand_count >= self.nodes:
            return replace(self, on_demand_count=on_demand_count)
        more = (self.nodes - on_demand_count) / max(self.spot_count, 1)
        process = self.process.scaled(loss=more**LOSS_EXPONENT, returns=more**RETURN_EXPONENT)
        return replace(self, on_demand_count=on_demand_count, process=process)

    def work_draws(self, runs: int, seed: int) -> Floats:
        """Each run's own work: log-normal with the interval's own width on either side."""
        low, middle, high = self.work_hours
        normal = ndtri(np.random.default_rng(seed).random(runs)) / Z95
        return np.asarray(middle * np.where(normal >= 0, (high / middle) ** normal, (low / middle) ** -normal))

    def spot_usd_draws(self, runs: int, seed: int) -> Floats:
        """What a spot node costs an hour in each run: never more than on-demand, which AWS does not exceed."""
        drift = spot_price_draws(runs, seed, self.price_age_days)
        return np.asarray(np.minimum(self.node_spot_usd * drift, self.node_on_demand_usd))

    def spot_work(self, work_hours: Floats) -> SpotWork:
        """Every stint begins with a restart, the first with the start-up: the difference is work, done once."""
        first = (self.startup_hours - self.restart_hours) / (1 + self.saving_share)
        return SpotWork(
            work_hours=np.maximum(work_hours + first, _HARDLY_ANY_HOURS),
            interval_hours=self.interval_hours,
            save_hours=self.save_hours,
            restart_hours=self.restart_hours,
            uses_notice=self.uses_notice,
        )

    @property
    def step_hours(self) -> float:
        """How often a deadline policy decides."""
        wanted = (self.deadline_hours or 0.0) / _STEPS
        return min(max(wanted, _SHORTEST_STEP_HOURS), _LONGEST_STEP_HOURS)

    @property
    def steps(self) -> int:
        """Until the deadline."""
        return max(math.ceil((self.deadline_hours or 0.0) / self.step_hours), 1)

    def world(self, work_hours: Floats | float | None = None) -> World:
        """What a deadline policy lives in; its work holds saves, and what start-up takes beyond a restart."""
        work = self.hours_without_losses(np.asarray(self.work_hours.p50 if work_hours is None else work_hours))
        work = np.maximum(work - self.restart_hours, _HARDLY_ANY_HOURS)
        return World(
            work_hours=work,
            spot_share=(self.base_hourly_usd + self.spot_count * self._cheapest_usd) / self.on_demand_hourly_usd,
            idle_share=self.waiting_hourly_usd / self.on_demand_hourly_usd,
            # No loss takes back more than the whole job: a short one need not keep an hour free for it.
            interval_hours=min(self.interval_hours + self.save_hours, float(np.max(work))),
            restart_hours=self.restart_hours,
            step_hours=self.step_hours,
        )

    def simulated_world(self, work_hours: Floats) -> World:
        """Where the notice saves, few losses take work back; the table does not count on that."""
        saved = self.uses_notice and self.spot_work(work_hours).saves_on_notice
        period = self.interval_hours + self.save_hours
        return replace(self.world(work_hours), interval_hours=UNNOTICED_SHARE * period if saved else period)

    @property
    def assumed_work_hours(self) -> float:
        """All the work, as whoever decides assumes it. Nobody knows a run's own work; to assume less would be late."""
        return float(self.world(self.work_hours.p95).work_hours)

    @property
    def margin_hours(self) -> float:
        """For going on-demand: Auto Scaling replaces spot nodes a few at a time, and each time all start again."""
        return self.restart_hours * min(self.nodes - 1, _MOST_REPLACEMENTS)

    @property
    def on_demand_keeps_deadline(self) -> bool:
        """At least every other time."""
        usual = float(self.hours_without_losses(np.array(self.work_hours.p50)))
        return self.deadline_hours is None or usual <= self.deadline_hours

    def policy_table(self) -> PolicyTable | None:
        """None where there is nothing to decide: no deadline, no spot nodes, or one that on-demand cannot keep."""
        if self.deadline_hours is None or self.process is None or not self.spot_count:
            return None
        if not self.on_demand_keeps_deadline:
            return None
        _, middle, high = self.work_hours
        most = middle * (high / middle) ** (float(ndtri(_SURELY_LESS_WORK)) / Z95)
        longest = float(self.world(most).work_hours)
        step_hours = max(self.step_hours, self.deadline_hours / _MOST_TABLE_STEPS)
        world = replace(self.world(most), work_hours=min(longest, self.deadline_hours), step_hours=step_hours)
        table = _solved(world, self.process, self.deadline_hours, self.margin_hours)
        return table.model_copy(update={"step_hours": self.step_hours})

    def as_written(self) -> Case:
        """To the digits that a plan keeps: made again from the plan, the case and its policy table are the same."""

        def hours(value: float) -> float:
            return kept_digits(value * 3600) / 3600

        return replace(
            self,
            work_hours=Quantiles(*map(kept_digits, self.work_hours)),
            startup_hours=hours(self.startup_hours),
            save_hours=hours(self.save_hours),
            restart_hours=hours(self.restart_hours),
            interval_hours=round(self.interval_hours * 3600) / 3600,
            process=self.process and self.process.as_written(),
            node_on_demand_usd=kept_digits(self.node_on_demand_usd),
            node_spot_usd=kept_digits(self.node_spot_usd),
            storage_hourly_usd=kept_digits(self.storage_hourly_usd),
        )


@lru_cache(maxsize=32)
def _solved(world: World, process: SpotProcess, deadline_hours: float, margin_hours: float) -> PolicyTable:
    """Solved once: a plan that counts on its policy is simulated with the very table that is then written."""
    return solve(world, process, deadline_hours, margin_hours)
