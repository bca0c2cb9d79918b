"""`scav history`: the ledger of finished jobs, listed, shown, pruned, and carried elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result


def outcome(job: str, date: str, hours: float, step: float, *, held: bool = True) -> dict[str, Any]:
    planned = {"p05": 2.0, "p50": 4.0, "p95": 8.0}
    steps = {"p05": 0.1, "p50": 0.2, "p95": 0.4}
    compared = [
        {"name": "hours", "predicted": planned, "actual": hours, "held": held},
        {"name": "step_seconds", "predicted": steps, "actual": step, "held": 0.1 <= step <= 0.4},
    ]
    return {
        "date": date,
        "job": job,
        "run_id": f"{job}-1",
        "scav_version": "1.0",
        "instance_type": "g5.xlarge",
        "node_count": 4,
        "global_batch": 1024,
        "source_sha256": f"of {job} {date}",
        "compared": compared,
    }


MINE = [outcome("small", "2026-01-05", 4.0, 0.2), outcome("large", "2026-02-05", 9.0, 0.22, held=False)]
THEIRS = [outcome("other", "2025-12-05", 3.0, 200.0), MINE[0]]


def write(file: Path, outcomes: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in outcomes))
    return file


@pytest.fixture
def history(run_scav: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    write(tmp_path / "past" / "outcomes.jsonl", MINE)

    def run(*arguments: str | Path) -> Result:
        return run_scav("history", *arguments, "--history", tmp_path / "past")

    return run


def jobs(history: Callable[..., Result]) -> list[str]:
    return [job["job"] for job in json.loads(history("list", "--json").stdout)]


def test_each_job_is_a_line_of_actual_over_planned(history: Callable[..., Result]) -> None:
    lines = history("list").stdout.splitlines()
    # A cluster is three words, and three figures are missing.
    assert len(lines[1].split()) == len(lines[2].split()) == 9
    assert "2026-01-05  small  4 x g5.xlarge  1,024   1.00" in lines[1]
    assert "2.25*" in lines[2]
    assert "1.10" in lines[2]
    text = "\n".join(lines)
    assert "90 % intervals held in 3 of 4 over 2 finished jobs" in text
    assert "hours: 1.50 times what was planned, over 2 jobs (1.00 to 2.25)" in text


def test_one_is_shown_by_name_or_id(history: Callable[..., Result]) -> None:
    by_name = history("show", "large").stdout
    (entry,) = json.loads(history("show", "large", "--json").stdout)
    assert history("show", entry["id"]).stdout == by_name
    assert f"large ({entry['id']}), 2026-02-05: 4 x g5.xlarge, batch 1,024, planned by scav 1.0" in by_name
    assert "outside" in by_name


def test_pruned_is_gone_and_the_rest_stays(history: Callable[..., Result]) -> None:
    assert history("prune", "--before", "2026-02-01").stdout == "1 job removed, 1 left\n"
    assert jobs(history) == ["large"]
    assert history("prune", "large").stdout == "1 job removed, 0 left\n"
    assert history("list").stdout == "No finished job is recorded: scav actuals does it.\n"


def test_what_is_exported_is_merged_elsewhere_once(history: Callable[..., Result], tmp_path: Path) -> None:
    shared = tmp_path / "shared.jsonl"
    assert history("export", shared).stdout == f"2 jobs in {shared}\n"
    assert history("merge", shared).stdout == "0 jobs added, 2 in all\n"
    assert history("export", shared).stderr == f"Error: {shared}: is there already\n"
    assert history("prune", "small", "large").exit_code == 0
    assert history("merge", shared).stdout == "2 jobs added, 2 in all\n"
    assert jobs(history) == ["small", "large"]


def test_figures_in_other_units_are_named_and_teach_nothing(history: Callable[..., Result], tmp_path: Path) -> None:
    result = history("merge", write(tmp_path / "theirs.jsonl", THEIRS))
    assert result.stdout == "1 job added, 3 in all\n"
    assert "step_seconds is 1e+03 times what was planned, as milliseconds for seconds would be" in result.stderr
    listed = history("list").stdout
    assert "as milliseconds for seconds would be: check it, or scav history prune" in listed
    assert "step: 1.05 times what was planned, over 2 jobs" in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nobody"), "no finished job is called 'nobody', nor has it as its id: scav history list"),
        (("prune",), "say which: NAME, the id that scav history list shows, or --before 2026-01-31"),
        (("merge", "missing.jsonl"), "missing.jsonl: no such file"),
    ],
)
def test_bad_input_is_one_line(history: Callable[..., Result], arguments: tuple[str, ...], said: str) -> None:
    result = history(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {said}\n")
