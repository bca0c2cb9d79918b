"""`scav predict --mixed`: what docs/models.md shows, and one line where it means nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "resnet50-imagenet" / "scav.yaml"
PAGE = REPOSITORY / "docs" / "models.md"
SHOWN = re.compile(r"(?<=\n\$ scav predict my-job --mixed\n).*?(?=```)", re.DOTALL)
QUOTAS = "quotas: {on_demand: {g: 192, p: 96}}"  # as the page says


@pytest.fixture
def quota_bound(tmp_path: Path) -> Path:
    text = EXAMPLE.read_text().replace("  nodes: 1..16", f"  nodes: 1..16\n  {QUOTAS}")
    (tmp_path / "scav.yaml").write_text(text.replace("objective: cost", "objective: time"))
    return tmp_path


def test_the_page_shows_what_is_printed(
    run_scav: Callable[..., Result], quota_bound: Path, update_golden: bool
) -> None:
    result = run_scav("predict", quota_bound, "--mixed")
    assert result.exit_code == 0, result.stderr
    page = PAGE.read_text()
    if update_golden:
        PAGE.write_text(SHOWN.sub(lambda _: result.stdout, page))
    assert QUOTAS in page
    assert SHOWN.findall(PAGE.read_text()) == [result.stdout]


def test_as_json_it_is_the_same_gang(run_scav: Callable[..., Result], quota_bound: Path) -> None:
    found = json.loads(run_scav("predict", quota_bound, "--mixed", "--json").stdout)
    gang, alone = found["gang"], found["one_kind"]
    processes = [count * each for count, each in zip(gang["nodes"], gang["gpus_per_node"], strict=True)]
    assert sum(n * batch for n, batch in zip(processes, gang["gpu_batches"], strict=True)) == gang["global_batch"]
    assert sum(n * weight for n, weight in zip(processes, gang["gradient_weights"], strict=True)) == pytest.approx(
        sum(processes)
    )
    assert gang["hours"]["p95"] * 1.05 < alone["hours"]["p95"]


def test_without_quotas_one_kind_is_better(run_scav: Callable[..., Result]) -> None:
    result = run_scav("predict", EXAMPLE, "--mixed")
    assert result.stdout.splitlines()[0] == "No gang of two kinds beats one kind by more than a near tie."
    assert json.loads(run_scav("predict", EXAMPLE, "--mixed", "--json").stdout)["gang"] is None


def test_where_no_kind_keeps_the_limits_two_may(run_scav: Callable[..., Result], quota_bound: Path) -> None:
    job = quota_bound / "scav.yaml"
    job.write_text(job.read_text().replace("deadline: 24h", "deadline: 8h").replace("g: 192", "g: 64"))
    assert run_scav("plan", quota_bound, "--out", quota_bound / "out").exit_code == 3
    lines = run_scav("predict", quota_bound, "--mixed").stdout.splitlines()
    assert " + " in lines[0]
    assert "One kind: nothing keeps the limits" in lines
    job.write_text(job.read_text().replace("deadline: 8h", "deadline: 1h"))
    hopeless = run_scav("predict", quota_bound, "--mixed").stdout
    assert hopeless == "Neither one kind nor a gang of two keeps the limits.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "2", "--sweep", "batch"], "--mixed: looks for the best by itself: leave out --sweep, --nodes"),
        (["--spot"], "--mixed: looks for the best by itself: leave out --spot"),
    ],
)
def test_what_else_is_named_is_refused(
    run_scav: Callable[..., Result], quota_bound: Path, options: list[str], words: str
) -> None:
    result = run_scav("predict", quota_bound, "--mixed", *options)
    assert (result.exit_code, result.stderr) == (1, f"Error: {words}\n")


def test_transformers_and_knees_are_refused(run_scav: Callable[..., Result], quota_bound: Path) -> None:
    job = quota_bound / "scav.yaml"
    job.write_text(job.read_text().replace("objective: time", "objective: knee"))
    assert run_scav("predict", quota_bound, "--mixed").stderr == (
        "Error: --mixed: needs an objective that orders all clusters: cost or time\n"
    )
    llama = run_scav("predict", REPOSITORY / "examples" / "tiny-llama", "--mixed")
    assert llama.stderr.splitlines()[-1] == (
        "Error: --mixed: knows no strategies: the job must have no workload.transformer"
    )
