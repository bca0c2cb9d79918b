"""Which batch size is tried next, when some do not fit the memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.batch_search import CLOSE_ENOUGH, MOST_EXTRA_TRIES, largest_fitting, next_batch, smallest_too_large


def search(asked: Sequence[int], limit: int, crash: Sequence[int] = ()) -> dict[int, bool | None]:
    """Tries what it is told to, on a machine where batches up to `limit` fit."""
    tried: dict[int, bool | None] = {}
    while (batch := next_batch(tried, asked)) is not None:
        assert batch not in tried
        assert batch >= 1
        tried[batch] = None if batch in crash else batch <= limit
    return tried


@pytest.mark.parametrize(
    ("asked", "limit", "tried"),
    [
        ([256, 16, 64], 1000, [16, 64, 256]),
        ([16, 64, 256], 100, [16, 64, 256, 128, 88, 104]),
        ([16, 64, 256], 20, [16, 64, 32, 24, 20]),
        ([64, 256], 20, [64, 32, 16, 24, 20]),
        ([8], 0, [8, 4, 2, 1]),
        ([256, 300], 256, [256, 300]),
        ([4, 6], 4, [4, 6, 5]),
    ],
    ids=["all fit", "between", "larger ones left out", "below", "nothing fits", "close enough", "small"],
)
def test_tries_in_order(asked: list[int], limit: int, tried: list[int]) -> None:
    assert list(search(asked, limit)) == tried


@given(st.lists(st.integers(1, 4096), min_size=1, max_size=5), st.integers(0, 5000))
def test_ends_close_to_the_limit_or_after_a_few_tries(asked: list[int], limit: int) -> None:
    tried = search(asked, limit)
    fitting, too_large = largest_fitting(tried), smallest_too_large(tried)
    if too_large is None:
        assert set(tried) == set(asked)
    elif fitting is None:
        assert (limit, too_large) == (0, 1)
    else:
        assert fitting <= limit < too_large
        extra = len(set(tried) - set(asked))
        few = any(tried.get(batch) for batch in asked) and extra == MOST_EXTRA_TRIES
        assert few or too_large <= max(CLOSE_ENOUGH * fitting, fitting + 1)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=4), st.integers(0, 600), st.sets(st.integers(1, 512)))
def test_a_size_that_crashes_is_not_tried_again_and_says_nothing_of_memory(
    asked: list[int], limit: int, crash: set[int]
) -> None:
    tried = search(asked, limit, sorted(crash))
    assert all(tried[batch] is None for batch in crash & tried.keys())
