"""Which local batch size to try next, when some turn out not to fit the memory. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MOST_EXTRA_TRIES = 3
CLOSE_ENOUGH = 1.25  # the smallest that does not fit over the largest that does
_EVEN = 8  # GPUs compute odd sizes slower than their neighbours: keep to multiples where there is room


def next_batch(tried: Mapping[int, bool | None], asked: Sequence[int]) -> int | None:
    """The next size to measure, or None when enough is known.

    `tried` says of each size whether it fitted; None where it failed for another reason, which says nothing about
    memory. What was asked for comes first, smallest first, but for what cannot fit. If something did not fit, sizes
    between it and the largest that did follow; if nothing did, smaller and smaller ones.
    """
    too_large = smallest_too_large(tried)
    open_sizes = [batch for batch in asked if batch not in tried and (too_large is None or batch < too_large)]
    if open_sizes:
        return min(open_sizes)
    if too_large is None:
        return None
    fitting = largest_fitting(tried)
    following = too_large // 2 if fitting is None else _between(fitting, too_large)
    asked_fits = any(tried.get(batch) for batch in asked)
    spent = asked_fits and sum(batch not in asked for batch in tried) >= MOST_EXTRA_TRIES
    return None if spent or not following or following in tried else following


def smallest_too_large(tried: Mapping[int, bool | None]) -> int | None:
    return min((batch for batch, fits in tried.items() if fits is False), default=None)


def largest_fitting(tried: Mapping[int, bool | None]) -> int | None:
    """Below anything that did not fit: memory that was enough once by luck is not enough."""
    limit = smallest_too_large(tried)
    return max((batch for batch, fits in tried.items() if fits and (limit is None or batch < limit)), default=None)


def _between(fitting: int, too_large: int) -> int | None:
    if too_large <= CLOSE_ENOUGH * fitting or too_large - fitting < 2:
        return None
    middle = round(math.sqrt(fitting * too_large))
    even = round(middle / _EVEN) * _EVEN
    return even if fitting < even < too_large else min(max(middle, fitting + 1), too_large - 1)
