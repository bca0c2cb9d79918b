"""What a new user mistypes or forgets, and what is said then."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from planner.cli.probe_table import adapter_note, probe_table
from planner.inputs.measurements import Measurement
from planner.units import counted

NOISE = {"scale": 123_456.0, "low": 90_000.0, "high": 190_000.0, "groups": 8, "reached": True, "at_step": 400}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan"], "no scav.yaml here; `scav init` writes one to start from"),
        (["plna"], "No such command 'plna'; did you mean plan?"),
        (["xyzzy"], "No such command 'xyzzy'"),
    ],
)
def test_a_slip_is_answered_with_what_to_do(run_scav, arguments, said):
    result = run_scav(*arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--region", "us-east-l"], "unknown region 'us-east-l'; did you mean us-east-1?"),
        (["--nodes", "1-16"], "'1-16' is not a range; write 1..16"),
        (["--nodes", "1 to 16"], "'1 to 16' is not a range; write 1..16"),
    ],
)
def test_a_mistyped_limit_is_answered_with_the_right_one(run_scav, write_job, arguments, said):
    write_job()
    result = run_scav("plan", *arguments)
    assert result.exit_code == 1
    assert said in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    """As `scav catalog list | head` does: the other end of the pipe is closed before anything is written."""
    code = "import os; os.close(0)"
    reader = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    reader.wait()
    command = [sys.executable, "-m", "planner", "catalog", "list", "--region", "all"]
    result = subprocess.run(command, stdout=reader.stdin, stderr=subprocess.PIPE, text=True, check=False)
    reader.stdin.close()
    assert (result.returncode, result.stderr) == (0, "")


def test_a_reader_that_stops_in_the_middle_of_a_table_is_no_error():
    """rich writes that table, in one piece: more than this pipe holds, so it is being written when the reader ends."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "planner", "catalog", "list", "--region", "all"]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as listing:
        os.close(write)
        assert os.read(read, 9) == b"Catalogue"
        os.close(read)
        assert listing.communicate()[1] == ""
    assert listing.returncode == 0


def measurement():
    return Measurement(
        instance_type="local",
        nodes=16,
        gpus_per_node=16,
        gpu_batch=4096,
        precision="bf16",
        step_seconds=12.3456,
        step_seconds_p90=12.9,
        exposed_sync_seconds=1.5,
        data_wait_seconds=0.25,
        window_variation=0.123,
        noise=NOISE,
    )


def test_the_table_of_probes_fits_a_terminal():
    lines = probe_table([measurement()])
    assert max(len(line) for line in lines) <= 80
    assert "123,456 -27 % +54 %" in lines[1]


def test_who_was_handed_the_batch_by_scav_is_told_what_a_run_needs():
    own, *adapted = (
        measurement().model_copy(update={"adapter": name}) for name in (None, "lightning", "accelerate", "lightning")
    )
    assert adapter_note([own]) is None
    assert str(adapter_note([own, *adapted])).startswith("scav handed the batch to accelerate and lightning for")


@pytest.mark.parametrize(("count", "said"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1500, "1,500 nodes")])
def test_one_is_singular(count, said):
    assert counted(count, "node") == said
