"""The memory benchmark takes any table of the given columns, and leaves the tested set out of what it estimates."""

from __future__ import annotations

import csv
from pathlib import Path

import memory
import memory_tables
import pytest

COLUMNS = (
    *("source", "model", "params", "layers", "hidden", "heads", "seq_len", "gpus", "gpu_type", "nodes", "sharding"),
    *("tp", "pp", "cp", "ep", "dp", "micro_batch", "global_batch", "activation_checkpointing", "precision", "compile"),
    *("method", "peak_mem_gib", "note"),
)
ROW = {
    "source": "somebody's own",
    "model": "Llama 3.1 8B",
    "seq_len": "2048",
    "gpus": "8",
    "gpu_type": "A100-80GB",
    "sharding": "FSDP2",
    "micro_batch": "1",
    "global_batch": "8",
    "activation_checkpointing": "full",
    "precision": "bf16",
    "method": "pretrain",
    "peak_mem_gib": "30",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        ROW,
        ROW,  # the same configuration counts once
        {**ROW, "peak_mem_gib": "OOM", "micro_batch": "512"},
        {**ROW, "model": "nobody knows it"},
        {**ROW, "sharding": "a new one"},
        {**ROW, "source": "litgpt tables", "gpus": "1", "method": "LoRA", "precision": "bf16-true"},
    ]
    with (tmp_path / "any.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def test_a_table_of_these_columns_is_taken_and_the_unknown_counted(folder: Path) -> None:
    rows, left_out = memory_tables.load_rows(folder)
    assert [(row.set, row.bytes_peak is None) for row in rows] == [
        ("somebody's", False),
        ("somebody's", True),
        ("litgpt", False),
    ]
    assert left_out == 2
    assert rows[0].bytes_peak == 30 * 2**30
    assert rows[2].bytes_peak == 30e9  # litgpt prints GB


def test_a_row_that_ran_out_is_not_in_the_error_but_in_what_was_called(folder: Path) -> None:
    rows, _ = memory_tables.load_rows(folder)
    own = [row for row in rows if row.set != "litgpt"]
    score = memory.score(own, "nested", memory.estimate([row for row in rows if row.set == "litgpt"]))
    assert (score.rows, score.oom, score.ran, score.oom_called_fits) == (1, 1, 1, 0)


def test_one_set_is_fitted_to_its_median(folder: Path) -> None:
    rows, _ = memory_tables.load_rows(folder)
    found = memory.estimate([row for row in rows if row.set == "litgpt"])
    row = next(row for row in rows if row.set == "litgpt")
    assert found.allocated == pytest.approx(30e9 / memory.formula(row))
