"""Where the rates of spot capacity in a zone come from: its own recording, the advisor's class, or the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.columns import Ints
from planner.inputs import Recording
from planner.spot.rates.history import process_from_trace
from planner.spot.rates.interruption_classes import process_for_class
from planner.spot.rates.process import SpotProcess
from planner.spot.slowdown import SpotRates
from planner.units import format_hours

_CLASSES = ("under 5", "5 to 10", "10 to 15", "15 to 20", "over 20")


@dataclass(frozen=True, slots=True)
class SpotSource:
    """Zones with equal sources lose nodes alike. Without recording and class, the pool of all recordings stands in."""

    interruption_class: int | None = None
    recording: Recording | None = None

    @property
    def ever_there(self) -> bool:
        """Where a recording shows no node at all, none is to be had."""
        return self.recording is None or self.recording.trace.size > 0

    def gang(self, nodes: int) -> SpotProcess:
        """Of so many spot nodes, which run together or not at all."""
        rates = self.rates(np.array([nodes]))
        return SpotProcess(
            loss_per_hour=rates.loss_per_hour[0],
            return_per_hour=rates.return_per_hour[0],
            log_sd=float(rates.return_log_sd[0]),
            own_loss_log_sd=float(rates.loss_log_sd[0]),
        )

    def rates(self, nodes: Ints) -> SpotRates:
        """A row for each gang. Where the recording has too few nodes, the largest gang that it has is scaled up."""
        seen, which = np.unique(np.clip(nodes, 1, self._most_seen), return_inverse=True)
        rates = SpotRates.of(*(self._seen(int(size)) for size in seen)).at(which)
        return rates.for_gang(nodes / seen[which])

    @property
    def _most_seen(self) -> int:
        return 1 if self.recording is None else max(self.recording.trace.size, 1)

    def _seen(self, nodes: int) -> SpotProcess:
        if self.recording is None:
            return process_for_class(self.interruption_class)
        return process_from_trace(self.recording.trace, nodes=nodes, age_hours=self.recording.age_hours)

    @property
    def description(self) -> str:
        if self.recording is not None:
            trace, age = self.recording.trace, self.recording.age_hours
            old = f", {format_hours(age)} old" if age else ""
            return f"recorded capacity {trace.name} ({format_hours(trace.hours)} of up to {trace.size} nodes{old})"
        if self.interruption_class is None:
            return "a pool of public recordings, since AWS gives no interruption class here"
        share = _CLASSES[self.interruption_class]
        return f"AWS's interruption class: {share} % of instances taken back in a month"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotHistory:
    """The recordings at hand, by instance type and zone ID."""

    recordings: Mapping[tuple[str, str], Recording] = field(default_factory=dict)

    def source(self, instance_type: str, zone: str, interruption_class: int | None) -> SpotSource:
        recording = self.recordings.get((instance_type, zone))
        return SpotSource(recording=recording) if recording else SpotSource(interruption_class)
