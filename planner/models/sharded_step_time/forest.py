"""A random forest on what the form misses of the job's own rows, where these say that it helps.

It learns log(measured / form) from the shares of the form's terms and from how the model is spread, so that it can say
"tensor parallelism over eight GPUs costs more here than it should". Of other people's rows it would learn their
machines, and err five times as much on a new one.

Two questions are asked apart, since trees know what they have seen and little else. Next to rows of the same shape and
strategy: do trees that have not seen a row predict it better than the form? Elsewhere: do trees that have not seen
anything of a row's strategy, or of its shape? Each answer is a share of the forest's correction, and what is left of
the errors then is how sure it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns import Flags, Floats
from planner.models.sharded_step_time.layout import Layout
from planner.models.sharded_step_time.posterior import Predicted, StepRows
from planner.models.step_time.forest import blend_share

FEWEST_ROWS = 25  # with fewer, trees repeat single probes
TREES = 60
TREES_LEFT_OUT = 20  # enough to say how far off they are
LEAST_LEAF = 1
FOLDS = 3
SEED = 0
_LEAST_SD = 0.004  # a step repeated on the same machines
_STRATEGY = ("tensor", "pipeline", "data", "shards", "gathered_bytes", "update_shards", "recomputed", "context")
_SHAPE = ("layers", "width", "sequence_length", "vocabulary")


@dataclass(frozen=True, slots=True)
class Blend:
    """How much of the forest's correction is taken, and how far off that was."""

    share: float
    sd: float


@dataclass(frozen=True, slots=True)
class ResidualForest:
    trees: Any  # RandomForestRegressor
    near: Blend
    far: Blend
    strategies: frozenset[tuple[float, ...]]
    shapes: frozenset[tuple[float, ...]]

    def correction(self, layout: Layout, at: Predicted) -> tuple[Floats, Floats]:
        """What to add to log seconds, and the standard deviation that is left of single rows."""
        known = self._known(layout, len(at.log_step))
        share = np.where(known, self.near.share, self.far.share)
        sd = np.where(known, self.near.sd, self.far.sd)
        return share * np.asarray(self.trees.predict(_features(layout, at))), sd

    def _known(self, layout: Layout, count: int) -> Flags:
        strategies, shapes = _cells(layout, _STRATEGY, count), _cells(layout, _SHAPE, count)
        pairs = zip(strategies, shapes, strict=True)
        return np.array([one in self.strategies and other in self.shapes for one, other in pairs], dtype=bool)


def fit_forest(rows: StepRows, at: Predicted) -> ResidualForest | None:
    """None with few rows, or where trees bring nothing next to them."""
    if len(rows) < FEWEST_ROWS:
        return None
    error, features = rows.log_step - at.log_step, _features(rows.layout, at)
    trees = _grown(features, error, out_of_bag=True)
    near = _blend(error, trees.oob_prediction_)
    if near.share == 0.0:
        return None
    strategies = _cells(rows.layout, _STRATEGY, len(rows))
    shapes = _cells(rows.layout, _SHAPE, len(rows))
    far = [_elsewhere(features, error, cells) for cells in (strategies, shapes)]
    told = [blend for blend in far if blend is not None] or [Blend(0.0, float(np.std(error)))]
    worst = max(told, key=lambda blend: blend.sd)
    return ResidualForest(trees, near, worst, frozenset(strategies), frozenset(shapes))


def _elsewhere(features: Floats, error: Floats, cells: Sequence[tuple[float, ...]]) -> Blend | None:
    """With whole cells left out; None where there are too few to say."""
    kinds = sorted(set(cells))
    if len(kinds) < 3:
        return None
    number = {kind: index for index, kind in enumerate(np.random.default_rng(SEED).permutation(len(kinds)))}
    fold = np.array([number[kinds.index(cell)] % FOLDS for cell in cells])
    guess = np.zeros_like(error)
    for index in range(min(FOLDS, len(kinds))):
        held = fold == index
        guess[held] = _grown(features[~held], error[~held]).predict(features[held])
    return _blend(error, guess)


def _blend(error: Floats, guess: Floats) -> Blend:
    share = blend_share(error, error - guess)
    left = error - share * guess
    return Blend(share, max(float(np.sqrt(np.mean(left**2))), _LEAST_SD))


def _grown(features: Floats, error: Floats, out_of_bag: bool = False) -> Any:
    from sklearn.ensemble import RandomForestRegressor  # takes a second to import

    count = TREES if out_of_bag else TREES_LEFT_OUT
    trees = RandomForestRegressor(
        count, max_features=0.5, min_samples_leaf=LEAST_LEAF, oob_score=out_of_bag, random_state=SEED
    )
    return trees.fit(features, error)


def _cells(layout: Layout, names: Sequence[str], count: int) -> list[tuple[float, ...]]:
    columns = [np.broadcast_to(np.asarray(getattr(layout, name), dtype=float), count) for name in names]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _features(layout: Layout, at: Predicted) -> Floats:
    """The shares of the terms, the form's own answer, and how the model is spread."""
    count = len(at.log_step)
    names = ("tensor", "pipeline", "data", "micro_batch", "accumulation", "layers", "width", "sequence_length")
    doublings = [np.log2(np.broadcast_to(np.asarray(getattr(layout, name), dtype=float), count)) for name in names]
    return np.column_stack((at.slope, at.once_share, at.log_step, *doublings))
