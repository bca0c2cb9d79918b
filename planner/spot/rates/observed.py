"""What the account's own launches and AWS's placement scores add to what is assumed of a zone.

Own nodes are strong evidence: with T of them taken back in H node hours, where the prior expects E = H / mean up-time,
the loss rates become (T + k) / (E + k) times the prior's; with R of A requests refused, returns follow from the odds of
being refused alike. k = 1 / variance is how many events the prior is worth. A score moves returns by half the spread
between zones at most: AWS calls it a likelihood, and nobody has published what it is worth. Both fade as history does.
"""

from __future__ import annotations

import math

from planner.inputs import Observed
from planner.spot.rates.history import HISTORY_WEIGHTS
from planner.spot.rates.process import SpotProcess

_MIDDLE_SCORE, _SCORES = 5.5, 4.5  # of scores from 1 to 10: the middle, and how far the ends are from it
_SCORE_WEIGHT = 0.5


def process_with(observed: Observed, prior: SpotProcess) -> SpotProcess:
    kept = math.exp(-observed.age_hours / HISTORY_WEIGHTS.drift_hours)
    loss, loss_log_sd = _loss_shift(observed, prior)
    back, return_log_sd = _return_shift(observed, prior.scaled(loss=math.exp(loss)))
    return SpotProcess(
        loss_per_hour=prior.loss_per_hour * math.exp(kept * loss),
        return_per_hour=prior.return_per_hour * math.exp(kept * back),
        log_sd=_between(prior.log_sd, return_log_sd, kept),
        own_loss_log_sd=_between(prior.loss_log_sd, loss_log_sd, kept),
        day_log_sd=prior.day_log_sd,
    )


def _loss_shift(observed: Observed, prior: SpotProcess) -> tuple[float, float]:
    """Of the log rates, and what is then not known of them."""
    worth = prior.loss_log_sd**-2
    lost, expected = observed.count("taken_back"), observed.node_hours / prior.mean_up_hours
    return math.log((lost + worth) / (expected + worth)), (lost + worth) ** -0.5


def _return_shift(observed: Observed, prior: SpotProcess) -> tuple[float, float]:
    score, worth = observed.score, prior.log_sd**-2
    from_score = 0.0 if score is None else _SCORE_WEIGHT * prior.log_sd * (score - _MIDDLE_SCORE) / _SCORES
    granted, refused = observed.count("launched"), observed.count("refused")
    there = prior.availability
    odds = (refused + worth * (1 - there)) / (granted + worth * there)
    # Capacity is missing for down / (up + down) of the time: twice the odds of that are half the returns.
    return from_score - math.log(odds * there / (1 - there)), (granted + refused + worth) ** -0.5


def _between(prior_sd: float, known_sd: float, kept: float) -> float:
    """Variances fall back to the prior's as what is known fades."""
    return math.sqrt(kept**2 * known_sd**2 + (1 - kept**2) * prior_sd**2)
