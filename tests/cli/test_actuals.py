"""`scav actuals`: a plan held against logs whose figures are known by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Actuals = Callable[..., Result]


@pytest.fixture
def plan(workspace: Path) -> Any:
    return json.loads((workspace / "scav.plan.json").read_text())


@pytest.fixture
def actuals(run_scav: Callable[..., Result], workspace: Path, tmp_path: Path) -> Actuals:
    return lambda log, *options: run_scav("actuals", workspace, "--log", log, "--history", tmp_path / "past", *options)


@pytest.fixture
def write_log(tmp_path: Path, plan: Any) -> Callable[..., Path]:
    """Ten log points up to a share of the planned samples, at the planned pace times a factor."""

    def write(share: float, *, pace: float = 1.0, loss: Callable[[float], float] | None = None) -> Path:
        steps = share * plan["estimate"]["samples"]["p50"] / plan["choice"]["global_batch"]
        seconds = plan["estimate"]["step_seconds"]["p50"] * pace
        lines = ["step,elapsed,eval_loss,max_memory_allocated"]
        for part in range(1, 11):
            step = round(steps * part / 10)
            value = loss(part / 10 * share) if loss else 1.0
            lines.append(f"{step},{step * seconds},{value},{3 << 30}")
        path = tmp_path / "log.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def found(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_finished_run_is_held_against_its_plan(actuals: Actuals, write_log: Any, plan: Any, tmp_path: Path) -> None:
    report = found(actuals(write_log(1.0), "--format", "json"))
    assert report["state"] == "finished"
    rows = {row["name"]: row for row in report["compared"]}
    batch, step = plan["choice"]["global_batch"], plan["estimate"]["step_seconds"]["p50"]
    steps = round(plan["estimate"]["samples"]["p50"] / batch)
    assert rows["samples"]["actual"] == pytest.approx(steps * batch)
    assert rows["hours"]["actual"] == pytest.approx(steps * step / 3600, rel=1e-4)
    assert rows["usd"]["actual"] == pytest.approx(rows["hours"]["actual"] * plan["choice"]["hourly_usd"])
    assert rows["step_seconds"]["actual"] == pytest.approx(step, rel=1e-4)
    assert rows["step_seconds"]["held"]
    assert rows["samples"]["held"]
    assert report["notes"][0].startswith("the job's target is a number of samples")
    ledger = tmp_path / "past" / "outcomes.jsonl"
    assert json.loads(ledger.read_text())["run_id"] == plan["run_id"]


def test_what_the_user_says_of_hours_and_dollars_goes_first(actuals: Actuals, write_log: Any) -> None:
    report = found(actuals(write_log(1.0), "--hours", "1000h", "--usd", "$7", "--format", "json"))
    rows = {row["name"]: row for row in report["compared"]}
    assert (rows["hours"]["actual"], rows["usd"]["actual"]) == (1000, 7)
    assert not rows["hours"]["held"]


def test_the_same_log_counts_once_and_others_add_up(actuals: Actuals, write_log: Any, tmp_path: Path) -> None:
    for _ in range(2):
        assert found(actuals(write_log(1.0), "--format", "json"))["coverage"]["jobs"] == 1
    report = found(actuals(write_log(1.0, pace=50.0), "--format", "json"))
    assert report["coverage"]["jobs"] == 2
    assert report["coverage"]["by_figure"]["step_seconds"] == [1, 2]
    assert len((tmp_path / "past" / "outcomes.jsonl").read_text().splitlines()) == 2
    text = actuals(write_log(1.0, pace=50.0)).stdout
    assert "90 % intervals held in" in text
    assert "over 2 finished jobs" in text
    assert "step 1 of 2" in text


def test_nothing_is_recorded_unasked(actuals: Actuals, write_log: Any, tmp_path: Path) -> None:
    assert actuals(write_log(1.0), "--no-record").exit_code == 0
    assert actuals(write_log(0.4)).exit_code == 0
    assert not (tmp_path / "past").exists()


def test_a_running_job_goes_on_at_its_pace(actuals: Actuals, write_log: Any, plan: Any) -> None:
    report = found(actuals(write_log(0.4, pace=2.0), "--format", "json"))
    assert report["state"] == "running"
    assert report["share"] == pytest.approx(0.4, rel=0.01)
    seconds = 2 * plan["estimate"]["step_seconds"]["p50"]
    hours = seconds * plan["estimate"]["samples"]["p95"] / plan["choice"]["global_batch"] / 3600
    assert report["ahead"]["hours"]["p95"] == pytest.approx(hours, rel=0.01)
    assert report["ahead"]["usd"]["p95"] == pytest.approx(hours * plan["choice"]["hourly_usd"], rel=0.01)
    assert all(row["held"] is None for row in report["compared"] if row["name"] in ("hours", "usd", "samples"))


def test_a_loss_that_flattens_above_its_target_is_said(actuals: Actuals, write_log: Any) -> None:
    log = write_log(0.4, loss=lambda share: 2.0 + 2.0 ** (-share * 100))
    report = found(actuals(log, "--target", "eval_loss<=1.2", "--format", "json"))
    assert report["loss"]["reached_probability"] < 0.9
    assert report["loss"]["alone_probability"] < 0.1
    assert report["ahead"]["samples"]["p95"] is None
    text = actuals(log, "--target", "eval_loss<=1.2").stdout
    assert "not reached unless something changes" in " ".join(text.split())


def test_a_target_that_is_reached_ends_the_run(actuals: Actuals, write_log: Any, plan: Any) -> None:
    log = write_log(0.5, loss=lambda share: 1.0 - share)
    report = found(actuals(log, "--target", "eval_loss<=0.61", "--format", "json"))
    assert report["state"] == "finished"
    assert report["loss"]["reached_at_samples"] == pytest.approx(0.4 * plan["estimate"]["samples"]["p50"], rel=0.01)


def test_markdown_and_text(actuals: Actuals, write_log: Any) -> None:
    markdown = actuals(write_log(0.4), "--format", "markdown").stdout
    assert "running, at 40 % of the planned samples" in markdown
    assert "|  | planned (p50) |" in markdown
    assert "p95 hours" in actuals(write_log(0.4)).stdout


def test_the_measured_step_serves_the_next_plan(
    actuals: Actuals, write_log: Any, plan: Any, tmp_path: Path, run_scav: Callable[..., Result]
) -> None:
    for _ in range(2):
        result = actuals(write_log(1.0, pace=1.5), "--job", tmp_path)
        assert result.exit_code == 0, result.stderr
    (line,) = (tmp_path / "measurements.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["step_seconds"] == pytest.approx(1.5 * plan["estimate"]["step_seconds"]["p50"], rel=1e-3)
    assert (row["instance_type"], row["nodes"]) == (plan["choice"]["instance_type"], plan["choice"]["node_count"])
    again = run_scav("plan", tmp_path, "--out", tmp_path / "again", "--json")
    assert json.loads(again.stdout)["evidence"]["probe_count"] == 1


def test_a_checkpoints_trainer_state_says_how_far_it_got(actuals: Actuals, plan: Any, tmp_path: Path) -> None:
    entries = [{"step": step, "epoch": 0.1, "loss": 3.0 - step / 100} for step in (10, 20, 30, 40)]
    state = {"global_step": 40, "log_history": entries, "train_batch_size": plan["choice"]["gpu_batch"]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    report = found(actuals(tmp_path / "trainer_state.json", "--hours", "1h", "--running", "--format", "json"))
    rows = {row["name"]: row["actual"] for row in report["compared"]}
    assert rows["samples"] == 40 * plan["choice"]["global_batch"]
    assert rows["hours"] == 1
    assert any(note.startswith("no step time: ") for note in report["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "eval_loss"), "Error: --target: is not METRIC<=VALUE or METRIC>=VALUE, as in eval_loss<=2.1"),
        (("--target", "eval_los<=1"), "log.csv: --target: logs no eval_los; did you mean eval_loss?"),
        (("--hours", "3"), "Error: --hours: '3' is not a duration; write 24h, 90min or 1d12h"),
        (("--column", "step=nowhere"), "log.csv: has no column nowhere"),
    ],
)
def test_bad_options_are_one_line(actuals: Actuals, write_log: Any, options: tuple[str, ...], message: str) -> None:
    result = actuals(write_log(0.4), *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_ledger_that_is_none_is_one_line(actuals: Actuals, write_log: Any, tmp_path: Path) -> None:
    (tmp_path / "past").mkdir()
    (tmp_path / "past" / "outcomes.jsonl").write_text('{"job": 1}\n{}\n')
    result = actuals(write_log(1.0))
    assert result.exit_code == 1
    assert "outcomes.jsonl:1: " in result.stderr
