"""All-reduce times of a known network give that network back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs.measurements import AllReduce
from planner.models.bandwidth import EffectiveNetwork, effective_network, moved_bytes

SIZES = (65_536, 1_048_576, 4_000_000, 26_214_400)


@given(
    latency=st.floats(0, 0.01),
    bandwidth=st.floats(1e6, 1e9),
    workers=st.integers(2, 64),
    noise=st.tuples(*[st.floats(-0.02, 0.02)] * len(SIZES)),
)
def test_recovers_bandwidth_and_latency(
    latency: float, bandwidth: float, workers: int, noise: tuple[float, ...]
) -> None:
    true = EffectiveNetwork(latency_seconds=latency, bytes_per_second=bandwidth)
    exact = [AllReduce(bytes=size, seconds=true.allreduce_seconds(size, workers)) for size in SIZES]
    found = effective_network(exact, workers)
    assert found is not None
    assert found.bytes_per_second == pytest.approx(bandwidth, rel=1e-6)
    assert found.latency_seconds == pytest.approx(latency, abs=1e-6 + 1e-6 * exact[-1].seconds)
    noisy = [row.model_copy(update={"seconds": row.seconds * (1 + n)}) for row, n in zip(exact, noise, strict=True)]
    found = effective_network(noisy, workers)
    assert found is not None
    assert found.latency_seconds >= 0
    for row in exact[-1:]:
        assert found.allreduce_seconds(row.bytes, workers) == pytest.approx(row.seconds, rel=0.05)


def test_two_workers_move_the_gradient_once_and_many_almost_twice() -> None:
    assert moved_bytes(100, 2) == 100
    assert moved_bytes(100, 50) == pytest.approx(196)


@pytest.mark.parametrize(
    ("rows", "workers"),
    [
        ([], 2),
        ([(1000, 0.1)], 2),
        ([(1000, 0.1), (1000, 0.2)], 2),
        ([(1000, 0.1), (2000, 0.2)], 1),
        ([(1000, 0.2), (2_000_000, 0.1)], 2),
    ],
    ids=["nothing", "one size", "one size twice", "one worker", "faster with size"],
)
def test_says_nothing_where_nothing_follows(rows: list[tuple[int, float]], workers: int) -> None:
    assert effective_network([AllReduce(bytes=size, seconds=seconds) for size, seconds in rows], workers) is None
