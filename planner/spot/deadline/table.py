"""When to leave spot for on-demand so that a deadline holds: a small table that a script can execute.

For what runs now, what the spot market shows and how much work is left, it says how little slack (time left less work
left) is too little for waiting or for spot. The same table is simulated, written to `scav.policy.json` and executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.columns import Floats, Ints
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, Moment
from planner.spot.rates.process import AGE_EDGES_HOURS, AGES, age_bucket

STATES = 2 * AGES  # spot capacity there, by age; then spot capacity gone, by age
MODE_NAMES: tuple[Literal["idle", "spot", "on_demand"], ...] = ("idle", "spot", "on_demand")  # by IDLE, SPOT, ON_DEMAND
Slack = Annotated[float, Field(ge=0)]
_AGE_EDGES = tuple(float(edge) for edge in AGE_EDGES_HOURS)


class PolicyTable(BaseModel):
    """`slack_hours[running][market][work]`: with less slack rent on demand; otherwise take spot, or wait for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1] = 1
    step_hours: Annotated[float, Field(gt=0, description="how often to decide")]
    restart_hours: Annotated[float, Field(ge=0)]
    rollback_hours: Annotated[float, Field(ge=0, description="the most work that a loss takes back")]
    margin_hours: Annotated[float, Field(ge=0, description="kept free for what goes wrong otherwise")]
    spot_share: Annotated[float, Field(gt=0, description="price of spot over on-demand that this was made for")]
    age_edges_hours: tuple[float, ...] = _AGE_EDGES
    work_left_hours: tuple[Slack, ...]
    slack_hours: dict[Literal["idle", "spot", "on_demand"], tuple[tuple[Slack, ...], ...]]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        works = self.work_left_hours
        if len(works) < 2 or any(more <= less for less, more in pairwise(works)):
            raise ValueError("work_left_hours must be two numbers or more, each above the one before")
        if self.age_edges_hours != _AGE_EDGES:
            raise ValueError("age_edges_hours are not those that this version of scav decides by")
        for name in MODE_NAMES:
            rows = self.slack_hours.get(name, ())
            if len(rows) != STATES or any(len(row) != len(works) for row in rows):
                raise ValueError(f"slack_hours.{name} must be {STATES} rows of {len(works)} numbers")
        return self

    @cached_property
    def limits(self) -> Floats:
        """`slack_hours` by what runs, the market's state and work left."""
        return np.array([self.slack_hours[name] for name in MODE_NAMES])

    @cached_property
    def work_points(self) -> Floats:
        return np.array(self.work_left_hours)

    @cached_property
    def safe_slack(self) -> Floats:
        """The least slack that is safe, by what runs now: with less, a loss in this step may break the deadline."""
        mode = np.arange(len(MODE_NAMES))
        at_risk = np.where(mode == SPOT, self.rollback_hours, self.step_hours)
        back_again = np.where(mode == ON_DEMAND, self.restart_hours, 0.0)
        return np.asarray(at_risk + self.restart_hours + self.margin_hours + back_again)

    def decide(self, moment: Moment) -> Ints:
        """For every run what to rent for the next step."""
        return decide_each([self], np.zeros(len(moment.work_left), dtype=np.int64), moment)


def decide_each(tables: Sequence[PolicyTable], which: Ints, moment: Moment) -> Ints:
    """What each run rents next. Run i follows table `which[i]`; all tables are of the same job."""
    first = tables[0]
    limits = np.concatenate([table.limits for table in tables]).ravel()
    market = age_bucket(moment.age_hours) + np.where(moment.up, 0, AGES)
    points = len(first.work_left_hours)
    place = np.interp(moment.work_left, first.work_points, np.arange(points))
    below = np.minimum(place.astype(np.int64), points - 2)
    part = place - below
    found = ((which * len(MODE_NAMES) + moment.mode) * STATES + market) * points + below
    limit = limits[found] * (1 - part) + limits[found + 1] * part
    slack = moment.time_left - moment.work_left
    enough = slack >= np.maximum(limit, first.safe_slack[moment.mode])
    return np.asarray(np.where(enough, np.where(moment.up, SPOT, IDLE), ON_DEMAND))
