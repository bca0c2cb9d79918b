"""The gradient noise scale of a job, pooled from all probes of it, with how far it is known and what contradicts it.

At one state of the training all batch sizes measure the same quantity: their logarithms are averaged by inverse
variance, and the error is stretched where they differ by more than their intervals allow (Birge's ratio). Between
states the noise itself changes; a plan needs it over the whole run. Each state then counts once, and how far they lie
apart is doubt about the run, which more probes of the same states do not lessen.

Wherever it was measured: noise belongs to the job, not to the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.columns import Z95
from planner.inputs.measurements import GradientNoise, Measurement
from planner.units import format_count

LEAST_LOG_SD = 0.01  # a row written by hand may say that it has no error at all
MOST_LOG_SD = 3.0  # a factor of 140 to either side: who knows less knows nothing, and numbers overflow
_MOST_NAMED = 5


class LogEstimate(NamedTuple):
    """Of a logarithm."""

    log_scale: float
    log_sd: float

    @property
    def interval(self) -> tuple[float, float]:
        """90 %."""
        reach = Z95 * min(self.log_sd, MOST_LOG_SD)
        return math.exp(self.log_scale - reach), math.exp(self.log_scale + reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNoise:
    """In samples; `log_sd` is the standard deviation of its logarithm, `stage` says when in the training."""

    scale: float
    log_sd: float
    stage: str
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{_shown(LogEstimate(math.log(self.scale), self.log_sd))} samples, {self.stage}"


def measured_noise(rows: Sequence[Measurement]) -> MeasuredNoise | None:
    """None where no probe has reached a narrow interval."""
    noises = [row.noise for row in rows if row.noise is not None and row.noise.reached]
    states = _by_state([noise for noise in noises if 0 < noise.low <= noise.high])
    if not states:
        return None
    pooled = [pooled_within(state.estimates) for state in states]
    run = pooled_between(pooled)
    return MeasuredNoise(
        scale=math.exp(run.log_scale),
        log_sd=min(run.log_sd, MOST_LOG_SD),
        stage=states[0].stage if len(states) == 1 else f"from {len(states)} stages of training",
        warnings=(*_contradictions(states, pooled), *_changes(states, pooled, run)),
    )


def pooled_within(estimates: Sequence[LogEstimate]) -> LogEstimate:
    """Of one state: by inverse variance, the error stretched by Birge's ratio where that is above 1."""
    weights = [1 / one.log_sd**2 for one in estimates]
    centre = sum(weight * one.log_scale for weight, one in zip(weights, estimates, strict=True)) / sum(weights)
    return LogEstimate(centre, math.sqrt(1 / sum(weights)) * max(birge_ratio(estimates, centre), 1.0))


def birge_ratio(estimates: Sequence[LogEstimate], centre: float) -> float:
    """Root mean square of how far they lie from their mean, in their own standard deviations: about 1 if they agree."""
    squares = sum(((one.log_scale - centre) / one.log_sd) ** 2 for one in estimates)
    return math.sqrt(squares / (len(estimates) - 1)) if len(estimates) > 1 else 1.0


def pooled_between(states: Sequence[LogEstimate]) -> LogEstimate:
    """The middle of the states, with their spread beside their own errors."""
    count = len(states)
    centre = sum(one.log_scale for one in states) / count
    spread = sum((one.log_scale - centre) ** 2 for one in states) / max(count - 1, 1)
    return LogEstimate(centre, math.sqrt(spread + sum(one.log_sd**2 for one in states) / count**2))


def exclude_each_other(estimates: Sequence[LogEstimate]) -> bool:
    """Whether two of the 90 % intervals do not meet."""
    intervals = [one.interval for one in estimates]
    return max(low for low, _ in intervals) > min(high for _, high in intervals)


class _State(NamedTuple):
    stage: str
    estimates: list[LogEstimate]


def _by_state(noises: Sequence[GradientNoise]) -> list[_State]:
    """A row that does not say its state was measured before scav recorded it: it shares it with no other."""
    states: dict[str | int, _State] = {}
    for number, noise in enumerate(noises):
        log_sd = max((math.log(noise.high) - math.log(noise.low)) / (2 * Z95), LEAST_LOG_SD)
        state = states.setdefault(noise.state or number, _State(_stage(noise), []))
        state.estimates.append(LogEstimate(math.log(noise.scale), log_sd))
    return list(states.values())


def _stage(noise: GradientNoise) -> str:
    if noise.at_samples is not None:
        return f"after {format_count(noise.at_samples)} samples of training"
    return "at a given checkpoint" if noise.at_step is None else f"after {noise.at_step:,} steps of training"


def _contradictions(states: Sequence[_State], pooled: Sequence[LogEstimate]) -> Iterator[str]:
    for state, together in zip(states, pooled, strict=True):
        if exclude_each_other(state.estimates):
            ratio = birge_ratio(state.estimates, together.log_scale)
            yield (
                f"gradient noise scales of one state exclude each other, {state.stage}: {_listed(state.estimates)}; "
                f"the interval of their mean, {_shown(together)}, is {ratio:.1f} times as wide for it"
            )


def _changes(states: Sequence[_State], pooled: Sequence[LogEstimate], run: LogEstimate) -> Iterator[str]:
    if exclude_each_other(pooled):
        stages = [f" {state.stage}" for state in states]
        yield f"the gradient noise scale changes in training: {_listed(pooled, stages)}; used is {_shown(run)}"


def _listed(estimates: Sequence[LogEstimate], stages: Sequence[str] = ()) -> str:
    """From the smallest to the largest; of many only these two."""
    named = sorted(zip(estimates, stages or [""] * len(estimates), strict=True))
    few = named if len(named) <= _MOST_NAMED else [named[0], named[-1]]
    words = [f"{_shown(one)}{stage}" for one, stage in few]
    return f"{', '.join(words[:-1])} {'and' if few is named else 'to'} {words[-1]}"


def _shown(one: LogEstimate) -> str:
    low, high = one.interval
    return f"{math.exp(one.log_scale):,.0f} ({low:,.0f} to {high:,.0f})"
