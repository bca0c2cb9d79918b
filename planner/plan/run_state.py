"""What a run is doing, from what its nodes and its group have said, beside what the plan expected of it.

Everything is read elsewhere and handed in, the clock included. Times are seconds since 1970.

    hours so far   from the first node's start to now, or to the end of the run
    dollars so far node by node, its hours at the plan's price of its market, and what costs by the hour beside them
    samples        those that the job printed; else its steps times the global batch
    next save      the newest checkpoint, or the start of training, and the planned interval
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from planner.contract import Contract, Interval, Share
from planner.errors import one_line
from planner.plan.schema import Plan

Phase = Literal["waiting for nodes", "starting", "running", "succeeded", "failed", "stopped"]
SUCCESS, FAILURE, START = "_SUCCESS", "_FAILED", "_STARTED"
_WHOLE, _DECIMAL = r"(\d[\d,_]{0,20})", r"([-+]?(?:\d[\d,_]{0,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?)"
_AFTER_A_NAME = r"['\"]?\s{0,3}[:=#]?\s{0,3}\[?\s{0,8}"
_STEP = re.compile(rf"\b(?:global_?)?(?:step|iter|iteration)s?{_AFTER_A_NAME}{_WHOLE}", re.IGNORECASE)
_SAMPLES = re.compile(rf"\bsamples(?:[ _]seen)?['\"]?\s{{0,3}}[:=]\s{{0,3}}{_WHOLE}", re.IGNORECASE)
_LOSS = re.compile(rf"(?:\b|_)loss{_AFTER_A_NAME}{_DECIMAL}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLife:
    """From its launch to its end; None while it is there."""

    instance_id: str
    began: float
    ended: float | None = None
    spot: bool | None = None  # None: AWS has forgotten the instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at AWS."""

    now: float
    capacity: int  # that the group is to have
    nodes: Sequence[NodeLife] = ()
    heartbeats: Sequence[Mapping[str, Any]] = ()
    marks: Mapping[str, float] = field(default_factory=dict)  # of the run's start and end
    reason: str = ""  # of its failure
    checkpoints: Mapping[str, float] = field(default_factory=dict)
    refusals: Sequence[str] = ()  # why AWS did not start nodes


class Nodes(Contract):
    up: NonNegativeInt
    planned: PositiveInt
    doing: dict[str, NonNegativeInt]
    lost: NonNegativeInt


class Training(Contract):
    """Null is what the job has not printed."""

    step: NonNegativeInt | None
    steps_planned: PositiveInt
    samples: NonNegativeFloat | None
    samples_planned: NonNegativeFloat
    share: Share | None
    loss: float | None
    said: str


class SoFar(Contract):
    so_far: NonNegativeFloat
    plan: Interval
    standing: Literal["within the plan", "beyond the plan's p95", "less than planned"]


class Saved(Contract):
    newest: str | None
    age_seconds: NonNegativeFloat | None
    next_in_seconds: float | None = None  # below 0: it is late


class RunState(Contract):
    run_id: str
    time: float
    phase: Phase
    reason: str
    nodes: Nodes
    training: Training
    hours: SoFar
    usd: SoFar
    hours_at_this_pace: NonNegativeFloat | None
    checkpoint: Saved

    @property
    def over(self) -> bool:
        return self.phase in ("succeeded", "failed", "stopped")


class Printed(NamedTuple):
    step: int | None
    samples: float | None
    loss: float | None


def run_state(plan: Plan, seen: Seen) -> RunState:
    phase = _phase(plan, seen)
    living = [node for node in seen.nodes if node.ended is None]
    hours, over = _hours(seen), phase in ("succeeded", "failed", "stopped")
    training = _training(plan, seen.heartbeats)
    return RunState(
        run_id=plan.run_id,
        time=seen.now,
        phase=phase,
        reason=_reason(phase, seen),
        nodes=Nodes(
            up=len(living),
            planned=plan.choice.node_count,
            doing=_doing(living, seen.heartbeats),
            # While it goes on, those that are gone were lost; when it is over, its own nodes are gone as they should.
            lost=max(0, len(seen.nodes) - (plan.choice.node_count if over else len(living))),
        ),
        training=training,
        hours=_so_far(hours, plan.estimate.hours, done=phase == "succeeded"),
        usd=_so_far(_usd(plan, seen, hours), plan.estimate.usd, done=phase == "succeeded"),
        hours_at_this_pace=hours / training.share if training.share and not over else None,
        checkpoint=_saved(plan, seen, over=over),
    )


def printed(line: str) -> Printed:
    """Step, samples and loss in a line of a job's output, as far as they stand behind these words."""
    step, samples, loss = (pattern.search(line[:500]) for pattern in (_STEP, _SAMPLES, _LOSS))
    value = float(_plain(loss[1])) if loss else math.nan
    return Printed(
        int(_plain(step[1])) if step else None,
        float(_plain(samples[1])) if samples else None,
        value if math.isfinite(value) else None,
    )


def _plain(number: str) -> str:
    return number.replace(",", "").replace("_", "")


def _phase(plan: Plan, seen: Seen) -> Phase:
    if SUCCESS in seen.marks:
        return "succeeded"
    if FAILURE in seen.marks:
        return "failed"
    if seen.capacity == 0:
        return "stopped"
    living = {node.instance_id for node in seen.nodes if node.ended is None}
    if not living:
        return "waiting for nodes"
    running = any(beat.get("phase") == "running" and beat.get("instance_id") in living for beat in seen.heartbeats)
    return "running" if running and len(living) >= plan.choice.node_count else "starting"


def _reason(phase: Phase, seen: Seen) -> str:
    if phase == "failed":
        return one_line(seen.reason or "it left no reason")
    waits = phase in ("waiting for nodes", "starting") and seen.refusals
    return one_line(f"AWS says: {seen.refusals[0]}") if waits else ""


def _doing(living: Iterable[NodeLife], heartbeats: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    said = {str(beat.get("instance_id")): one_line(str(beat.get("phase")), 40) for beat in heartbeats}
    doing = [said.get(node.instance_id, "booting") for node in living]
    return {phase: doing.count(phase) for phase in sorted(set(doing))}


def _training(plan: Plan, heartbeats: Sequence[Mapping[str, Any]]) -> Training:
    """Nodes may print different things: the furthest step counts, and the loss that was heard last."""
    lines = [str(beat["said"]) for beat in sorted(heartbeats, key=_heard) if beat.get("said")]
    found = [printed(line) for line in lines]
    step = max((one.step for one in found if one.step is not None), default=None)
    samples = max((one.samples for one in found if one.samples is not None), default=None)
    if samples is None and step is not None:
        samples = float(step * plan.choice.global_batch)
    planned = plan.estimate.samples.p50
    return Training(
        step=step,
        steps_planned=max(1, math.ceil(planned / plan.choice.global_batch)),
        samples=samples,
        samples_planned=planned,
        share=None if samples is None or not planned else min(1.0, samples / planned),
        loss=next((one.loss for one in reversed(found) if one.loss is not None), None),
        said=one_line(lines[-1], 200) if lines else "",
    )


def _heard(beat: Mapping[str, Any]) -> float:
    time = beat.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _hours(seen: Seen) -> float:
    if not seen.nodes:
        return 0.0
    return max(0.0, _end(seen) - min(node.began for node in seen.nodes)) / 3600


def _end(seen: Seen) -> float:
    """Of the run's hours; nodes that go after it still cost."""
    marks = [at for name, at in seen.marks.items() if name in (SUCCESS, FAILURE)]
    if marks:
        return min(marks)
    ends = [seen.now if node.ended is None else node.ended for node in seen.nodes]
    return seen.now if seen.capacity else max(ends, default=seen.now)


def _usd(plan: Plan, seen: Seen, hours: float) -> float:
    choice, spot = plan.choice, plan.spot
    lives = {
        node.instance_id: max(0.0, (seen.now if node.ended is None else node.ended) - node.began) / 3600
        for node in seen.nodes
    }
    if spot is None:  # what costs by the hour beside the nodes is part of this
        return sum(lives.values()) * choice.hourly_usd / choice.node_count
    # Spot nodes are those that are lost: of the nodes that AWS has forgotten, the ones that lasted were on demand.
    known = {node.instance_id for node in seen.nodes if node.spot is False}
    forgotten = sorted((node.instance_id for node in seen.nodes if node.spot is None), key=lambda name: -lives[name])
    on_demand = known | set(forgotten[: max(0, choice.on_demand_count - len(known))])
    prices = {True: spot.node_on_demand_usd, False: spot.node_spot_usd}
    beside = spot.storage_hourly_usd + (choice.checkpoint_tier.hourly_usd if choice.checkpoint_tier else 0.0)
    return sum(prices[name in on_demand] * life for name, life in lives.items()) + beside * hours


def _so_far(value: float, plan: Interval, *, done: bool) -> SoFar:
    """A run that goes on has never less than planned."""
    band = Interval(p05=plan.p05, p50=plan.p50, p95=plan.p95)
    if value > band.p95:
        return SoFar(so_far=value, plan=band, standing="beyond the plan's p95")
    return SoFar(
        so_far=value, plan=band, standing="less than planned" if done and value < band.p05 else "within the plan"
    )


def _saved(plan: Plan, seen: Seen, *, over: bool) -> Saved:
    newest = max(seen.checkpoints, key=lambda name: (seen.checkpoints[name], name), default=None)
    at = seen.marks.get(START) if newest is None else seen.checkpoints[newest]
    interval = plan.choice.checkpoint_interval_seconds
    return Saved(
        newest=newest and one_line(newest, 80),
        age_seconds=None if newest is None else max(0.0, seen.now - seen.checkpoints[newest]),
        next_in_seconds=None if over or at is None or not interval else at + interval - seen.now,
    )
