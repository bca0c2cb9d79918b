"""Step times of logs, worked out by hand, and what is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.catalog.snapshot import parse_catalog
from planner.inputs.logs.columns import logged_runs, parse_csv
from planner.inputs.logs.imported import Said, imported
from planner.inputs.logs.logged_run import LoggedRun, LoggedStep, StepTime, step_time
from planner.inputs.logs.trainer_state import is_trainer_state, trainer_state_run
from planner.inputs.measurements import ImportedFrom, Measurement
from planner.outside import assets

CATALOG = parse_catalog(assets.embedded_catalog().read_text(), file="snapshot")
SOURCE = ImportedFrom(format="CSV", file="log.csv", sha256="0" * 64)
NOTHING = Said(None, None, None, None, None, None)
HERE = Said("g5.12xlarge", 2, None, None, None, None)


def points(*pairs: tuple[float, float]) -> list[LoggedStep]:
    return [LoggedStep(*pair) for pair in pairs]


def test_the_median_between_log_points_without_the_first() -> None:
    """0.1 s a step, the first ten of them slow, ten others around a checkpoint."""
    log = points((10, 5.5), (20, 15.0), (30, 16.0), (40, 17.0), (50, 30.0), (60, 31.0), (70, 32.0))
    found = step_time(log, file="x")
    # From step 30 on, 20 after the first point: 17 - 16, 30 - 17, 31 - 30, 32 - 31, each over 10 steps.
    assert found == StepTime(pytest.approx(0.1), pytest.approx(1.3), pytest.approx(0.0), 4)


def test_the_first_twenty_steps_count_where_nothing_else_would_be_left() -> None:
    log = points((0, 0.0), (1, 9.0), (2, 9.5), (3, 9.9), (4, 10.2))
    assert step_time(log, file="x").p50 == pytest.approx(0.4)  # 0.5, 0.4 and 0.3


def test_an_evaluation_that_is_logged_at_its_step_is_not_in_the_next_interval() -> None:
    log = points((0, 0.5), (10, 1.0), (20, 2.0), (20, 8.0), (30, 9.0), (30, 15.0), (40, 16.0), (50, 17.0))
    assert step_time(log, file="x") == StepTime(pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.0), 3)


def test_the_spread_is_that_of_probes() -> None:
    log = points((0, 0.0), (20, 2.0), (30, 3.0), (40, 5.0), (50, 8.0), (60, 8.5))
    found = step_time(log, file="x")
    # 0.1, 0.2, 0.3 and 0.05 s a step: the median is 0.15, the distances from it 0.05, 0.05, 0.15, 0.1.
    assert found.p50 == pytest.approx(0.15)
    assert found.variation == pytest.approx(0.075 * 1.4826 / 0.15)


@given(
    st.floats(1e-3, 1e3),
    st.lists(st.integers(1, 50), min_size=5, max_size=30),
    st.floats(0, 1e6),
    st.randoms(use_true_random=False),
)
def test_a_steady_run_has_its_step_time_whatever_is_logged_when(seconds, lengths, start, random) -> None:
    steps = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    log = [LoggedStep(step, start + step * seconds + 1e-9) for step in steps]
    random.shuffle(log)
    assert step_time(log, file="x").p50 == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([], "do not grow"),
        ([(1, 1.0)], "do not grow"),
        ([(1, 5.0), (2, 4.0), (3, 3.0)], "do not grow"),
        ([(0, 0.0), (1, 1.5), (2, 2.5), (3, 3.5)], "3 intervals between log points; 3 are needed after the first"),
        ([(step, 2.0 * step) for step in range(30)], "whole seconds, too coarse for intervals of 2 s"),
    ],
)
def test_logs_from_which_no_step_time_follows(log: list[tuple[float, float]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        step_time(points(*log), file="x")


def test_whole_seconds_are_fine_enough_for_long_intervals() -> None:
    assert step_time(points(*((100 * n, 20.0 * n) for n in range(6))), file="x").p50 == pytest.approx(0.2)


def runs_of(text: str, **columns: str) -> list[LoggedRun]:
    return logged_runs(parse_csv(text, file="log.csv"), columns=columns, file="log.csv")


SERIES = "".join(f"{10 * n},{1_700_000_000_000 + 500 * n},4\n" for n in range(6))


def test_a_csv_of_log_points_in_milliseconds() -> None:
    (run,) = runs_of("step,timestamp,gpu_batch\n" + SERIES)
    assert (run.step_time.p50, run.gpu_batch, run.accumulation_steps) == (pytest.approx(0.05), 4, None)


def test_columns_that_only_the_user_knows() -> None:
    (run,) = runs_of("n,when,b\n" + SERIES, step="n", time="when", gpu_batch="b")
    assert (run.step_time.p50, run.gpu_batch) == (pytest.approx(0.05), 4)
    with pytest.raises(InputError, match="has no column nowhere; there are n, when, b"):
        runs_of("n,when,b\n" + SERIES, step="nowhere")


def test_dates_and_gaps() -> None:
    rows = "".join(f"{10 * n},2026-01-01T00:00:{n:02}.5Z,\n,,3\n{10 * n},,7\n" for n in range(6))
    (run,) = runs_of("step,time,loss\n" + rows)
    assert run.step_time.p50 == pytest.approx(0.1)


def test_the_trainers_own_steps_are_believed_before_wandb_calls() -> None:
    rows = "".join(f"{n},{100 * n},{0.5 + n}\n" for n in range(6))
    (run,) = runs_of("_step,train/global_step,_runtime\n" + rows)
    assert run.step_time.p50 == pytest.approx(0.01)


def test_a_csv_of_configurations_becomes_a_row_each() -> None:
    text = "instance_type,nodes,gpu_batch,accumulation_steps,step_seconds\n"
    runs = runs_of(text + "g5.xlarge,1,64,1,0.5\ng5.xlarge,2,64,1,0.7\ng5.xlarge,2,64,1,0.9\n")
    assert [run.step_time.p50 for run in runs] == [0.5, pytest.approx(0.8)]
    rows = [imported(run, NOTHING, SOURCE, catalog=CATALOG, precision="bf16", file="x") for run in runs]
    assert [(row.nodes, row.gpus_per_node, row.gpu_batch) for row in rows] == [(1, 1, 64), (2, 1, 64)]


def test_seconds_of_every_step_lose_their_warm_up() -> None:
    rows = "".join(f"{n},{9.0 if n < 20 else 0.25}\n" for n in range(40))
    (run,) = runs_of("step,step_seconds\n" + rows)
    assert run.step_time == StepTime(0.25, 0.25, 0.0, 20)


def test_throughput_monitor_counts_samples_and_micro_steps() -> None:
    head = "step,train/time,train/samples,train/batches\n"
    rows = "".join(f"{5 * n},{0.5 + n},{80 * n + 16},{10 * n + 2}\n" for n in range(1, 8))
    (run,) = runs_of(head + rows)
    assert (run.gpu_batch, run.accumulation_steps) == (8, 2)
    (uneven,) = runs_of(head + rows + "40,8.5,657,82\n")  # a smaller last batch
    assert (uneven.gpu_batch, uneven.accumulation_steps) == (None, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rows"),
        ("step,time\n", "has no rows"),
        ("loss\n1\n", "no column says the step of its rows: name it with --column step=NAME"),
        ("step\n1\n", "its rows: name it with --column time=NAME or, of a step, --column seconds=NAME, or train"),
        ("step,time\na,b\n", "no row has both step and time"),
        ("step,time\nnan,1\ninf,2\n", "no row has both step and time"),
        ("step,time\n1e20,1\n-2e25,2\n", "no row has both step and time"),
        ("step_seconds\nslow\n", "column step_seconds has no seconds in it"),
        ('step,time\n"' + "x" * 200_000 + '",1\n', "is no CSV"),
    ],
)
def test_a_csv_that_says_too_little(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        runs_of(text)


@given(st.text(alphabet='steptime,_"\n0123456789.-', max_size=200))
def test_any_text_is_a_run_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(InputError):
        assert runs_of("step,time\n" + text)


STATE: dict[str, Any] = {
    "global_step": 200,
    "train_batch_size": 8,
    "log_history": [
        {"step": 100, "eval_runtime": 4.0},
        {"step": 200, "eval_runtime": 6.0},
        {
            "step": 200,
            "train_runtime": 110.0,
            "train_samples_per_second": 232.727,
            "train_steps_per_second": 1.818,
        },
        {"step": 200, "eval_runtime": 50.0},
    ],
}


def test_trainer_state_is_a_mean_without_evaluations() -> None:
    assert is_trainer_state(STATE)
    run = trainer_state_run(json.dumps(STATE), file="x")
    assert run.step_time == StepTime(0.5)  # (110 - 4 - 6) / 200; the last evaluation came after the training
    assert run.gpu_batch == 8
    assert run.global_batch == pytest.approx(128, rel=1e-3)
    row = imported(run, HERE, SOURCE, catalog=CATALOG, precision="bf16", file="x")
    assert (row.gpus_per_node, row.accumulation_steps, row.batch_source) == (4, 2, "imported")  # 128 = 2 x 4 x 8 x 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_history": STATE["log_history"][:2]}, r"save it with trainer\.save_state\(\) after training"),
        ({"log_history": [STATE["log_history"][2]] * 2}, "of several trainings"),
        ({"global_step": 199}, "199 steps: 200 are needed"),
        ({"global_step": "many"}, "0 steps"),
        ({"log_history": ["x", {"train_runtime": True}]}, "does not say how long"),
    ],
)
def test_trainer_states_that_say_too_little(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        trainer_state_run(json.dumps(STATE | change), file="x")


def test_another_cluster_than_the_one_that_ran_is_noticed() -> None:
    run = trainer_state_run(json.dumps(STATE), file="x")
    with pytest.raises(InputError, match="128 samples in a step, no multiple of 3 x 4 GPUs at batch 8"):
        imported(run, HERE._replace(nodes=3), SOURCE, catalog=CATALOG, precision="bf16", file="x")


LOGGED = LoggedRun(step_time=StepTime(0.5, 0.6, 0.01, 9), gpu_batch=64, accumulation_steps=2)


def row_of(run: LoggedRun, said: Said) -> Measurement:
    return imported(run, said, SOURCE, catalog=CATALOG, precision="bf16", file="log")


def test_what_options_and_log_say_together() -> None:
    row = row_of(LOGGED, HERE)
    assert (row.instance_type, row.nodes, row.gpus_per_node, row.gpu_batch) == ("g5.12xlarge", 2, 4, 64)
    assert (row.accumulation_steps, row.precision, row.step_seconds) == (2, "bf16", 0.5)
    assert (row.step_seconds_p90, row.window_variation, row.windows) == (0.6, 0.01, 9)
    assert (row.imported_from, row.run_key) == (SOURCE, None)
    assert row_of(LOGGED, HERE._replace(gpus_per_node=1, precision="fp16")).gpus_per_node == 1
    unsaid = LoggedRun(step_time=StepTime(0.5))
    said = HERE._replace(gpu_batch=32, accumulation_steps=4)
    assert (row_of(unsaid, said).gpu_batch, row_of(unsaid, said).accumulation_steps) == (32, 4)


@pytest.mark.parametrize(
    ("run", "said", "words"),
    [
        (LOGGED, NOTHING, "log: say where it ran: --instance-type"),
        (LOGGED, HERE._replace(nodes=None), "log: say where it ran: --nodes"),
        (LOGGED, HERE._replace(instance_type="local"), "say on how many: --gpus-per-node"),
        (LOGGED, HERE._replace(instance_type="g5.12xlager"), "did you mean g5.12xlarge"),
        (LOGGED, HERE._replace(gpu_batch=32), "says gpu_batch 64, and --gpu-batch says 32"),
        (LOGGED, HERE._replace(accumulation_steps=1), "says accumulation_steps 2, and --accumulation-steps says 1"),
        (LoggedRun(step_time=StepTime(0.5)), HERE, "says no batch of one GPU: add --gpu-batch"),
        (
            LoggedRun(step_time=StepTime(0.5), gpu_batch=8),
            HERE,
            "how many batches one optimizer step takes: add --accumulation-steps",
        ),
        (
            LoggedRun(step_time=StepTime(0.5), batch_hint="; batch_size is 32, but of one GPU or of all?"),
            HERE,
            "batch_size is 32, but of one GPU or of all",
        ),
        (LoggedRun(step_time=StepTime(1e-9), gpu_batch=8, accumulation_steps=1), HERE, "step_seconds: "),
    ],
)
def test_what_is_refused(run: LoggedRun, said: Said, words: str) -> None:
    with pytest.raises(InputError, match=words):
        row_of(run, said)


def test_a_batch_size_of_whom_is_not_believed() -> None:
    (run,) = logged_runs(
        parse_csv("step,time\n" + "".join(f"{n},{n + 0.5}\n" for n in range(9)), file="x"),
        columns={},
        settings={"batch_size": "32", "gradient_accumulation_steps": 2},
        file="x",
    )
    assert (run.gpu_batch, run.accumulation_steps) == (None, 2)
    assert run.batch_hint == "; batch_size is 32, but of one GPU or of all?"


@pytest.mark.parametrize(
    "text",
    [
        "gpu_batch;accumulation_steps;step_seconds\n8;1;0.25\n",
        '"gpu_batch";"accumulation_steps";"step_seconds"\n"8";"1";"0.25"\n',
        '"gpu_batch", "accumulation_steps", "step_seconds"\n"8", "1", "0.25"\n',
    ],
)
def test_semicolons_and_quoted_numbers_are_read(text: str) -> None:
    (run,) = logged_runs(parse_csv(text, file="log.csv"), columns={}, file="log.csv")
    assert (run.gpu_batch, run.accumulation_steps, run.step_time.p50) == (8, 1, 0.25)


@pytest.mark.parametrize("text", ["gpu_batch;step_seconds\n8;0,25\n", 'gpu_batch,step_seconds\n8,"1,250"\n'])
def test_a_number_with_a_comma_is_not_guessed(text: str) -> None:
    with pytest.raises(InputError, match=r"column step_seconds says .*: write numbers without a comma"):
        logged_runs(parse_csv(text, file="log.csv"), columns={}, file="log.csv")


def test_more_nodes_than_a_job_may_have_are_refused() -> None:
    text = "gpu_batch,accumulation_steps,step_seconds\n8,1,0.25\n"
    (run,) = logged_runs(parse_csv(text, file="log.csv"), columns={}, file="log.csv")
    far = HERE._replace(nodes=99_999)
    with pytest.raises(InputError, match=r"log.csv: 99,999 nodes: scav plans up to 1,024"):
        imported(run, far, SOURCE, catalog=CATALOG, precision="bf16", file="log.csv")
