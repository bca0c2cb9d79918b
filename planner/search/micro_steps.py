"""Seconds of a step that keep a law: the same samples in more micro-steps never take less time.

Larger local batches use a GPU at least as well, and start fewer kernels. Where a prediction of a larger one is less
sure, since nothing like it was measured or it may not fit, its upper end can lie above that of a finer split. Nobody
who knows the law expects that: what the finer split takes bounds it. With pipeline stages the law does not hold, since
more micro-steps shorten the bubble: rows of a strategy are left as they are predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.columns import Flags, Floats, Ints, Prediction
from planner.models import Configurations
from planner.search.candidates import splits_of

StepSeconds = Callable[[Configurations], Prediction]


def step_seconds(rows: Configurations, predict: StepSeconds) -> Prediction:
    """Of any rows: their finer splits are looked at, too."""
    if rows.strategies is not None:
        return predict(rows)
    with_finer, place = _with_finer_splits(rows)
    return bounded(predict(with_finer), with_finer).at(place)


def bounded(seconds: Prediction, rows: Configurations) -> Prediction:
    """Of rows that stand before all their finer splits, fewest micro-steps first, as `every_split` lists them."""
    finer_next = _finer_next(rows)
    high = _bounded(seconds.p95, finer_next)
    middle = np.minimum(_bounded(seconds.p50, finer_next), high)
    return replace(seconds, p05=np.minimum(seconds.p05, middle), p50=middle, p95=high)


def _finer_next(rows: Configurations) -> Flags:
    """Whether the next row is a finer split of the same samples on the same nodes."""
    share, micro_steps = rows.gpu_batch * rows.accumulation_steps, rows.accumulation_steps
    same = (rows.nodes[1:] == rows.nodes[:-1]) & (share[1:] == share[:-1])
    return np.asarray(same & (micro_steps[1:] > micro_steps[:-1]))


def _bounded(values: Floats, finer_next: Flags) -> Floats:
    """Each at most what follows it among its own splits. Few are not, so only those are touched."""
    wrong = np.flatnonzero(finer_next & (values[1:] < values[:-1]))
    if not len(wrong):
        return values
    values = values.copy()
    while len(wrong):
        values[wrong] = values[wrong + 1]
        before = np.unique(np.concatenate((wrong - 1, wrong)))
        before = before[before >= 0]
        wrong = before[finer_next[before] & (values[before + 1] < values[before])]
    return values


def _with_finer_splits(rows: Configurations) -> tuple[Configurations, Ints]:
    """Each row followed by its finer splits, and where the rows themselves stand."""
    splits = [
        [(batch, steps), *(split for split in splits_of(batch * steps) if split[1] > steps)]
        for batch, steps in zip(rows.gpu_batch.tolist(), rows.accumulation_steps.tolist(), strict=True)
    ]
    counts = np.array([len(each) for each in splits], dtype=np.int64)
    batch, steps = np.array([split for each in splits for split in each], dtype=np.int64).reshape(-1, 2).T
    repeated = rows.at(np.repeat(np.arange(len(counts)), counts))
    return replace(repeated, gpu_batch=batch, accumulation_steps=steps), np.cumsum(counts) - counts
