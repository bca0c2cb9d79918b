"""Columns of placements, and of what was measured on them; equal configurations merged into one weighted row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Flags, Floats, Ints

# A window of steps repeated on the same machines mostly repeats its own error: more repeats than this add nothing.
MOST_WEIGHT = 4.0
MOST_ROWS = 400  # that a form or its correction is fitted to: more take time and say no more
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Row i: `workers[i]` GPUs on `nodes[i]` nodes, at most `most_per_node[i]` of them on one.

    Each takes `accumulation_steps[i]` micro-steps of `gpu_batch[i]` samples.
    """

    nodes: Ints
    workers: Ints
    most_per_node: Ints
    gpu_batch: Ints
    accumulation_steps: Ints

    def __len__(self) -> int:
        return len(self.nodes)

    def at(self, rows: Ints | Flags) -> Placements:
        return Placements(
            nodes=self.nodes[rows],
            workers=self.workers[rows],
            most_per_node=self.most_per_node[rows],
            gpu_batch=self.gpu_batch[rows],
            accumulation_steps=self.accumulation_steps[rows],
        )

    def table(self) -> Ints:
        """One line per row, for comparing rows."""
        columns = (self.nodes, self.workers, self.most_per_node, self.gpu_batch, self.accumulation_steps)
        return np.stack(columns, axis=1).astype(np.int64)

    def features(self) -> Floats:
        """Coordinates in which a distance of one means about twice as much.

        They are nodes, GPUs on the fullest node, GPUs on each other node, and batch.

        The first node that is not alone brings the network with it, so it is further away than twice as many. A node
        with one GPU beside a full one behaves unlike two half-full ones, so the fullest does not count as another.
        """
        several = 0.7 * (self.nodes > 1)
        others = np.where(
            self.nodes > 1, (self.workers - self.most_per_node) / np.maximum(self.nodes - 1, 1), self.most_per_node
        )
        columns = (np.log2(self.nodes) + several, np.log2(self.most_per_node), np.log2(np.maximum(others, 1.0)))
        return np.stack((*columns, np.log2(self.gpu_batch)), axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRows:
    """Distinct configurations in a fixed order, whatever the order of the measurements was."""

    placements: Placements
    log_step: Floats
    log_work: Floats  # the step without exposed communication; NaN where that was not measured apart
    count: Floats  # how many measurements a row stands for
    weight: Floats  # the same, doubtful ones counted half
    spread: Floats  # variance of the logarithms between them

    def __len__(self) -> int:
        return len(self.log_step)

    def at(self, rows: Ints | Flags) -> MeasuredRows:
        return MeasuredRows(
            placements=self.placements.at(rows),
            log_step=self.log_step[rows],
            log_work=self.log_work[rows],
            count=self.count[rows],
            weight=self.weight[rows],
            spread=self.spread[rows],
        )

    @property
    def repeat_variance(self) -> float:
        """How much measurements of the same configuration disagree; zero where nothing was repeated."""
        extra = self.count - 1
        return float(extra @ self.spread / extra.sum()) if extra.sum() > 0 else 0.0


def measured_rows(
    placements: Placements, step_seconds: Floats, exposed_sync_seconds: Floats | None, trust: Floats | None = None
) -> MeasuredRows:
    """In any order. An unknown exposed sync is NaN; one as long as the step is not believed.

    `trust`: how much each measurement counts, if not fully.
    """
    if not (np.isfinite(step_seconds) & (step_seconds > 0)).all():
        raise ValueError("step seconds must be positive and finite")
    sync = np.full(len(placements), np.nan) if exposed_sync_seconds is None else exposed_sync_seconds
    with np.errstate(invalid="ignore"):
        work = np.where(sync < step_seconds, step_seconds - sync, np.nan)
    _, first, row = np.unique(placements.table(), axis=0, return_index=True, return_inverse=True)
    row, rows = row.ravel(), len(first)
    trust = np.ones(len(row)) if trust is None else trust
    count = np.bincount(row, minlength=rows).astype(float)
    trusted = np.bincount(row, weights=trust, minlength=rows) / count
    log_step = np.log(step_seconds)
    mean = _mean_by_row(log_step, row, rows, trust)
    spread = _mean_by_row((log_step - mean[row]) ** 2, row, rows, trust) * count / np.maximum(count - 1, 1)
    return MeasuredRows(
        placements=placements.at(first),
        log_step=mean,
        log_work=_mean_by_row(np.log(work), row, rows, trust),
        count=np.minimum(count, MOST_WEIGHT),
        weight=np.minimum(count, MOST_WEIGHT) * trusted,
        spread=spread,
    )


def _mean_by_row(values: Floats, row: Ints, rows: int, trust: Floats) -> Floats:
    """Sorted before adding, so that the last bit does not depend on the order either."""
    order = np.lexsort((trust, values, row))
    values, row, trust = values[order], row[order], trust[order]
    known = np.isfinite(values)
    total = np.bincount(row[known], weights=(trust * values)[known], minlength=rows)
    counted = np.bincount(row[known], weights=trust[known], minlength=rows)
    return np.asarray(np.divide(total, counted, out=np.full(rows, np.nan), where=counted > 0))


def spread_subset(rows: MeasuredRows, most: int = MOST_ROWS, seed: int = SEED) -> MeasuredRows:
    """Some of many rows, the same ones every time."""
    return rows if len(rows) <= most else rows.at(spread_indices(len(rows), most, seed))


def spread_indices(count: int, most: int = MOST_ROWS, seed: int = SEED) -> Ints:
    """Rising, at most so many of so many."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])
