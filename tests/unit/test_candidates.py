"""What could be rented, worked out by hand: batches, volumes, offers and quotas of a tiny catalogue."""

from __future__ import annotations

import numpy as np
import pytest
from small_world import CATALOG, GIB, ONE, PRO, TWO, catalog, job, offer

from planner.inputs.catalog.tables import InstanceType
from planner.inputs.job.fields import CountRange
from planner.search.candidates import Offers, every_split, offers_by_market, root_volume_gib, within_quota


def splits(instance_type: InstanceType, nodes: tuple[int, int], batch: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Nodes, local batch, micro-steps."""
    grid = every_split(CATALOG, instance_type, CountRange(*nodes), CountRange(*batch))
    columns = (grid.nodes.tolist(), grid.gpu_batch.tolist(), grid.accumulation_steps.tolist())
    return list(zip(*columns, strict=True))


class TestSplits:
    def test_a_batch_of_four_on_one_and_two_nodes(self) -> None:
        # 4 = 1 node x 4 x 1 = 1 x 2 x 2 = 1 x 1 x 4; on two nodes each GPU has 2 = 2 x 1 = 1 x 2.
        assert splits(ONE, (1, 2), (4, 4)) == [(1, 4, 1), (1, 2, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2)]

    def test_a_node_with_two_gpus_halves_what_each_takes(self) -> None:
        assert splits(TWO, (1, 1), (4, 4)) == [(1, 2, 1), (1, 1, 2)]

    def test_nodes_that_cannot_share_the_batch_evenly_have_no_split(self) -> None:
        # Three GPUs cannot share 4 samples; between 4 and 6 they can do 2 each.
        assert splits(ONE, (3, 3), (4, 4)) == []
        assert splits(ONE, (3, 3), (4, 6)) == [(3, 2, 1), (3, 1, 2)]

    def test_per_gpu_only_powers_of_two_half_as_much_again_and_both_ends(self) -> None:
        # Between 5 and 13: 6 = 4 + 2, 8, 12 = 8 + 4, and the ends. Of one micro-step each.
        shares = [batch for nodes, batch, steps in splits(ONE, (1, 1), (5, 13)) if steps == 1]
        assert shares == [5, 6, 8, 12, 13]
        assert [batch for _, batch, steps in splits(ONE, (1, 1), (1, 8)) if steps == 1] == [1, 2, 3, 4, 6, 8]

    def test_at_most_64_micro_steps(self) -> None:
        # 192 = 64 x 3: 64 micro-steps are the most of its divisors that are tried, 96 and 192 are not.
        assert max(steps for _, _, steps in splits(ONE, (1, 1), (192, 192))) == 64
        assert max(steps for _, _, steps in splits(ONE, (1, 1), (64, 64))) == 64
        assert max(steps for _, _, steps in splits(ONE, (1, 1), (130, 130))) == 26  # of 1, 2, 5, 10, 13, 26, 65, 130


@pytest.mark.parametrize(
    ("checkpoint_gib", "volume_gib"),
    [(0, 200), (10, 220), (0.25, 201), (0.5, 201), (0.75, 202)],  # 200 GiB and two checkpoints, in whole GiB
)
def test_a_root_volume_has_room_for_two_checkpoints(checkpoint_gib: float, volume_gib: int) -> None:
    assert root_volume_gib(checkpoint_gib * GIB) == volume_gib


class TestOffers:
    def offers(self, *regions: str, instance_type: InstanceType = ONE) -> dict[str, Offers]:
        return dict(offers_by_market(CATALOG, instance_type, regions, 10.0 * GIB))

    def test_zones_are_ordered_by_their_spot_price_those_without_last(self) -> None:
        found = self.offers("near", "far")
        assert found["spot"].zones == ("far-az1", "near-az2", "near-az1")
        assert found["spot"].node_usd.tolist() == [0.3, 0.4, 0.5]
        assert found["spot"].on_demand_usd.tolist() == [0.9, 1.0, 1.0]
        assert found["spot"].interruption_class == (3, 1, 1)
        assert found["on_demand"].zones == ("far-az1", "near-az2", "near-az1", "near-az3")
        assert found["on_demand"].node_usd.tolist() == [0.9, 1.0, 1.0, 1.0]
        assert (found["on_demand"].market, found["spot"].market) == ("on_demand", "spot")

    def test_equal_prices_go_by_region_and_zone(self) -> None:
        alike = catalog(
            offer("g1.one", "near", 1.0, {"near-az2": 0.5, "near-az1": 0.5, "near-az4": None, "near-az3": None}),
            offer("g1.one", "far", 1.0, {"far-az9": 0.5}),
        )
        found = offers_by_market(alike, ONE, ("near", "far"), 0.0)["on_demand"]
        assert found.zones == ("far-az9", "near-az1", "near-az2", "near-az3", "near-az4")

    def test_only_the_regions_asked_for(self) -> None:
        assert self.offers("near")["on_demand"].regions == ("near", "near", "near")
        assert len(self.offers("far")["spot"]) == 1

    def test_no_spot_without_an_on_demand_price(self) -> None:
        found = self.offers("near", "far", instance_type=TWO)
        assert found["spot"].zones == found["on_demand"].zones == ("near-az1",)
        nowhere = self.offers("far", instance_type=TWO)
        assert (len(nowhere["spot"]), len(nowhere["on_demand"])) == (0, 0)
        assert len(self.offers("near", instance_type=PRO)["spot"]) == 0

    def test_storage_is_the_volumes_of_the_nodes_and_two_checkpoints(self) -> None:
        # Near: a volume of 220 GiB x $0.0001 = $0.022 an hour; 20 GiB of checkpoints x $0.00002 = $0.0004. Far: twice.
        found = self.offers("near", "far")["spot"]
        assert found.volume_usd_per_node == pytest.approx([0.044, 0.022, 0.022])
        assert found.checkpoint_usd == pytest.approx([0.0008, 0.0004, 0.0004])
        # Three nodes: 3 x 0.044 + 0.0008 far, 3 x 0.022 + 0.0004 near.
        assert found.storage_usd(np.array([3])) == pytest.approx(np.array([[0.1328, 0.0664, 0.0664]]))

    def test_nodes_cost_their_number_times_the_price(self) -> None:
        found = self.offers("near", "far")["spot"]
        assert found.base_usd(np.array([2, 0])) == pytest.approx(np.array([[1.8, 2.0, 2.0], [0.0, 0.0, 0.0]]))
        assert found.spot_usd(np.array([3])) == pytest.approx(np.array([[0.9, 1.2, 1.5]]))

    def test_some_of_the_offers_keep_all_their_columns(self) -> None:
        some = self.offers("near", "far")["spot"].at([2, 0])
        assert (some.market, some.regions, some.zones) == ("spot", ("near", "far"), ("near-az1", "far-az1"))
        assert (some.node_usd.tolist(), some.on_demand_usd.tolist()) == ([0.5, 0.3], [1.0, 0.9])
        assert some.interruption_class == (1, 3)
        assert some.volume_usd_per_node == pytest.approx([0.022, 0.044])
        assert some.checkpoint_usd == pytest.approx([0.0004, 0.0008])


class TestQuotas:
    """A g1.one has 4 vCPUs, a p1.two 10."""

    def allowed(self, kind: InstanceType, fixed: list[int], taken_back: list[int], **quotas: object) -> list[bool]:
        constraints = job({"quotas": quotas}).constraints
        return within_quota(kind, np.array(fixed), np.array(taken_back), constraints).tolist()

    def test_without_quotas_everything_is_allowed(self) -> None:
        assert self.allowed(ONE, [1, 1000], [0, 1000]) == [True, True]

    def test_exactly_the_quota_is_allowed(self) -> None:
        assert self.allowed(ONE, [1, 2, 3], [0, 0, 0], on_demand={"g": 8}) == [True, True, False]
        assert self.allowed(ONE, [0, 0, 0], [1, 2, 3], spot={"g": 8}) == [True, True, False]

    def test_both_markets_must_keep_theirs(self) -> None:
        quotas = {"on_demand": {"g": 8}, "spot": {"g": 4}}
        assert self.allowed(ONE, [2, 2, 3], [1, 2, 1], **quotas) == [True, False, False]

    def test_a_quota_is_for_its_own_class(self) -> None:
        assert self.allowed(PRO, [9], [9], on_demand={"g": 0}, spot={"g": 0}) == [True]
        assert self.allowed(PRO, [2, 3], [0, 0], on_demand={"p": 20}) == [True, False]
        assert self.allowed(ONE, [1], [0], on_demand={"g": 0}) == [False]
