"""`scav.policy.json`: when to replace spot nodes by on-demand ones, so that a deadline holds.

The table is the one that was simulated. The nodes execute it where the plan counts on that; `scav policy` says
what it says.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, ValidationError, model_validator

from planner.contract import Contract, first_fault
from planner.errors import InputError
from planner.plan.schema import Plan
from planner.plan.spot import simulated_case
from planner.spot import MODE_NAMES, ON_DEMAND, Moment, PolicyTable

Running = Literal["idle", "spot", "on_demand"]


class DeadlinePolicy(Contract):
    """The table, and what its answers mean to Terraform."""

    job: str
    run_id: str
    deadline_hours: PositiveFloat
    on_demand_count: dict[Literal["spot", "on_demand"], NonNegativeInt]
    assumed_work_hours: PositiveFloat | None = Field(
        default=None, description="all the work, at most (p95): what the nodes have done of it is not left"
    )
    table: PolicyTable

    @model_validator(mode="after")
    def _check_answers(self) -> Self:
        if len(self.on_demand_count) != 2:
            raise ValueError("on_demand_count must say it for spot and for on_demand")
        return self

    def decide(
        self,
        *,
        work_left_hours: float,
        time_left_hours: float,
        spot_is_there: bool,
        since_hours: float,
        running: Running,
    ) -> Literal["spot", "on_demand"]:
        """What the cluster should be of from now on; spot also means waiting for it.

        The work left is what may be left at most (p95), as the table was simulated with.
        """
        moment = Moment(
            np.array([max(work_left_hours, self.table.step_hours)]),  # as it was simulated: never nothing
            time_left_hours,
            np.array([spot_is_there]),
            np.array([since_hours]),
            np.array([MODE_NAMES.index(running)]),
        )
        return "on_demand" if int(self.table.decide(moment)[0]) == ON_DEMAND else "spot"


def deadline_policy(plan: Plan) -> DeadlinePolicy | None:
    """None where there is nothing to decide: no spot nodes, no deadline, or one that on-demand cannot keep."""
    case = simulated_case(plan)
    table = case.policy_table() if case else None
    if case is None or case.deadline_hours is None or table is None:
        return None
    return DeadlinePolicy(
        job=plan.job,
        run_id=plan.run_id,
        deadline_hours=case.deadline_hours,
        on_demand_count={"spot": case.on_demand_count, "on_demand": case.nodes},
        assumed_work_hours=case.assumed_work_hours,
        table=table,
    )


def parse_policy(text: str, *, file: str) -> DeadlinePolicy:
    try:
        return DeadlinePolicy.model_validate_json(text)
    except ValidationError as error:
        fault = first_fault(error, DeadlinePolicy)
        raise InputError(f"not a policy that scav wrote: {fault.message}", file=file, key=fault.key) from None
