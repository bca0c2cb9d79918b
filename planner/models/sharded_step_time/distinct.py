"""Which rows of a table differ, found without sorting: millions of rows share few node counts, batches and degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Ints

_MOST_CELLS = 2**24  # beyond which a table of all combinations is dearer than sorting


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The first row of each kind, rising by kind, and which of these kinds every row is."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    cells = 1
    for column in columns:
        code, count = _codes(column)
        key, cells = key * count + code, cells * count
        if cells > _MOST_CELLS:
            key, cells = _codes_by_sorting(key)
    first, row = _first_and_kind(key, cells)
    return first, row


def _codes(column: Ints) -> tuple[Ints, int]:
    """Each value's rank among those that occur."""
    low, high = int(column.min()), int(column.max())
    if high - low >= _MOST_CELLS:
        return _codes_by_sorting(column)
    present = np.zeros(high - low + 1, dtype=bool)
    present[column - low] = True
    rank = np.cumsum(present) - 1
    return rank[column - low], int(rank[-1]) + 1


def _codes_by_sorting(column: Ints) -> tuple[Ints, int]:
    values, code = np.unique(column, return_inverse=True)
    return code.ravel().astype(np.int64), len(values)


def _first_and_kind(key: Ints, cells: int) -> tuple[Ints, Ints]:
    first = np.full(cells, -1, dtype=np.int64)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # the last to be written is the first row
    present = first >= 0
    rank = np.cumsum(present) - 1
    return first[present], rank[key]
