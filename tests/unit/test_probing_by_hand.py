"""What a further probe is worth, what left-out probes show and what limits a fit: a few rows, worked out by hand."""

from __future__ import annotations

import math
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_world import CATALOG, candidate, column, floats, job

from planner.columns import Quantiles
from planner.inputs.measurements import Measurement
from planner.models.configurations import Configurations
from planner.models.fitted import fit_models
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.probing.further_probe import FurtherProbe, expected_improvement, further_probe
from planner.probing.leave_out import HeldOut, error_table, left_out_sets, mean_error
from planner.probing.limits import accuracy_limits

STANDARD = NormalDist()


class TestExpectedImprovement:
    def test_what_is_known_exactly_saves_what_it_is_below(self) -> None:
        assert expected_improvement(np.log(floats(80.0, 100.0, 120.0)), np.zeros(3), 100.0) == pytest.approx(
            [0.2, 0, 0]
        )

    def test_a_guess_as_good_as_the_best_saves_by_its_luck(self) -> None:
        # Median 1 and best 1, log deviation s: the put of Black and Scholes, 1/2 - exp(s^2 / 2) N(-s).
        s = 0.5
        expected = 0.5 - math.exp(s * s / 2) * STANDARD.cdf(-s)
        assert expected_improvement(floats(0.0), floats(s), 1.0) == pytest.approx([expected])

    def test_by_numbers(self) -> None:
        # The mean of max(1 - x / 2, 0) over log-normal x around 3 with deviation 0.7, added up.
        z = np.linspace(-10, 10, 400_001)
        values = np.maximum(1 - 3 * np.exp(0.7 * z) / 2, 0) * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        found = expected_improvement(np.log(floats(3.0)), floats(0.7), 2.0)
        assert found == pytest.approx([float(np.trapezoid(values, z))], rel=1e-4)

    def test_far_behind_it_is_nothing_and_never_less(self) -> None:
        assert expected_improvement(floats(1e6, 20.0), floats(0.1, 0.1), 1.0).tolist() == [0.0, 0.0]


class Steps:
    """Step times as they are said: seconds and log deviation by instance type; no rows unless given."""

    def __init__(self, said: dict[str, tuple[float, float]], rows: dict[str, MeasuredRows] | None = None) -> None:
        self.said, self.rows_ = said, rows or {}

    def predict(self, one: Configurations) -> Any:
        seconds, log_sd = self.said[one.instance_type.name]
        spread = math.exp(1.6448536269514722 * log_sd)
        return column(seconds / spread, seconds, seconds * spread)


def models(said: dict[str, tuple[float, float]], rows: dict[str, MeasuredRows] | None = None) -> Any:
    steps = Steps(said, rows)
    overheads = SimpleNamespace(startup_seconds=300.0)
    return SimpleNamespace(
        step_time=steps,
        sharded_step_time=None,
        probed_types=tuple(steps.rows_),
        step_seconds=steps.predict,
        overheads=overheads,
    )


SAID = {"g1.one": (0.2, 0.0), "g1.two": (0.1, 0.5)}
CHOICE = candidate(usd=1000.0)
OTHER = candidate(instance_type="g1.two", usd=Quantiles(500.0, 1000.0, 2000.0), gpu_batch=2, nodes=6, global_batch=24)
OWN_SHARE = 0.19 / math.hypot(0.26, 0.19)  # of a data sheet's error, what differs between types


def found(*rows: Any, said: Any = None, known: Any = None, **constraints: Any) -> FurtherProbe | None:
    return further_probe(job(constraints), CATALOG, models(said or SAID, known), (CHOICE, *rows), CHOICE)


class TestFurtherProbe:
    def test_the_one_that_may_beat_the_choice(self) -> None:
        # As good as the choice, give or take the type's own part of 0.5: worth its luck on $1,000.
        sd = OWN_SHARE * 0.5
        gain = 0.5 - math.exp(sd * sd / 2) * STANDARD.cdf(-sd)
        probe = found(OTHER)
        assert probe is not None
        assert (probe.instance_type, probe.nodes, probe.gpu_batch) == ("g1.two", 4, 2)  # four nodes are enough
        assert (probe.gain, probe.gain_usd) == pytest.approx((gain, 1000 * gain))
        # Four nodes near: 4 x 2 + 4 x 0.022 + 0.0004 an hour; five minutes to start, a minute and 450 steps of 0.1 s.
        assert probe.price_usd == pytest.approx(8.0884 * (300 + 60 + 450 * 0.1) / 3600)
        assert probe.repays
        assert not probe.of_hours

    def test_once_something_was_measured_all_of_the_doubt_is_the_type_s_own(self) -> None:
        gain = 0.5 - math.exp(0.125) * STANDARD.cdf(-0.5)
        elsewhere = {"p1.two": one_row(1, 1)}
        probe = found(OTHER, known=elsewhere)
        assert probe is not None
        assert probe.gain == pytest.approx(gain)

    def test_what_was_measured_need_not_be_again(self) -> None:
        assert found(OTHER, known={"g1.two": one_row(4, 2)}) is None
        again = found(OTHER, known={"g1.two": one_row(4, 3)})
        assert again is not None
        assert (again.nodes, again.gpu_batch) == (4, 2)

    @pytest.mark.parametrize("constraints", [{"deadline": "9h"}, {"budget": "$999"}])
    def test_what_likely_breaks_a_limit_is_not_probed(self, constraints: dict[str, str]) -> None:
        assert found(OTHER, **constraints) is None
        assert found(OTHER, deadline="10h", budget="$1000") is not None

    def test_what_cannot_be_better_even_at_its_lower_end_is_not_probed(self) -> None:
        worse = candidate(instance_type="g1.two", usd=Quantiles(1000.0, 1500.0, 2000.0))
        assert found(worse) is None

    def test_the_choice_itself_where_it_may_turn_out_worse_than_the_next_best(self) -> None:
        # The choice's own doubt is 0.5, the next best costs exactly as much: whatever it turns out worse is saved.
        sure = {"g1.one": (0.2, 0.5), "g1.two": (0.1, 0.0)}
        probe = found(OTHER, said=sure)
        assert probe is not None
        assert probe.instance_type == "g1.one"
        sd = OWN_SHARE * 0.5
        call = math.exp(sd * sd / 2) * STANDARD.cdf(sd) - 0.5
        assert probe.gain == pytest.approx(call)
        # A third that is dearer, though it may be cheaper with luck, changes nothing of that.
        third = candidate(instance_type="p1.two", usd=Quantiles(500.0, 1500.0, 3000.0))
        beside = found(OTHER, third, said=sure | {"p1.two": (0.1, 0.0)})
        assert beside is not None
        assert (beside.instance_type, beside.gain) == ("g1.one", pytest.approx(call))

    def test_an_objective_in_hours(self) -> None:
        fast = candidate(instance_type="g1.two", hours=Quantiles(5.0, 10.0, 20.0), usd=5000.0)
        asked = job(objective="time")
        probe = further_probe(asked, CATALOG, models(SAID), (CHOICE, fast), CHOICE)
        assert probe is not None
        assert probe.of_hours
        assert probe.gain_usd == pytest.approx(probe.gain * 1000)


def one_row(nodes: int, batch: int) -> MeasuredRows:
    return rows_of((nodes, batch))


def rows_of(*table: tuple[int, int], seconds: list[float] | None = None) -> MeasuredRows:
    nodes, batch = (np.array(values) for values in zip(*table, strict=True))
    ones = np.ones_like(nodes)
    where = Placements(nodes=nodes, workers=nodes, most_per_node=ones, gpu_batch=batch, accumulation_steps=ones)
    return measured_rows(where, np.array(seconds or [1.0] * len(table)), None)


class TestLeavingOut:
    def sets(self, rows: MeasuredRows, most: int) -> list[list[tuple[int, int]]]:
        places = list(zip(rows.placements.nodes.tolist(), rows.placements.gpu_batch.tolist(), strict=True))
        return [[places[index] for index in left_out.tolist()] for left_out in left_out_sets(rows, most)]

    def test_each_alone_then_the_ends_that_several_share(self) -> None:
        rows = rows_of((1, 8), (1, 64), (2, 8), (2, 64))
        assert self.sets(rows, 24) == [[(1, 8)], [(1, 64)], [(2, 8)], [(2, 64)], [(2, 8), (2, 64)], [(1, 64), (2, 64)]]

    def test_an_end_that_one_row_has_alone_is_left_out_already(self) -> None:
        assert self.sets(rows_of((1, 8), (1, 16), (2, 4)), 24) == [[(1, 8)], [(1, 16)], [(2, 4)]]

    def test_an_end_that_all_share_is_none(self) -> None:
        assert self.sets(rows_of((1, 8), (1, 16)), 24) == [[(1, 8)], [(1, 16)]]

    def test_more_rows_than_refits_are_left_out_in_groups(self) -> None:
        rows = rows_of(*[(1, batch) for batch in range(1, 8)])
        groups = self.sets(rows, 3)
        assert [len(group) for group in groups] == [3, 2, 2]
        assert sorted(place for group in groups for place in group) == [(1, batch) for batch in range(1, 8)]
        assert len(self.sets(rows_of((1, 1), (1, 2), (1, 3)), 3)) == 3

    def held_out(self, model: str, measured: float, predicted: float, beyond: Any = "interpolation") -> HeldOut:
        return HeldOut(model, "g1.one", 1, 8, beyond, measured, Quantiles(predicted - 0.5, predicted, predicted + 0.5))

    def test_errors_are_relative_and_intervals_hold_their_ends(self) -> None:
        assert self.held_out("scav", 2.0, 1.5).error == pytest.approx(0.25)
        inside = [self.held_out("scav", measured, 2.0).inside for measured in (1.49, 1.5, 2.5, 2.51)]
        assert inside == [False, True, True, False]

    def test_a_table_by_model_with_interpolation_first(self) -> None:
        rows = [
            self.held_out("scav", 1.0, 1.2, "extrapolation"),
            self.held_out("scav", 1.0, 1.1),
            self.held_out("forest", 1.0, 2.0),
            self.held_out("scav", 1.0, 0.7),
        ]
        table = error_table(rows)
        assert [(row.model, row.beyond, row.probes, row.inside) for row in table] == [
            ("scav", "interpolation", 2, 2),
            ("forest", "interpolation", 1, 0),
            ("scav", "extrapolation", 1, 1),
        ]
        assert [row.error for row in table] == pytest.approx([0.2, 1.0, 0.2])
        assert mean_error(rows) == pytest.approx((0.2 + 0.1 + 0.3) / 3)
        assert mean_error(rows[2:3]) is None


def measured(nodes: int, batch: int, seconds: float = 0.1, kind: str = "g1.one") -> Measurement:
    return Measurement(
        instance_type=kind, nodes=nodes, gpus_per_node=1, gpu_batch=batch, precision="bf16", step_seconds=seconds
    )


class TestLimits:
    def said(self, *rows: Measurement, choice: Any = None, **workload: Any) -> list[str]:
        asked = job(**workload)
        fitted = fit_models(asked, CATALOG, rows)
        return accuracy_limits(asked, fitted, choice, convergence="from a wide prior", batch=4)

    def test_the_data_sheet_is_within_a_factor(self) -> None:
        # Of compute: 0.26, 0.19 and 0.1 together, at 95 of 100.
        factor = math.exp(1.6448536 * math.sqrt(0.26**2 + 0.19**2 + 0.1**2))
        expected = (
            f"no probe yet: step times are the data sheets', within a factor of {factor:.1f} and more on many nodes"
        )
        assert expected in self.said()

    def test_more_nodes_and_larger_batches_than_were_probed(self) -> None:
        assert self.said(measured(1, 2))[0].startswith("no probe of g1.one with more than 1 node: time on 4 is from")
        assert self.said(measured(2, 2))[0] == "no probe of g1.one with more than 2 nodes: time on 4 follows from fewer"
        assert not any("more than 4 nodes" in line for line in self.said(measured(4, 2)))
        # Twice the batch of 2 is the 4 that the job allows; twice 3 is not.
        fits = "no probe of g1.one with more than 2 samples per GPU, though 4 would fit"
        assert fits in self.said(measured(4, 2))
        assert not any("samples per GPU" in line for line in self.said(measured(4, 3)))

    def test_a_choice_that_nobody_probed(self) -> None:
        lines = self.said(measured(1, 2), choice=candidate(instance_type="g1.two"))
        expected = "no probe of g1.two, the present choice: its times follow from g1.one and data sheets"
        assert lines[1] == expected

    def test_where_most_of_the_doubt_lies(self) -> None:
        # At the reference batch samples are known to 8 %, the step time to a factor.
        assert self.said(choice=candidate())[0].endswith(
            "% of the doubt about the present choice's hours is about its step time, which probes narrow"
        )
        rows = [measured(1, 4, 0.1)] * 9
        far = candidate(gpu_batch=4, global_batch=4096)
        assert self.said(*rows, choice=far)[0].endswith(
            "is about samples to the target, which runs at other batch sizes narrow"
        )

    def test_probes_that_repeat_within_five_percent_are_not_named(self) -> None:
        # Two logs d apart have a variance of d^2 / 2; 1.645 times its root is the spread.
        for apart, named in ((0.04, False), (0.05, True)):
            lines = self.said(measured(4, 4, 0.1), measured(4, 4, 0.1 * math.exp(apart)))
            assert any("repeat only within" in line for line in lines) is named

    def test_samples_are_named_where_they_are_not_known(self) -> None:
        assert "samples to the target at batch 4, from a wide prior: -17 % to +21 %" in self.said()
