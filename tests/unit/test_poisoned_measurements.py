"""Measurements that cannot be true are refused or named, and never averaged in."""

from __future__ import annotations

import numpy as np
import pytest
from test_step_time_laws import KIND, PROBES, fitted, predict, probe, width

from planner.errors import InputError
from planner.inputs.measurements import parse_measurements
from planner.models.step_time.rows import Placements, measured_rows

CLEAN = predict(fitted(), [1, 4], [64, 64])


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "0", "-0.3", "1e12", "1e-9", '"fast"', "null"])
def test_impossible_seconds_are_refused_with_their_line(seconds: str) -> None:
    good = PROBES[0].model_dump_json()
    bad = good.replace('"step_seconds":0.14', f'"step_seconds":{seconds}')
    assert bad != good
    with pytest.raises(InputError, match=r"probes\.jsonl:2.*step_seconds"):
        parse_measurements(f"{good}\n{bad}\n", file="probes.jsonl")


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
def test_columns_refuse_them_too(seconds: float) -> None:
    one = np.array([1])
    placement = Placements(nodes=one, workers=one, most_per_node=one, gpu_batch=one, accumulation_steps=one)
    with pytest.raises(ValueError, match="positive"):
        measured_rows(placement, np.array([seconds]), None)


def test_milliseconds_among_seconds_are_named_and_left_out() -> None:
    model = fitted([*PROBES, probe(1, 32, 230.0)])
    assert "used without 230 s per step on 1 x g5.12xlarge with 32 samples per GPU" in model.warnings_[0]
    assert "as milliseconds for seconds would be" in model.warnings_[0]
    assert predict(model, [1, 4], [64, 64]).p50 == pytest.approx(CLEAN.p50, rel=1e-9)


@pytest.mark.parametrize("seconds", [1e-5, 50.0, 1e6])
def test_absurd_outliers_are_named_and_left_out(seconds: float) -> None:
    model = fitted([*PROBES, probe(1, 32, seconds)])
    assert len(model.warnings_) == 1
    assert predict(model, [1, 4], [64, 64]).p50 == pytest.approx(CLEAN.p50, rel=1e-9)


def test_a_merely_odd_window_moves_little_and_widens_the_interval() -> None:
    model = fitted([*PROBES, probe(1, 64, 1.1)])
    assert "disagree" in model.warnings_[0]
    odd = predict(model, [4], [64])
    assert odd.p50[0] == pytest.approx(CLEAN.p50[1], rel=0.35)
    assert width(odd) > CLEAN.p95[1] / CLEAN.p05[1]


@pytest.mark.parametrize("factor", [1e-3, 100.0, 1000.0])
def test_a_single_probe_is_held_against_the_data_sheet(factor: float) -> None:
    model = fitted([PROBES[0].model_copy(update={"step_seconds": factor * PROBES[0].step_seconds})])
    assert len(model.warnings_) == 1
    assert "what the data sheet says" in model.warnings_[0]
    assert model.types_ == {}


def test_everything_in_milliseconds_is_said() -> None:
    model = fitted([row.model_copy(update={"step_seconds": 1000 * row.step_seconds}) for row in PROBES])
    assert any("check their units" in warning for warning in model.warnings_)


def test_a_thousand_duplicates_are_named_and_count_as_a_few() -> None:
    model = fitted([*PROBES, *[probe(1, 16, 0.16)] * 1000])
    assert any("1000 equal measurements of 0.16 s" in warning for warning in model.warnings_)
    assert model.rows_[KIND].weight.max() <= 4
    assert predict(model, [1, 4], [64, 64]).p50 == pytest.approx(CLEAN.p50, rel=0.1)


def test_more_exposed_communication_than_step_is_not_believed() -> None:
    model = fitted([*PROBES, probe(4, 16, 0.3, sync=0.5)])
    assert np.isnan(model.rows_[KIND].log_work).sum() == 3
    assert np.isfinite(predict(model, [4], [16]).p50).all()


def test_a_clean_file_has_no_warnings() -> None:
    assert fitted().warnings_ == ()
