"""Edges that small changes of the core showed to be untested, by hand (`make mutants`)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_world import CATALOG, TWO, candidate, floats, job
from test_sharded_step_time import WORKLOAD

from planner.inputs.huggingface.families import Configuration, shape_of
from planner.inputs.job.strategies import ParallelStrategy
from planner.inputs.job.transformer import TransformerShape
from planner.inputs.logs.columns import logged_progress
from planner.models import Configurations
from planner.models.bandwidth import effective_network
from planner.models.checkpoints import checkpoint_interval_seconds
from planner.models.convergence.laws import BELIEFS, laws
from planner.models.loss_curve import Curve
from planner.models.sharded_memory.model import ShardedMemoryModel
from planner.models.sharded_memory.peak import Parts, Peak
from planner.models.sharded_memory.stage import fullest_stages
from planner.models.sharded_step_time.distinct import distinct_rows
from planner.models.sharded_step_time.model import ShardedStepTimeModel
from planner.plan.actuals.comparison import _notes
from planner.plan.memory_use import _parts
from planner.plan.review.escaping import escaped
from planner.plan.review.page import _Alternatives, _Column
from planner.plan.review.strategy_entries import strategy_of
from planner.plan.run_state import NodeLife, Seen, _usd
from planner.plan.schema import parse_plan
from planner.plan.spot import simulated_case
from planner.probing.next_probe import Belief, ProbeSpace, _most_promising
from planner.probing.probe_clusters import node_price, promising
from planner.search.decision import Ruler

SHAPE = TransformerShape(layers=8, width=512, heads=8, feed_forward_width=2048, vocabulary=1000, sequence_length=128)
GIB = 2**30


class TestProbes:
    INPUTS: Any = SimpleNamespace(job_file=SimpleNamespace(job=job()), catalog=CATALOG, measurements=())

    def test_clusters_are_in_the_region_of_the_best(self) -> None:
        rows = [
            candidate(usd=10.0, region="far", zone="far-az1"),
            candidate(usd=11.0, instance_type="g1.two"),
            candidate(usd=12.0, instance_type="p1.two", region="far", zone="far-az1"),
        ]
        survey: Any = SimpleNamespace(found=SimpleNamespace(finalists=rows[::-1]))
        assert promising(self.INPUTS, survey) == [rows[0], rows[2]]

    def test_a_node_s_price_has_its_volume_however_it_is_bought(self) -> None:
        on_demand = node_price(self.INPUTS, candidate(), spot=False)
        spot = node_price(self.INPUTS, candidate(), spot=True)
        assert on_demand is not None
        assert spot is not None
        volume = on_demand.usd - 1.0
        assert volume > 0.005  # $0.0001 a GiB
        assert (spot.usd, spot.highest_usd) == pytest.approx((0.5 + volume, 1.0 + volume))

    def test_what_can_only_be_chosen_is_not_the_first_probe(self) -> None:
        space = ProbeSpace(
            instance_type=np.array([0, 0]),
            nodes=np.array([1, 16]),
            gpus=np.array([1, 16]),
            gpu_batch=np.array([8, 8]),
            hourly_usd=floats(1.0, 16.0),
            measurable=np.array([True, False]),
            startup_seconds=300.0,
        )
        belief = Belief(
            log_value=floats(5.0, 1.0),
            log_sd=floats(0.2, 0.2),
            job_usd=floats(1e6, 1e6),
            probe_seconds=floats(60.0, 60.0),
            measured={},
        )
        visit = _most_promising(space, belief, ())
        assert visit is not None
        assert visit.rows == (0,)


class TestShardedModels:
    def test_distinct_rows_may_be_below_zero(self) -> None:
        first, row = distinct_rows((np.array([-3, 7, -3, 2]), np.array([1, 1, 1, 0])))
        assert (first.tolist(), row.tolist()) == ([0, 3, 1], [0, 2, 0, 1])

    def test_of_no_configuration_nothing_is_predicted(self) -> None:
        one = Configurations.of(CATALOG, TWO, nodes=1, gpu_batch=1)
        found = ShardedStepTimeModel(WORKLOAD, CATALOG).fit(()).predict(one.at(np.array([False])))
        assert (len(found.p50), len(found.extrapolated)) == (0, 0)

    def test_both_ends_and_the_first_of_each_size_between(self) -> None:
        """Two blocks in each of four stages: the output layer is a sixth of a block."""
        assert fullest_stages(SHAPE, 4) == [0, 1, 3]
        assert fullest_stages(SHAPE, 1) == [0]
        assert fullest_stages(SHAPE, 2) == [0, 1]

    def test_parts_that_are_not_there_take_nothing(self) -> None:
        assert Parts().total == 0.0
        assert Parts(weights=3.0, logits=2.0).total == 5.0

    def test_the_largest_part_is_named_first_and_small_ones_are_not(self) -> None:
        parts = Parts(weights=2.0 * GIB, optimizer=8.0 * GIB, activations=5.0 * GIB, load=0.1 * GIB)
        assert _parts(Peak("optimizer step", 0, parts)) == "optimizer state 8.0, activations 5.0, weights 2.0"

    def test_biases_and_positions_are_not_counted(self) -> None:
        # 4 x 512^2 of attention, 3 x 512 x 2,048 of gated feed-forward layers, two norms a block and one at the end.
        block = 4 * 512**2 + 3 * 512 * 2048 + 2 * 512
        counted = SHAPE.counted
        assert counted.parameters == 8 * block + 512 + 2 * 1000 * 512
        assert [counted.query_bias, counted.output_bias, counted.mlp_bias] == [False] * 3


def test_an_all_reduce_of_no_time_was_not_timed() -> None:
    # 1 MB in 2 ms and 9 MB in 10 ms: a millisecond of latency, then 1 GB/s.
    moved, seconds = floats(1e6, 9e6), floats(2e-3, 10e-3)
    plain = effective_network(moved, seconds)
    with_nothing = effective_network(np.append(moved, 5e6), np.append(seconds, 0.0))
    assert plain == with_nothing
    assert plain is not None
    assert (plain.latency_seconds, plain.bytes_per_second) == pytest.approx((1e-3, 1e9))


def test_checkpoints_are_an_hour_apart_at_most_where_saving_is_short() -> None:
    assert checkpoint_interval_seconds(1.0, 1e9) == 3600.0


def test_critical_batches_are_believed_as_far_as_five_deviations() -> None:
    usual, _ = laws(64.0, 128.0, None)
    assert usual.parameter[0] == pytest.approx(-7.0)  # math.log(18) - 5 x 1.1 is not as far
    assert usual.parameter[-1] == pytest.approx(math.log(18.0) + 5 * 1.1)
    unsure, _ = laws(64.0, 128.0, None, beliefs=replace(BELIEFS, critical_log_sd=3.0))
    assert unsure.parameter[[0, -1]] == pytest.approx([math.log(18.0) - 15, math.log(18.0) + 15])


def test_a_log_has_every_number_that_is_neither_step_nor_time() -> None:
    records = [{"step": "10", "loss": "2.5", "note": "warm"}, {"step": "20", "loss": "2.0", "note": ""}]
    found = logged_progress(records, columns={}, file="log.csv")
    assert found.values == {"loss": ((10.0, 2.5), (20.0, 2.0))}


def test_two_thousand_characters_are_shown_and_one_more_is_not() -> None:
    assert escaped("a" * 2000) == "a" * 2000
    assert escaped("a" * 2001) != "a" * 2001


def test_a_table_as_wide_as_the_terminal_keeps_its_columns() -> None:
    table = _Alternatives.__new__(_Alternatives)
    table.rows = [("4 x a", "12", "why")]
    table.columns = [_Column("cluster", 0, "l", 0), _Column("batch", 1, "r", 1)]
    width = table._width(table.columns)
    assert width == 3 + 7 + 5 + 4
    assert table._that_fit(width) == table.columns
    assert table._that_fit(width - 1) == table.columns[:1]


def test_in_closed_form_nothing_is_simulated() -> None:
    """Though there are markets to simulate on."""
    inputs: Any = SimpleNamespace(job_file=SimpleNamespace(job=job()))
    survey: Any = SimpleNamespace(predictors=SimpleNamespace(spot_markets=object()))
    row = candidate()
    ruler = Ruler(inputs=inputs, survey=survey, exact=True)
    assert ruler.measured(row).candidate is row
    assert ruler.known == {}


def test_a_strategy_in_words_has_its_micro_steps() -> None:
    choice: Any = SimpleNamespace(
        strategy=ParallelStrategy(sharding="fsdp"), node_count=2, gpus_per_node=8, gpu_batch=4, accumulation_steps=3
    )
    assert strategy_of(choice) == "FSDP over 16, micro-batch 4 x 3"


def test_a_run_pays_its_nodes_for_their_lives_and_memory_nodes_and_storage_by_the_hour() -> None:
    plan: Any = SimpleNamespace(
        choice=SimpleNamespace(on_demand_count=1, checkpoint_tier=SimpleNamespace(hourly_usd=0.3)),
        spot=SimpleNamespace(node_on_demand_usd=1.0, node_spot_usd=0.4, storage_hourly_usd=0.02),
    )
    nodes = [NodeLife(instance_id="i-1", began=0.0, spot=False), NodeLife(instance_id="i-2", began=3600.0, spot=True)]
    assert _usd(plan, Seen(now=7200.0, capacity=2, nodes=nodes), 2.0) == pytest.approx(2 * 1.0 + 0.4 + 2 * 0.32)


def test_a_plan_is_simulated_again_with_the_times_that_it_says() -> None:
    file = Path(__file__).parents[1] / "golden" / "check" / "scav.plan.json"
    plan = parse_plan(file.read_text(encoding="utf-8"), file="scav.plan.json")
    case = simulated_case(plan)
    assert plan.spot is not None
    assert case is not None
    said = (plan.spot.startup_seconds, plan.spot.save_seconds, plan.spot.restart_seconds)
    assert (case.startup_hours * 3600, case.save_hours * 3600, case.restart_hours * 3600) == pytest.approx(said)


def test_where_not_even_one_sample_fits_the_largest_batch_is_none() -> None:
    shape = SHAPE.model_copy(update={"layers": 96, "width": 12_288, "heads": 96, "feed_forward_width": 49_152})
    workload = job(transformer=shape.model_dump(), parameters=None, flops_per_sample=None).workload
    model = ShardedMemoryModel(workload, shape, CATALOG, 0.95).fit(())
    assert model.largest_batch(TWO, 1) == 0


def test_an_output_layer_of_its_own_is_counted_too() -> None:
    keys = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    tied, own = (
        shape_of(Configuration(keys={**keys, "tie_word_embeddings": tied}, file="config.json")).parameters
        for tied in (True, False)
    )
    assert (tied, own - tied) == (124_439_808, 50257 * 768)


def test_two_values_of_a_metric_are_no_forecast() -> None:
    run: Any = SimpleNamespace(curve=Curve(floats(10.0, 20.0), floats(3.0, 2.5)))
    target: Any = SimpleNamespace(metric="loss", value=1.0, falls=True)
    few, ended = _notes(SimpleNamespace(), run, target, None)  # type: ignore[arg-type]
    assert few == "2 values of loss: a forecast needs 3"
    assert "ended before its target" in ended
