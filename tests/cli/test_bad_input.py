"""Bad input: one line on stderr, the right exit code, nothing on stdout, nothing written."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from planner.outside import assets


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def refused(run_scav, tmp_path):
    """Runs a command that must fail and change nothing; returns its one line without `Error: `."""

    def run(*arguments, exit_code=1):
        before = tree(tmp_path)
        result = run_scav(*arguments)
        assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
        assert tree(tmp_path) == before
        assert result.stderr.endswith("\n")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert result.stderr.isascii() or result.stderr.rstrip("\n").isprintable()
        return result.stderr.removeprefix("Error: ").rstrip("\n")

    return run


@pytest.mark.parametrize("command", [["plan", "nowhere.yaml"], ["review", "nowhere"], ["plan", "nowhere/deep"]])
def test_a_missing_file(refused, command):
    assert refused(*command).endswith("no such file or directory")


def test_a_folder_without_a_job(refused):
    assert refused("plan") == ".: no scav.yaml here; `scav init` writes one to start from"


def test_an_empty_file(refused, tmp_path):
    (tmp_path / "scav.yaml").touch()
    assert refused("plan") == "scav.yaml: the file is empty; `scav init` writes one to start from"


BROKEN = {
    "a syntax error": ({"[": ""}, "scav.yaml:14: not valid YAML: "),
    "an unknown key": ({"deadline:": "deadlin:"}, "scav.yaml:12: constraints.deadlin: unknown key; did you mean dead"),
    "a negative deadline": ({"24h": "-24h"}, "scav.yaml:12: constraints.deadline: '-24h' must be above zero"),
    "an unknown region": (
        {"nodes": "regions: [us-east-9]\n  nodes"},
        "scav.yaml:15: constraints.regions.0: unknown region 'us-east-9'; did you mean us-east-",
    ),
    "a batch range upside down": (
        {"256..1024": "1024..256"},
        "scav.yaml:7: workload.global_batch: '1024..256' has its minimum above its maximum; write 256..1024",
    ),
    "no such instance": (
        {"g5.*": "g55.*"},
        "scav.yaml:14: constraints.instance_types: no instance type matches 'g55.*'",
    ),
    "no such GPU": ({"g5.*": "A100:60GB"}, "scav.yaml:14: constraints.instance_types: no instance type matches"),
    "a name to break out of a string": (
        {"small": "'\"; ${path}'"},
        "scav.yaml:1: name: '\"; ${path}' is not small letters",
    ),
    "a name of several lines": ({"small": '"a\\n\\nb\\r\\u2028c"'}, "scav.yaml:1: name: "),
    "a terminal's escape codes": ({"small": '"\\e[31mred"'}, "scav.yaml:1: name: "),
    "an alias": ({"small": "*small"}, "scav.yaml:1: not valid YAML: aliases (*name) are not supported"),
    "the same key twice": (
        {"name: small": "name: small\nname: large"},
        "scav.yaml:2: name: this key stands here twice",
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_in_the_job_file(refused, write_job, mistake):
    replacements, message = BROKEN[mistake]
    write_job(replacements)
    assert refused("plan").startswith(message)


@pytest.mark.parametrize("content", [b"name: \xff", b"\x00", b"\xff\xfe", b"\x1b[31m: 1"])
def test_a_file_that_is_no_text(refused, tmp_path, content):
    (tmp_path / "scav.yaml").write_bytes(content)
    assert refused("plan").startswith("scav.yaml")


def test_a_file_that_is_too_large(refused, tmp_path):
    (tmp_path / "scav.yaml").write_bytes(b"#" * (2 << 20))
    assert refused("plan") == "scav.yaml: larger than 256 KiB: this is not a job file"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--deadline", "soon", "command line: constraints.deadline: 'soon' is not a duration"),
        ("--deadline", "", "command line: constraints.deadline: '' is not a duration"),
        ("--budget", "-5", "command line: constraints.budget: '-5' must be above zero"),
        ("--confidence", "0", "command line: constraints.confidence: input should be greater than or equal to 0.5"),
        ("--confidence", "nan", "command line: constraints.confidence: input should be a finite number"),
        ("--nodes", "4..1", "command line: constraints.nodes: '4..1' has its minimum above its maximum"),
        ("--region", "mars", "command line: constraints.regions.0: unknown region 'mars'"),
        ("--instance-type", "zz", "command line: constraints.instance_types: no instance type matches 'zz'"),
        ("--catalog", "nowhere.json", "nowhere.json: no such file or directory"),
        ("--catalog", "scav.yaml", "scav.yaml: "),
    ],
)
def test_a_mistake_in_an_option_is_not_blamed_on_the_file(refused, write_job, option, value, message):
    write_job()
    assert refused("plan", option, value).startswith(message)


@pytest.mark.parametrize("arguments", [["--max-usd", "nan"], ["--max-hours", "inf"], ["--max-usd", "0"], ["--max-usd"]])
def test_a_guardrail_that_guards_nothing_is_a_usage_error(run_scav, write_job, arguments):
    write_job()
    run_scav("plan")
    result = run_scav("review", "scav-plan", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert arguments[0] in result.stderr


@pytest.mark.parametrize("arguments", [["plna"], ["plan", "--frobnicate"], ["plan", "a", "b"], ["schema", "poem"]])
def test_a_command_that_does_not_exist_is_a_usage_error(run_scav, arguments, tmp_path):
    result = run_scav(*arguments)
    assert (result.exit_code, result.stdout, tree(tmp_path)) == (2, "", {})
    assert "Traceback" not in result.stderr


def test_an_output_folder_that_is_somebody_elses(refused, write_job, tmp_path):
    write_job()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    assert refused("plan", "--out", "out") == "out: not empty and without a scav.plan.json; choose another folder"
    assert refused("plan", "--out", ".") == ".: not empty and without a scav.plan.json; choose another folder"


@pytest.mark.parametrize("out", ["scav.yaml", "scav.yaml/below", "a" * 300])
def test_an_output_folder_that_cannot_be(refused, write_job, out):
    write_job()
    assert "cannot write" in refused("plan", "--out", out)


def test_a_workspace_with_a_broken_plan_file(refused, write_job, run_scav, tmp_path):
    write_job()
    run_scav("plan")
    (tmp_path / "scav-plan" / "scav.plan.json").write_text('{"schema_version": 1}', encoding="utf-8")
    assert refused("review", "scav-plan").startswith("scav-plan/scav.plan.json: ")
    assert refused("plan", "--frozen").startswith("scav-plan/scav.plan.json: ")


def test_init_does_not_overwrite(refused, write_job):
    write_job()
    assert refused("init") == "scav.yaml: already exists; scav init does not overwrite"
    assert "cannot write" in refused("init", "scav.yaml/below")


# Measurements


def test_a_torn_last_line_of_measurements_is_left_out_with_one_warning(run_scav, write_job, measurement_line, tmp_path):
    write_job()
    (tmp_path / "measurements.jsonl").write_text(measurement_line + measurement_line[:50], encoding="utf-8")
    result = run_scav("plan", "--verbose")
    assert result.exit_code == 0
    assert result.stderr == "Warning: measurements.jsonl:2: the last line is torn; used without it\n"
    assert "1 measurement" in " ".join(result.stdout.split())
    assert (tmp_path / "scav-plan" / "scav.plan.json").exists()


def test_a_wrong_line_in_the_middle_of_the_measurements(refused, write_job, measurement_line, tmp_path):
    write_job()
    (tmp_path / "measurements.jsonl").write_text(measurement_line[:50] + "\n" + measurement_line, encoding="utf-8")
    assert refused("plan").startswith("measurements.jsonl:1: is no JSON")


# Limits, guardrails, staleness


def test_no_feasible_plan_names_the_two_nearest_misses_and_what_to_relax(run_scav, write_job, tmp_path):
    write_job({"24h": "20min", "$400": "$1"})
    before = tree(tmp_path)
    result = run_scav("plan")
    assert (result.exit_code, result.stdout, tree(tmp_path)) == (3, "", before)
    first, *misses = result.stderr.splitlines()
    assert first == "Error: no feasible plan at 95 % confidence; the nearest misses:"
    assert len(misses) == 2
    for miss in misses:
        assert "instead of" in miss
        assert "g5." in miss
    assert misses[0].split("(")[0] != misses[1].split("(")[0]


def test_a_model_that_fits_no_gpu_is_no_feasible_plan(refused, write_job):
    write_job({"25.6M": "1T", "24.6 GFLOP": "6 TFLOP"})
    assert "too little GPU memory" in refused("plan", exit_code=3)


def test_a_stale_workspace(refused, run_scav, write_job, tmp_path):
    write_job()
    assert "out of date" in refused("plan", "--check", exit_code=5)
    run_scav("plan")
    result = run_scav("plan", "--check")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "scav-plan is up to date\n", "")
    main = tmp_path / "scav-plan" / "main.tf"
    main.write_text(main.read_text(encoding="utf-8") + "# by hand\n", encoding="utf-8")
    message = refused("plan", "--check", exit_code=5)
    assert message == "scav-plan is out of date (main.tf); run scav plan and commit the result"
    write_job({"24h": "25h"})
    assert "scav.plan.json" in refused("plan", "--check", exit_code=5)


def test_a_guardrail(run_scav, write_job):
    write_job()
    run_scav("plan")
    result = run_scav("review", "scav-plan", "--max-usd", "0.01", "--max-hours", "9999")
    assert result.exit_code == 4
    assert "EXCEEDED" in result.stdout
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: p95 cost $")
    assert run_scav("review", "scav-plan", "--max-usd", "9999").exit_code == 0


# What the system refuses


@contextlib.contextmanager
def as_somebody_else():
    """Root may read everything, so it steps back for a while; whoever is not root is somebody else already."""
    own = os.geteuid()
    os.seteuid(65534 if own == 0 else own)
    try:
        yield
    finally:
        os.seteuid(own)


@pytest.fixture
def open_folder(run_scav, job_text, monkeypatch):
    """Where everybody may look, which pytest's own folders are not."""
    starter = assets.load_starter_job()  # this repository, too, may lie where somebody else may not look
    monkeypatch.setattr(assets, "load_starter_job", lambda: starter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "job").mkdir()
        (folder / "job" / "scav.yaml").write_text(job_text, encoding="utf-8")
        (folder / "writable").mkdir()
        (folder / "writable").chmod(0o777)
        # Everything is imported now: somebody else may not be allowed to read the interpreter's folder.
        for command in (["plan", "job", "--out", "plan"], ["review", "plan"], ["init", "new"], ["plan", "nowhere"]):
            run_scav(*command, cwd=folder)
        for new in ("plan", "new"):
            shutil.rmtree(folder / new)
        yield folder
        (folder / "job").chmod(0o755)


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        (0o000, ["plan", "job", "--out", "writable/plan"]),
        (0o000, ["plan", "job/scav.yaml", "--out", "writable/plan"]),
        (0o444, ["plan", "job", "--out", "writable/plan"]),
        (0o111, ["plan", "job/scav.yaml", "--out", "writable/plan"]),
        (0o555, ["plan", "job", "--out", "job/plan"]),
        (0o000, ["plan", "job", "--out", "job/plan"]),
        (0o000, ["review", "job"]),
        (0o000, ["review", "job/deeper"]),
        (0o000, ["init", "job"]),
        (0o555, ["init", "job/deeper"]),
        (0o000, ["plan", "job", "--frozen", "--out", "job/plan"]),
        (0o000, ["plan", "writable", "--catalog", "job/catalog.json"]),
    ],
)
def test_a_folder_that_may_not_be_read_or_written(run_scav, open_folder, job_text, mode, arguments):
    (open_folder / "writable" / "scav.yaml").write_text(job_text, encoding="utf-8")
    before = tree(open_folder)
    (open_folder / "job").chmod(mode)
    with as_somebody_else():
        result = run_scav(*arguments, cwd=open_folder)
    (open_folder / "job").chmod(0o755)
    assert (result.exit_code, result.stdout) == (1, ""), result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "permission denied" in result.stderr
    assert tree(open_folder) == before


@pytest.mark.parametrize("out", ["plan", "new/deep/plan"])
def test_a_full_disk(run_scav, full_disk, tmp_path, write_job, out):
    write_job()
    before = tree(tmp_path)
    with full_disk(9000):
        result = run_scav("plan", "--out", out)
    assert (result.exit_code, result.stdout) == (1, ""), result.stderr
    assert result.stderr == f"Error: {out}: cannot write: file too large\n"
    assert tree(tmp_path) == before


def test_the_installed_command_prints_an_error_and_no_traceback(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "planner", "plan", "nowhere"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "Error: nowhere: no such file or directory\n"
