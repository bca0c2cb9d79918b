"""The physical form of a step and the columns it is fitted to, term by term by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from small_world import floats

from planner.models.step_time.correction import likeness
from planner.models.step_time.formula import NAMES, Parameters, gradients, log_step, terms
from planner.models.step_time.posterior import reference_point
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import Placements, measured_rows, spread_subset
from planner.models.step_time.table import rising

NEVER = -60.0  # as a logarithm: nothing
QUIET = Parameters(
    scale=0.0,
    fixed=0.0,
    floor=NEVER,
    link=NEVER,
    network=NEVER,
    batch_power=0.0,
    link_power=0.0,
    pair=0.0,
    width_power=0.0,
    overlap=NEVER,
    pair_alone=0.0,
    balance_power=0.0,
    wait=NEVER,
)


def where(nodes: int = 1, gpus: int = 1, batch: int = 10, steps: int = 1, workers: int | None = None) -> Placements:
    columns = {"nodes": nodes, "workers": workers or nodes * gpus, "most_per_node": gpus, "gpu_batch": batch}
    return Placements(
        **{name: np.array([value]) for name, value in columns.items()}, accumulation_steps=np.array([steps])
    )


def seconds(of: str, placement: Placements, **parameters: float) -> float:
    """At a reference batch of 10."""
    theta = np.array(QUIET._replace(**parameters))
    return float(getattr(terms(theta, placement, 10.0), of)[0])


class TestTerms:
    def test_half_of_the_work_grows_with_the_batch(self) -> None:
        # A second at the reference batch; twice the batch makes 0.5 + 0.5 x 2, three micro-steps three times that.
        assert seconds("work", where()) == pytest.approx(1.0)
        assert seconds("work", where(batch=20)) == pytest.approx(1.5)
        assert seconds("work", where(batch=20, steps=3)) == pytest.approx(4.5)
        assert seconds("work", where(batch=20), scale=math.log(2)) == pytest.approx(3.0)
        assert seconds("work", where(batch=20), fixed=math.log(3)) == pytest.approx(0.75 + 0.25 * 2)

    def test_the_batch_s_power_is_kept_near_one(self) -> None:
        assert seconds("work", where(batch=20), batch_power=0.1) == pytest.approx(0.5 + 0.5 * 2 ** math.exp(0.1))
        assert seconds("work", where(batch=20), batch_power=9.0) == pytest.approx(0.5 + 0.5 * 2 ** math.exp(0.15))
        assert seconds("work", where(batch=20), batch_power=-9.0) == pytest.approx(0.5 + 0.5 * 2 ** math.exp(-0.3))

    def test_the_host_starts_every_micro_step(self) -> None:
        assert seconds("host", where(steps=3), floor=math.log(0.2)) == pytest.approx(0.6)
        assert seconds("host", where(batch=40), floor=math.log(0.2)) == pytest.approx(0.2)

    def test_a_link_saturates(self) -> None:
        # Four GPUs: 2 x 3 / 4 of the gradient through the ring.
        assert seconds("sync", where(gpus=4), link=math.log(0.1)) == pytest.approx(0.15)
        squared = {"link": math.log(0.1), "link_power": math.log(2)}
        assert seconds("sync", where(gpus=4), **squared) == pytest.approx(0.225)
        assert seconds("sync", where(gpus=4096), **squared) == pytest.approx(0.4, rel=1e-2)
        assert seconds("sync", where(gpus=1), link=math.log(0.1)) == pytest.approx(0.0)

    def test_between_nodes_a_ring_that_saturates(self) -> None:
        one = {"network": math.log(0.1)}
        assert seconds("sync", where(nodes=1), **one) == pytest.approx(0.0, abs=1e-12)
        # 2 x 3 / 4 of the gradient on four nodes, never twice of it.
        assert seconds("sync", where(nodes=4), **one) == pytest.approx(0.15)
        assert seconds("sync", where(nodes=2), **one) == pytest.approx(0.1)
        assert seconds("sync", where(nodes=4096), **one) == pytest.approx(0.2, rel=1e-3)

    def test_a_pair_of_nodes_has_a_factor_of_its_own(self) -> None:
        pairs = {"network": math.log(0.1), "pair": math.log(2), "pair_alone": math.log(3)}
        assert seconds("sync", where(nodes=2, gpus=4), **pairs) == pytest.approx(0.2)
        assert seconds("sync", where(nodes=2, gpus=1), **pairs) == pytest.approx(0.3)
        assert seconds("sync", where(nodes=4, gpus=4), **pairs) == pytest.approx(0.15)

    def test_wide_and_unbalanced_nodes(self) -> None:
        # Four GPUs on the fullest of two nodes, six in all: three on average.
        width = {"network": math.log(0.1), "width_power": 0.5}
        assert seconds("sync", where(nodes=2, gpus=4), **width) == pytest.approx(0.2)
        uneven = {"network": math.log(0.1), "balance_power": 2.0}
        assert seconds("sync", where(nodes=2, gpus=4, workers=6), **uneven) == pytest.approx(0.1 * 0.75**2)

    def test_from_three_nodes_on_they_wait_for_the_slowest(self) -> None:
        # A tenth of what grows of the work: 0.5 x 2.
        assert seconds("sync", where(nodes=3, batch=20), wait=math.log(0.1)) == pytest.approx(0.1)
        assert seconds("sync", where(nodes=2, batch=20), wait=math.log(0.1)) == pytest.approx(0.0)


class TestStep:
    def step(self, placement: Placements, **parameters: float) -> tuple[float, float]:
        step, work = log_step(np.array(QUIET._replace(**parameters)), placement, 10.0)
        return float(np.exp(step[0])), float(np.exp(work[0]))

    def test_without_overlap_communication_is_added(self) -> None:
        assert self.step(where(gpus=4), link=math.log(0.1)) == pytest.approx((1.15, 1.0))

    def test_with_overlap_the_shorter_hides(self) -> None:
        # Log-odds of zero: a power of 1 + 9 / 2 = 5.5.
        step, work = self.step(where(gpus=4), link=math.log(0.1), overlap=0.0)
        assert step == pytest.approx((1 + 0.15**5.5) ** (1 / 5.5))
        assert work == pytest.approx(1.0)

    def test_a_slow_host_hides_the_rest(self) -> None:
        step, work = self.step(where(gpus=4), link=math.log(0.1), floor=math.log(2))
        assert step == pytest.approx((2**8 + 1.15**8) ** (1 / 8))
        # Without communication, which here is 0.15 s of the busy 1.15.
        assert work == pytest.approx(step - 0.15)

    def test_gradients_are_differences(self) -> None:
        theta = np.array(QUIET._replace(link=math.log(0.1)))
        step, work = gradients(theta, where(gpus=4), 10.0)
        # A percent more link is 0.15 / 1.15 percent more step and no more work; a percent more scale 1 / 1.15.
        assert step[0, NAMES.index("link")] == pytest.approx(0.15 / 1.15, rel=1e-3)
        assert work[0, NAMES.index("link")] == pytest.approx(0.0, abs=1e-6)
        assert step[0, NAMES.index("scale")] == pytest.approx(1 / 1.15, rel=1e-3)

    def test_a_prior_in_other_units_moves_only_what_is_in_seconds(self) -> None:
        moved = USUAL.shifted(2.0).mean - USUAL.mean
        named = {name for name, by in zip(NAMES, moved, strict=True) if by == pytest.approx(2.0)}
        assert named == {"scale", "link", "network"}
        assert np.count_nonzero(moved) == 3


def rows(*table: tuple[int, int, int, int], step: Any, sync: Any = None, steps: int = 1) -> Any:
    nodes, workers, most, batch = (np.array(column) for column in zip(*table, strict=True))
    placements = Placements(
        nodes=nodes,
        workers=workers,
        most_per_node=most,
        gpu_batch=batch,
        accumulation_steps=np.full(len(nodes), steps),
    )
    return measured_rows(placements, np.array(step, float), None if sync is None else np.array(sync, float))


class TestRows:
    def test_repeats_become_one_row_with_their_mean_and_spread(self) -> None:
        # Logs of 1 and e^2: mean 1, variance 2 between two of them.
        found = rows((1, 1, 1, 8), (2, 2, 1, 8), (1, 1, 1, 8), step=[1.0, 5.0, math.exp(2)])
        assert found.weight.tolist() == [2.0, 1.0]
        assert found.log_step == pytest.approx([1.0, math.log(5)])
        assert found.spread == pytest.approx([2.0, 0.0])
        assert found.repeat_variance == pytest.approx(2.0)

    def test_more_than_four_repeats_count_as_four(self) -> None:
        assert rows(*[(1, 1, 1, 8)] * 7, step=[1.0] * 7).weight.tolist() == [4.0]

    def test_nothing_repeated_has_no_variance(self) -> None:
        assert rows((1, 1, 1, 8), (1, 1, 1, 9), step=[1.0, 2.0]).repeat_variance == 0.0

    def test_work_is_the_step_without_its_communication_where_that_is_known_and_believed(self) -> None:
        found = rows((1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 1, 3), step=[2.0, 2.0, 2.0], sync=[0.5, np.nan, 2.0])
        assert found.log_work[0] == pytest.approx(math.log(1.5))
        assert np.isnan(found.log_work[1:]).all()

    @pytest.mark.parametrize("odd", [0.0, -1.0, math.inf, math.nan])
    def test_seconds_that_cannot_be_are_refused(self, odd: float) -> None:
        with pytest.raises(ValueError, match="positive and finite"):
            rows((1, 1, 1, 8), step=[odd])

    def test_coordinates_count_doublings(self) -> None:
        # Nodes and 0.7 for the network; GPUs on the fullest node; on each other node; batch.
        table = ((1, 4, 4, 8), (2, 8, 4, 16), (4, 4, 1, 1), (3, 6, 4, 2))
        found = rows(*table, step=[1.0] * 4).placements
        by_batch = {int(batch): row for batch, row in zip(found.gpu_batch, found.features().tolist(), strict=True)}
        assert by_batch[8] == pytest.approx([0.0, 2.0, 2.0, 3.0])
        assert by_batch[16] == pytest.approx([1.7, 2.0, 2.0, 4.0])
        assert by_batch[1] == pytest.approx([2.7, 0.0, 0.0, 0.0])
        # Four on one and one on each of two others.
        assert by_batch[2] == pytest.approx([math.log2(3) + 0.7, 2.0, 0.0, 1.0])

    def test_the_reference_is_in_the_middle(self) -> None:
        # The middle batch of 4, 16, 64; work of one micro-step where it is known, here 1 s of the second.
        table = ((1, 1, 1, 4), (1, 1, 1, 16), (1, 1, 1, 64))
        batch, log_seconds = reference_point(rows(*table, step=[1.0, 4.0, 8.0], sync=[np.nan, 2.0, np.nan], steps=2))
        assert (batch, log_seconds) == pytest.approx((16.0, 0.0))
        assert reference_point(rows(*table, step=[1.0, 4.0, 8.0], steps=2))[1] == pytest.approx(math.log(2))

    def test_of_many_rows_always_the_same_some(self) -> None:
        many = rows(*[(1, 1, 1, batch) for batch in range(1, 31)], step=np.arange(1.0, 31.0))
        some = spread_subset(many, 10, 3)
        assert len(some) == 10
        assert (np.diff(some.log_step) > 0).all()
        assert np.array_equal(some.log_step, spread_subset(many, 10, 3).log_step)
        assert spread_subset(many, 30, 3) is many


class TestNearby:
    def test_deviations_are_alike_over_placements_smoothly_and_along_the_batch_decaying_at_once(self) -> None:
        here, same = where(nodes=1), likeness(where(), where())
        assert same[0, 0] == pytest.approx(0.1**2)
        # Two doublings of the batch are a reach.
        assert likeness(here, where(batch=40))[0, 0] == pytest.approx(0.1**2 * math.exp(-1))
        # From one node to two is a doubling and 0.7 for the network, 1.2 of them a reach: (1 + r + r^2 / 3) exp(-r).
        r = math.sqrt(5) * 1.7 / 1.2
        assert likeness(here, where(nodes=2))[0, 0] == pytest.approx(0.1**2 * (1 + r + r * r / 3) * math.exp(-r))

    def test_neighbours_out_of_order_share_their_mean(self) -> None:
        assert rising(floats(1, 3, 2, 4)).tolist() == [1.0, 2.5, 2.5, 4.0]
        assert rising(floats(5, 4, 0, 9)).tolist() == [3.0, 3.0, 3.0, 9.0]
        assert rising(floats(1, 2, 2, 3)).tolist() == [1.0, 2.0, 2.0, 3.0]
