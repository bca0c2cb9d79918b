"""Files that never end, that nobody writes to, or that unpack to gigabytes: one line, and soon."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.cli import cli
from planner.errors import InputError
from planner.inputs.measurements import parse_measurements, usable
from planner.outside import assets, store
from planner.plan.check import facts
from planner.plan.check.terraform_plan import _INDEX, declared_resources

MIB = 1 << 20
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"


@pytest.fixture(autouse=True)
def _no_endless_test() -> Iterator[None]:
    """Only an attack that works takes so long: what is refused takes milliseconds."""

    def give_up(_number: int, _frame: object) -> None:
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def workspace(run_scav: Callable[..., Result], write_job: Callable[..., Path], tmp_path: Path) -> Path:
    write_job()
    assert run_scav("plan").exit_code == 0
    return tmp_path / "scav-plan"


def refused(result: Result, words: str) -> None:
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


# Pipes, devices, sockets


COMMANDS = {
    "scav.yaml": ["plan"],
    "measurements.jsonl": ["plan"],
    "catalog-2026-01-01.json": ["plan"],
    "scav-plan/scav.plan.json": ["review", "scav-plan"],
    "scav-plan/terraform.tfvars.json": ["check", "scav-plan"],
    "scav-plan/scav.policy.json": [
        *("policy", "scav-plan", "--work-left", "1h", "--time-left", "2h"),
        *("--spot", "there", "--since", "1h", "--running", "spot"),
    ],
    "plan.json": ["check", "scav-plan", "plan.json"],
    "other/measurements.jsonl": ["plan", "--history", "other"],
    "spot/g5.xlarge@use1-az4.json": ["plan", "--spot-history", "spot"],
    "spot/g5.xlarge@use1-az4.json.gz": ["plan", "--spot-history", "spot"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_that_nobody_writes_to(run_scav, workspace, tmp_path, name):  # noqa: ARG001
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    refused(run_scav(*COMMANDS[name]), f"{name}: is a pipe, not a file")


@pytest.mark.parametrize("name", ["main.tf", "scav.files.json"])
def test_a_pipe_where_scav_wrote_a_file_is_a_difference(run_scav, workspace, name):
    (workspace / name).unlink()
    os.mkfifo(workspace / name)
    result = run_scav("check", "scav-plan")
    assert result.exit_code == (4 if name == "main.tf" else 0)
    assert run_scav("plan", "--check").exit_code == 5
    assert run_scav("plan").exit_code == 0
    assert run_scav("plan", "--check").exit_code == 0


def in_little_memory(arguments: list[str], *, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """A command that reads without end is out of memory long before the machine is."""
    script = f"import sys; from planner.cli import main; sys.argv = {['scav', *arguments]!r}; main()"
    return subprocess.run(
        [sys.executable, "-c", script], cwd=cwd, text=True, check=False, stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "/dev/zero"], "/dev/zero: is a device, not a file"),
        (["plan", "--catalog", "/dev/zero"], "/dev/zero: is a device, not a file"),
        (["check", "scav-plan", "/dev/zero"], "/dev/zero: is a device, not a file"),
        (["simulate", "scav-plan", "--trace", "/dev/zero"], "/dev/zero: is a device, not a file"),
    ],
)
def test_a_device_that_never_ends(workspace, arguments, words):
    result = in_little_memory(arguments, cwd=workspace.parent)
    assert (result.returncode, result.stderr) == (1, f"Error: {words}\n")


def test_stdin_that_never_ends(workspace):
    with Path("/dev/zero").open("rb") as endless:
        result = in_little_memory(["check", "scav-plan", "-"], cwd=workspace.parent, stdin=endless)
    assert (result.returncode, result.stderr) == (1, "Error: stdin: more than 64 MiB\n")


def test_a_socket_and_a_folder_and_a_link_to_a_device(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(InputError, match="is a socket, not a file"):
            store.load_text(Path("socket"))
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, words in ((tmp_path / "link", "is a device"), (tmp_path, "is a directory")):
        with pytest.raises(InputError, match=words):
            store.load_text(path)


def test_a_file_of_more_than_any_input_has(tmp_path):
    with (tmp_path / "file").open("wb") as stream:
        stream.truncate(store.MOST_BYTES + 1)  # a hole: it takes no room on the disk
    with pytest.raises(InputError, match="more than 64 MiB"):
        store.load_text(tmp_path / "file")


# Full disks


@pytest.mark.parametrize(
    "arguments",
    [["plan"], ["plan", "--json"], ["review", "scav-plan"], ["catalog", "list"], ["schema", "job"], ["--help"]],
)
def test_stdout_on_a_full_disk(workspace, arguments):
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "planner", *arguments], cwd=workspace.parent, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert (result.returncode, result.stderr) == (
        1,
        "Error: cannot write the output: no space left on device\n",
    )


def test_stdout_and_stderr_on_a_full_disk(workspace):
    with Path("/dev/full").open("w") as full:
        for arguments in (["plan"], ["plan", "nowhere"]):
            result = subprocess.run(
                [sys.executable, "-m", "planner", *arguments], cwd=workspace.parent, stdout=full, stderr=full,
                check=False,
            )  # fmt: skip
            assert result.returncode == 1


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A device like /dev/full in a folder of ours: renaming a file to the real one would take it from everybody."""
    path = tmp_path / "full.svg"
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 7))
    except PermissionError:
        pytest.skip("only root makes devices")
    yield path
    path.unlink(missing_ok=True)


def test_a_device_is_neither_written_to_nor_replaced(run_scav, workspace, full):  # noqa: ARG001
    refused(run_scav("predict", "--sweep", "nodes", "--plot-file", full), "full.svg: is a device, not a file")
    refused(run_scav("simulate", "scav-plan", "--svg", full), "full.svg: is a device, not a file")
    refused(run_scav("plan", "--out", full), "full.svg: cannot write")
    with pytest.raises(InputError, match="is a device"):
        store.append_line(full, "{}")
    assert full.is_char_device()


# Bombs


def test_a_recording_that_unpacks_to_gigabytes(tmp_path):
    file = tmp_path / "g5.xlarge@use1-az4.json.gz"
    file.write_bytes(gzip.compress(b"\0" * (store.MOST_BYTES + 1)))
    with pytest.raises(InputError, match="unpacked,: more than 64 MiB"):
        store.load_trace(file)


def test_a_recording_of_many_members(tmp_path):
    """Each small, together more than the bound; and so many empty ones that opening each would take minutes."""
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(b" " * MIB) * 80)
    with pytest.raises(InputError, match="more than 64 MiB"):
        store.load_trace(file)
    file.write_bytes(gzip.compress(b"") * 1_000_000)
    with pytest.raises(InputError, match="more than 8 MiB"):
        store.load_trace(file)
    file.write_bytes(gzip.compress(gzip.compress(b"0" * 99)))
    with pytest.raises(InputError, match="not UTF-8 text"):
        store.load_trace(file)


def test_user_data_that_unpacks_to_gigabytes():
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb") as stream:
        for _ in range(256):
            stream.write(b"\0" * MIB)
    user_data = base64.b64encode(bomb.getvalue()).decode()
    tracemalloc.start()
    try:
        assert facts._settings_in(user_data) is None
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


# Patterns and counts that would take the square of their input


def test_a_module_of_a_million_lines():
    assert declared_resources({"a.tf": "\n" * 1_000_000, "b.tf": " " * 1_000_000, "c.tf": "data " * 200_000}) == set()
    assert declared_resources({"a.tf": 'resource "' + '"" ""' * 200_000}) == set()


def test_user_data_with_a_million_beginnings():
    assert facts._settings_in(base64.b64encode(b"<<'SCAV_RUN'\n" * 70_000).decode()) is None


def test_an_address_of_a_million_brackets():
    for text in ("[" * 1_000_000, "[a" * 500_000, "[]" * 500_000, "a" * 1_000_000):
        assert len(_INDEX.sub("", text)) <= len(text)


def test_a_catalogue_of_a_hundred_thousand_types(run_scav, tmp_path):
    """Only the last is listed twice."""
    catalog = json.loads(assets.embedded_catalog().read_text())
    row = catalog["instance_types"][0]
    names = [*(f"x.{number}" for number in range(100_000)), "x.99999"]
    catalog["instance_types"] = [row | {"name": name} for name in names]
    (tmp_path / "large.json").write_text(json.dumps(catalog))
    refused(run_scav("catalog", "list", "--catalog", "large.json"), "instance type x.99999 is listed twice")


def test_measurements_of_fifty_thousand_types(measurement_line):
    row = json.loads(measurement_line)
    text = "".join(json.dumps(row | {"instance_type": f"x.{number}"}) + "\n" for number in range(50_000))
    catalog = store.load_catalog(None, beside=Path("/nowhere")).catalog
    found = usable(parse_measurements(text, file="measurements.jsonl").rows, catalog, "bf16")
    assert (found.rows, len(found.warnings)) == ((), 11)
    assert found.warnings[-1] == "used without 49990 of 50000 measurements: for other such reasons"


HOSTILE = [" " * 10**6, "9" * 10**6, "1 " * 10**5, "." * 10**6, "1e" * 10**5, "_" * 10**6, "*a" * 10**5, "(" * 10**5]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:2] for text in HOSTILE])
@pytest.mark.parametrize("option", ["--deadline", "--budget", "--nodes", "--region", "--instance-type"])
def test_options_of_a_million_characters(run_scav, write_job, option, text):
    write_job()
    refused(run_scav("plan", option, text), "command line: constraints.")


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:2] for text in HOSTILE])
def test_queries_of_a_million_characters(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["catalog", "list", text], ["catalog", "show", text], ["catalog", "list", "--region", text]):
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert (result.exit_code, len(result.stderr.splitlines())) in {(1, 1), (0, 0)}


def test_the_golden_plan_is_still_read(tmp_path):
    """The bounds are far above what is real."""
    shutil.copy(GOLDEN / "plan.json", tmp_path)
    assert len(store.load_text(tmp_path / "plan.json")) < store.MOST_BYTES / 10
