"""Predictions for named configurations are the search's own numbers."""

from __future__ import annotations

import pytest
from test_evaluation import CATALOG, JOB, PROBES, survey_of_the_job

from planner.errors import InputError
from planner.inputs.job.fields import CountRange
from planner.models.configurations import Configurations
from planner.plan.build import make_plan
from planner.plan.forecast import MOST_ROWS, Forecast, forecast, predict_one, sweep_batch, sweep_nodes
from planner.plan.forecast_request import ForecastRequest
from planner.search.decision import choose_candidate
from planner.search.every_candidate import evaluate

INPUTS, SURVEY = survey_of_the_job(PROBES)
KIND = CATALOG.instance_type_by_name["g5.12xlarge"]


def one(nodes: int) -> CountRange:
    return CountRange(nodes, nodes)


def test_every_finalist_is_evaluated_as_the_search_did() -> None:
    for row in SURVEY.found.finalists[::7]:
        kind = CATALOG.instance_type_by_name[row.instance_type]
        shape = {"nodes": row.nodes, "gpu_batch": row.gpu_batch, "accumulation_steps": row.accumulation_steps}
        configuration = Configurations.of(CATALOG, kind, **shape)
        where = (SURVEY.regions, SURVEY.predictors, row.market, row.on_demand_count)
        (found,) = evaluate(JOB, CATALOG, configuration, *where)
        measured = dict.fromkeys(("hours", "usd", "hours_limit", "usd_limit"))
        assert found._replace(**measured, losses=row.losses, fed=row.fed) == row._replace(**measured)
        assert found.hours == pytest.approx(row.hours)
        assert found.usd == pytest.approx(row.usd)


def test_the_plan_s_choice_is_predicted_as_the_plan_says() -> None:
    plan = make_plan(INPUTS, SURVEY)
    choice = choose_candidate(INPUTS, SURVEY).expected
    found = forecast(INPUTS, SURVEY, choice)
    for name in ("hours", "step_seconds", "samples"):
        for quantile in ("p05", "p50", "p95"):
            said = getattr(getattr(plan.estimate, name), quantile)
            assert getattr(getattr(found, name), quantile) == pytest.approx(said, rel=1e-5)
    assert found.parallel_efficiency == pytest.approx(plan.estimate.parallel_efficiency, rel=1e-5)
    assert found.statistical_efficiency == pytest.approx(plan.estimate.statistical_efficiency, rel=1e-5)


def test_a_global_batch_is_spread_over_all_gpus() -> None:
    found = predict_one(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=one(2), global_batch=one(1024)))
    assert found.global_batch == 1024
    assert 2 * 4 * found.gpu_batch * found.accumulation_steps == 1024


def test_both_batches_leave_the_micro_steps() -> None:
    asked = ForecastRequest(instance_type=KIND, nodes=one(2), gpu_batch=32, global_batch=one(1024))
    assert predict_one(INPUTS, SURVEY, asked).accumulation_steps == 4


def test_extrapolation_is_said_with_its_reason() -> None:
    asked = ForecastRequest(instance_type=KIND, nodes=one(8), gpu_batch=32)
    found = predict_one(INPUTS, SURVEY, asked)
    assert found.extrapolated
    assert found.why_extrapolated is not None
    assert found.why_extrapolated.startswith("8 nodes, probed up to 4")
    other = ForecastRequest(instance_type=CATALOG.instance_type_by_name["g5.xlarge"], nodes=one(1), gpu_batch=32)
    assert "g5.xlarge was never probed" in (predict_one(INPUTS, SURVEY, other).why_extrapolated or "")


def test_every_reason_goes_with_the_flag() -> None:
    rows = [*sweep_nodes(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=CountRange(1, 8))), *_batches()]
    assert all(row.extrapolated == (row.why_extrapolated is not None) for row in rows)


def test_sweeps_have_a_row_per_place_in_order_and_fit_a_terminal() -> None:
    rows = sweep_nodes(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=CountRange(1, 8)))
    assert [row.node_count for row in rows] == list(range(1, 9))
    long = sweep_nodes(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=CountRange(1, 64)))
    assert len(long) <= MOST_ROWS
    assert (long[0].node_count, long[-1].node_count) == (1, 64)
    batches = [row.global_batch for row in _batches()]
    assert batches == sorted(set(batches))


def _batches() -> list[Forecast]:
    return sweep_batch(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=one(2)))


def test_spot_is_cheaper_by_the_hour_and_less_sure() -> None:
    asked = ForecastRequest(instance_type=KIND, nodes=one(2), gpu_batch=64)
    sure = predict_one(INPUTS, SURVEY, asked)
    spot = predict_one(INPUTS, SURVEY, ForecastRequest(instance_type=KIND, nodes=one(2), gpu_batch=64, market="spot"))
    assert spot.usd.p50 / spot.hours.p50 < sure.usd.p50 / sure.hours.p50
    assert spot.usd.p95 / spot.usd.p50 > sure.usd.p95 / sure.usd.p50
    assert (spot.on_demand_count, sure.on_demand_count) == (1, 2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ForecastRequest(instance_type=KIND, nodes=one(4), global_batch=one(1000)),
            "1,000 cannot be spread evenly over 16 GPUs; 992 or",
        ),
        (
            ForecastRequest(instance_type=KIND, nodes=one(1), gpu_batch=48, global_batch=one(512)),
            "over 4 GPUs by 48 samples; 384 or 576",
        ),
        (ForecastRequest(instance_type=KIND, nodes=one(1), gpu_batch=100_000), "100,000 samples per GPU need about"),
    ],
)
def test_what_cannot_be_is_refused(asked: ForecastRequest, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        predict_one(INPUTS, SURVEY, asked)
