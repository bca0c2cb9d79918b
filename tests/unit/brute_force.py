"""What the fitted models say, as plain numbers for the loops of `plain_search`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from plain_search import Given, Losses, Triple

from planner.columns import Prediction
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels
from planner.spot.mix import SpotMarkets
from planner.spot.rates.sources import SpotHistory, SpotSource


def given(job: Job, catalog: Catalog, models: FittedModels) -> Given:
    overheads = models.overheads

    def one(name: str, nodes: int, gpu_batch: int, steps: int) -> Configurations:
        kind = catalog.instance_type_by_name[name]
        return Configurations.of(catalog, kind, nodes=nodes, gpu_batch=gpu_batch, accumulation_steps=steps)

    return Given(
        # Remembered: a split is asked for once for itself, and once for each coarser one.
        fits=functools.cache(lambda name, nodes, batch: bool(models.memory.fits(one(name, nodes, batch, 1))[0])),
        step_seconds=functools.cache(lambda *row: _triple(models.doubted_steps.predict(one(*row)))),
        samples=functools.cache(lambda batch: _triple(models.convergence.predict(np.array([batch])))),
        losses=_losses(overheads.save_seconds, overheads.restart_seconds, job.constraints.deadline_hours),
        startup_hours=overheads.startup_seconds / 3600,
        restart_hours=overheads.restart_seconds / 3600,
        saving_share=overheads.checkpoint_share,
        spot_price=(0.64, 1.0, 1.91),
    )


@functools.cache
def _losses(
    save_seconds: float, restart_seconds: float, deadline_hours: float | None
) -> Callable[[int | None, int], Losses]:
    """What losing spot nodes does is tested against simulations elsewhere."""
    markets = SpotMarkets(
        history=SpotHistory(),
        save_seconds=save_seconds,
        restart_seconds=restart_seconds,
        deadline_hours=deadline_hours,
    )

    @functools.cache
    def losses(interruption_class: int | None, spot_nodes: int) -> Losses:
        terms = markets.terms(SpotSource(interruption_class), np.array([spot_nodes]))

        @functools.cache  # zones of a region lose nodes alike
        def slowdown(busy_hours: float) -> tuple[Triple, Triple]:
            wall, paid = terms.slowdown(np.array([busy_hours]))
            return _triple(wall), _triple(paid)

        return Losses(float(terms.interval_seconds[0]) / 3600, float(terms.save_share[0]), slowdown)

    return losses


def _triple(found: Prediction) -> Triple:
    return float(found.p05[0]), float(found.p50[0]), float(found.p95[0])
