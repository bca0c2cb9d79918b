"""`scav measurements`: the list fits a terminal, dropping asks and keeps the rest, importing refuses in one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import planner.cli.measurements

A, B = "a" * 12, "b" * 12


def line(**fields: Any) -> str:
    plain = {"instance_type": "g5.12xlarge", "nodes": 1, "gpus_per_node": 4, "gpu_batch": 64, "precision": "bf16"}
    return json.dumps({**plain, "step_seconds": 0.2, **fields}) + "\n"


OLD = {"run_key": A, "run_command": "train.py --batch-size {gpu_batch}", "image_digest": "sha256:" + "1" * 64}
NEW = {"run_key": B, "run_command": "train.py --batch-size {gpu_batch} --compile", "software": {"torch": "2.13.0"}}
IMPORTED = {"format": "TensorBoard", "file": "events.out.tfevents.1794985580.vm.22697.0", "sha256": "c" * 64}
LINES = [
    line(**OLD),
    line(**OLD, nodes=2, gpu_batch=128, accumulation_steps=16, step_seconds=1234.5),
    line(**NEW, script_sha256="d" * 64),
    line(instance_type="u7inh-32tb.480xlarge", gpus_per_node=16, nodes=4096, gpu_batch=1_000_000),
    line(imported_from=IMPORTED, batch_source="imported"),
    line(instance_type="local", gpus_per_node=2),
]


@pytest.fixture
def measured(write_job: Callable[..., Path], tmp_path: Path) -> Path:
    write_job()
    file = tmp_path / "measurements.jsonl"
    file.write_text(LINES[0] + "\n" + "".join(LINES[1:]))
    return file


@pytest.mark.usefixtures("measured")
def test_the_list_fits_80_columns_and_says_what_is_used(run_scav: Callable[..., Result], update_golden: bool) -> None:
    result = run_scav("measurements", "list")
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    golden = Path(__file__).parents[1] / "golden" / "measurements.txt"
    if update_golden:
        golden.write_text(result.stdout)
    assert result.stdout == golden.read_text()


@pytest.mark.usefixtures("measured")
def test_the_list_as_json(run_scav: Callable[..., Result]) -> None:
    found = json.loads(run_scav("measurements", "list", "--json").stdout)["measurements"]
    assert [row["row"] for row in found] == [1, 2, 3, 4, 5, 6]
    assert found[0]["unused"] == "something else was run since"
    assert found[2]["unused"] is None
    assert found[2]["run_key"] == B


def test_no_measurements_is_said(write_job: Callable[..., Path], run_scav: Callable[..., Result]) -> None:
    write_job()
    assert run_scav("measurements", "list").stdout == "measurements.jsonl has no measurements.\n"
    assert json.loads(run_scav("measurements", "list", "--json").stdout)["measurements"] == []


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--row", "1"), [1, 2, 3, 4, 5]),
        (("--row", "2..4", "--row", "1"), [4, 5]),
        (("--run", "aaaa"), [2, 3, 4, 5]),
        (("--run", A, "--row", "2"), [0, 2, 3, 4, 5]),
        (("--instance-type", "g5.12xlarge"), [3, 5]),
        (("--older",), [2, 3, 4, 5]),
        (("--older", "--instance-type", "g5.12xlarge", "--row", "2..5"), [0, 2, 3, 4, 5]),
    ],
)
def test_what_is_dropped(
    measured: Path, run_scav: Callable[..., Result], options: tuple[str, ...], left: list[int]
) -> None:
    result = run_scav("measurements", "drop", ".", *options, "--yes")
    assert result.exit_code == 0, result.stderr
    assert measured.read_text().replace("\n\n", "\n").lstrip("\n") == "".join(LINES[number] for number in left)
    assert f"Removes {6 - len(left)} measurement" in result.stderr


@pytest.mark.usefixtures("measured")
def test_dropping_the_newest_run_brings_the_older_back(run_scav: Callable[..., Result]) -> None:
    assert "used without 2 of 6 measurements: something else was run since" in run_scav("fit").stderr
    run_scav("measurements", "drop", "--run", B, "--yes")
    assert "something else" not in run_scav("fit").stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--yes",), "say which: --row, --run, --instance-type or --older"),
        (("--row", "7", "--yes"), "--row: '7' is no row from 1 to 6, nor a range such as 5..8"),
        (("--row", "1-3", "--yes"), "--row: '1-3' is no row"),
        (("--row", "²", "--yes"), "--row: '²' is no row"),
        (("--run", "cafe", "--yes"), "measurements.jsonl: no measurement is meant"),
        (("--run", "", "--yes"), "--run: an empty key begins every run's: name one"),
        (("--row", "1"), "Nobody is here to be asked: add --yes to go on"),
    ],
)
def test_what_is_not_dropped(
    measured: Path, run_scav: Callable[..., Result], options: tuple[str, ...], words: str
) -> None:
    before = measured.read_text()
    result = run_scav("measurements", "drop", ".", *options)
    assert (result.exit_code, result.stdout, measured.read_text()) == (1, "", before)
    assert words in result.stderr.splitlines()[-1]


def test_what_a_probe_adds_while_somebody_thinks_is_kept(
    measured: Path, run_scav: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def think(_sentence: str, *, yes: bool) -> None:
        assert not yes
        with measured.open("a") as stream:
            stream.write(LINES[2])

    monkeypatch.setattr(planner.cli.measurements, "confirm", think)
    result = run_scav("measurements", "drop", "--row", "1..4")
    assert result.exit_code == 0, result.stderr
    assert measured.read_text() == "\n" + LINES[4] + LINES[5] + LINES[2]

    monkeypatch.setattr(planner.cli.measurements, "confirm", lambda *_a, **_k: measured.write_text(LINES[3]))
    changed = run_scav("measurements", "drop", "--row", "1")
    assert "was changed meanwhile; nothing was removed" in changed.stderr
    assert measured.read_text() == LINES[3]


LOG = "step,time,gpu_batch,accumulation_steps\n" + "".join(f"{10 * n},{0.5 + n},32,2\n" for n in range(9))
WHERE = ("--instance-type", "g5.12xlarge", "--nodes", "2")


@pytest.fixture
def import_log(
    write_job: Callable[..., Path], run_scav: Callable[..., Result], tmp_path: Path
) -> Callable[..., Result]:
    write_job()

    def run(name: str, content: str | bytes | None, *options: str) -> Result:
        if content is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return run_scav("measurements", "import", name, *options)

    return run


def test_a_plain_csv_becomes_a_row(import_log: Callable[..., Result], tmp_path: Path) -> None:
    result = import_log("log.csv", LOG, *WHERE)
    assert result.exit_code == 0, result.stderr
    assert "CSV: 1 measurement added to measurements.jsonl." in result.stdout
    (row,) = [json.loads(text) for text in (tmp_path / "measurements.jsonl").read_text().splitlines()]
    assert (row["step_seconds"], row["gpu_batch"], row["accumulation_steps"]) == (pytest.approx(0.1), 32, 2)
    assert (row["nodes"], row["gpus_per_node"], row["precision"]) == (2, 4, "bf16")
    assert row["imported_from"]["file"] == "log.csv"
    again = import_log("log.csv", LOG, *WHERE)
    assert again.stderr == "Error: log.csv: was imported before, as row 1 of measurements.jsonl\n"


def test_history_as_json_lines(import_log: Callable[..., Result], tmp_path: Path) -> None:
    records = "".join(json.dumps({"_step": 10 * n, "_runtime": 0.5 + n}) + "\n" for n in range(9))
    options = ("--gpu-batch", "8", "--accumulation-steps", "1", "--precision", "fp16")
    assert import_log("history.jsonl", records, *WHERE, *options).exit_code == 0
    assert '"precision":"fp16"' in (tmp_path / "measurements.jsonl").read_text()
    assert import_log("list.json", f"[{records.strip().replace(chr(10), ',')}]", *WHERE, *options).exit_code == 0


def test_an_mlflow_run_by_hand(import_log: Callable[..., Result], tmp_path: Path) -> None:
    import_log("run/params/gradient_accumulation_steps", "4", *WHERE)
    import_log("run/params/per_device_train_batch_size", "16", *WHERE)
    lines = "".join(f"{1_700_000_000_000 + 250 * n} 0.5 {10 * n}\n" for n in range(9))
    assert import_log("run/metrics/train/loss", lines, *WHERE).exit_code == 1  # one metric alone is no log
    result = import_log("run", None, *WHERE)
    assert result.exit_code == 0, result.stderr
    (row,) = [json.loads(text) for text in (tmp_path / "measurements.jsonl").read_text().splitlines()]
    assert (row["step_seconds"], row["gpu_batch"], row["accumulation_steps"]) == (pytest.approx(0.025), 16, 4)


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("none.csv", None, WHERE, "none.csv: no such file"),
        ("log.csv", LOG, (), "log.csv: say where it ran: --instance-type"),
        (
            "log.csv",
            LOG.replace(",gpu_batch", ",batch_size"),
            WHERE,
            "no batch of one GPU: add --gpu-batch; batch_size",
        ),
        ("log.csv", b"\xff\xfe\x00", WHERE, "log.csv: not UTF-8 text"),
        ("log.csv", LOG, (*WHERE, "--column", "speed=x"), "--column: 'speed=x' is not MEANING=NAME"),
        ("log.csv", LOG, (*WHERE, "--column", "time=x"), "log.csv: has no column x; there are step, time, gpu_batch"),
        ("log.json", "{", WHERE, "log.json: is no JSON"),
        ("log.json", "7", WHERE, "log.json: is neither a trainer_state.json nor a list of logged records"),
        ("log.json", "[" * 100_000, WHERE, "log.json: is no JSON"),
        ("log.json", "[]", WHERE, "log.json: holds no records of a run"),
        ("empty/x.txt", "", WHERE, ""),
        ("run/metrics/loss", "1 2\n", WHERE, ""),
        ("events.out.tfevents.1", b"no events", WHERE, "tensorboard"),
        ("run.wandb", b"no run", WHERE, "wandb cannot read it"),
    ],
)
def test_what_cannot_be_imported_is_one_line(
    import_log: Callable[..., Result], tmp_path: Path, name: str, content: str | None, options: Any, words: str
) -> None:
    for library in ("tensorboard", "wandb"):
        if library in words:
            pytest.importorskip(library)
    result = import_log(name, content, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    (said,) = result.stderr.splitlines()
    assert said.startswith("Error: ")
    assert words in said
    assert not (tmp_path / "measurements.jsonl").exists()


def test_folders_that_hold_no_log_or_several(import_log: Callable[..., Result], tmp_path: Path) -> None:
    import_log("folder/notes.txt", "", *WHERE)
    assert "folder: holds no log" in import_log("folder", None, *WHERE).stderr
    import_log("folder/metrics.csv", LOG, *WHERE)
    (tmp_path / "measurements.jsonl").unlink()
    assert import_log("folder", None, *WHERE).exit_code == 0
    import_log("folder/trainer_state.json", "{}", *WHERE)
    assert (
        "folder: holds 2 logs, metrics.csv, trainer_state.json: name one" in import_log("folder", None, *WHERE).stderr
    )
    (tmp_path / "run" / "metrics").mkdir(parents=True)
    assert "run: holds no metrics" in import_log("run", None, *WHERE).stderr
    (tmp_path / "run" / "metrics" / "loss").write_text("1 2\n")
    assert "loss:1: is no line of a metric" in import_log("run", None, *WHERE).stderr


def test_a_log_that_never_ends_is_not_read(import_log: Callable[..., Result], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.wandb")
    assert "is a pipe, not a file" in import_log("run.wandb", None, *WHERE).stderr


def test_a_library_that_is_not_here_is_named(
    import_log: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    said = import_log("events.out.tfevents.1", b"", *WHERE).stderr
    assert said == "Error: events.out.tfevents.1 is read by tensorboard: pip install 'scav-planner[import]'\n"
