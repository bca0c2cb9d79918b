"""Where the rates of spot capacity in a zone come from: its own recording, or what is assumed of zones without one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from planner.columns import Z95, Ints
from planner.inputs import Observed, Recording
from planner.spot.rates.history import process_from_trace
from planner.spot.rates.interruption_classes import process_for_class
from planner.spot.rates.observed import process_with
from planner.spot.rates.process import SpotProcess
from planner.spot.slowdown import SpotRates
from planner.units import format_hours

_CLASSES = ("under 5", "5 to 10", "10 to 15", "15 to 20", "over 20")
# A zone whose recording shows its nodes there for more than this is not left for one of which nothing is known ...
_GOOD_AVAILABILITY = 0.8
_IGNORANCE = 1.05  # ... which counts as worse than it, by a little


@dataclass(frozen=True, slots=True)
class SpotSource:
    """Zones with equal sources lose nodes alike.

    Without a recording the prior of all zones stands in; `rivals` are good recordings of the type in other zones.
    """

    interruption_class: int | None = None
    recording: Recording | None = None
    observed: Observed | None = None
    rivals: tuple[Recording, ...] = ()

    @property
    def ever_there(self) -> bool:
        """Where a recording shows no node at all, none is to be had."""
        return self.recording is None or self.recording.trace.size > 0

    def gang(self, nodes: int) -> SpotProcess:
        """Of so many spot nodes, which run together or not at all."""
        return self.rates(np.array([nodes])).process(0)

    def rates(self, nodes: Ints) -> SpotRates:
        """A row for each gang. Where the recording has too few nodes, the largest gang that it has is scaled up."""
        if self.recording is not None:
            return _recorded(self.recording, nodes)
        assumed = process_for_class(self.interruption_class)
        node = assumed if self.observed is None else process_with(self.observed, assumed)
        rates = SpotRates.of(node).at(np.zeros_like(nodes)).for_gang(nodes)
        for rival in self.rivals:
            rates = _no_better(rates, _recorded(rival, nodes))
        return rates

    def described(self, process: SpotProcess, class_date: str | None) -> str:
        """`process` is that of the gang; the range is over nine zones in ten."""
        if self.recording is not None:
            trace, age = self.recording.trace, self.recording.age_hours
            old = f", {format_hours(age)} old" if age else ""
            return f"recorded capacity {trace.name} ({format_hours(trace.hours)} of up to {trace.size} nodes{old})"
        best, worst = (
            process.scaled(loss=math.exp(-side * process.loss_log_sd), returns=math.exp(side * process.log_sd))
            for side in (Z95, -Z95)
        )
        lost = f"{format_hours(worst.mean_up_hours)} to {format_hours(best.mean_up_hours)}"
        missing = f"{100 * (1 - best.availability):.0f} to {100 * (1 - worst.availability):.0f} %"
        said = "AWS gives no interruption class"
        if self.interruption_class is not None:
            dated = f" of {class_date}" if class_date else ""
            share = _CLASSES[self.interruption_class]
            said = f"AWS's class{dated} ({share} % taken back in a month) is weak evidence"
        known = "nobody has measured this one" if self.observed is None else _noted(self.observed)
        return (
            f"assumed from public recordings of other zones, {known}: "
            f"a loss every {lost}, none to be had in {missing} of the time; {said}"
        )


def _noted(observed: Observed) -> str:
    """What is known of the zone itself, and until when."""
    launched, refused, lost = (observed.count(kind) for kind in ("launched", "refused", "taken_back"))
    parts = [f"placement score {observed.score:g}"] if observed.score is not None else []
    if launched or refused:
        hours = format_hours(observed.node_hours)
        parts.insert(0, f"{launched} launched by this account, {refused} refused, {lost} lost in {hours}")
    old = f", {format_hours(observed.age_hours)} old" if observed.age_hours else ""
    return f"and from what was noted here until {observed.newest.date()}{old} ({'; '.join(parts) or 'prices alone'})"


def _recorded(recording: Recording, nodes: Ints) -> SpotRates:
    trace = recording.trace
    seen, which = np.unique(np.clip(nodes, 1, max(trace.size, 1)), return_inverse=True)
    processes = (process_from_trace(trace, nodes=int(size), age_hours=recording.age_hours) for size in seen)
    return SpotRates.of(*processes).at(which).for_gang(nodes / seen[which])


def _no_better(rates: SpotRates, rival: SpotRates) -> SpotRates:
    """At no age: what is not known must not look better than what was measured."""
    return replace(
        rates,
        loss_per_hour=np.maximum(rates.loss_per_hour, _IGNORANCE * rival.loss_per_hour),
        return_per_hour=np.minimum(rates.return_per_hour, rival.return_per_hour / _IGNORANCE),
        loss_log_sd=np.maximum(rates.loss_log_sd, rival.loss_log_sd),
        return_log_sd=np.maximum(rates.return_log_sd, rival.return_log_sd),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotHistory:
    """The recordings at hand, by instance type and zone ID."""

    recordings: Mapping[tuple[str, str], Recording | Observed] = field(default_factory=dict)

    def source(self, instance_type: str, zone: str, interruption_class: int | None) -> SpotSource:
        found = self.recordings.get((instance_type, zone))
        if isinstance(found, Recording):
            return SpotSource(recording=found)
        return SpotSource(interruption_class, observed=found, rivals=self._good(instance_type))

    def _good(self, instance_type: str) -> tuple[Recording, ...]:
        return tuple(
            found
            for (name, _), found in sorted(self.recordings.items(), key=lambda item: item[0])
            if name == instance_type and isinstance(found, Recording) and found.trace.gang().mean() > _GOOD_AVAILABILITY
        )
