"""Stretches of a real run: what they measure while they train, and that nothing of it is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

torch = pytest.importorskip("torch")

from planner.probing import Stretch, fault_of_last, parse_stretches, trained_samples  # noqa: E402
from probes.noise import GradientCollector  # noqa: E402
from probes.noise_on_the_way import MovingCollector  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "tiny-transformer"
SCAV = [sys.executable, "-m", "planner"]


def test_two_steps_that_move_nothing_are_two_gradients_at_the_same_parameters() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    parameters = [*layer.parameters()]
    moving = MovingCollector(lambda: parameters, 8, is_spread=False)
    still = GradientCollector(parameters, 8)
    still.micro_batches = 2
    moving.begin()
    for _ in range(10):
        layer.zero_grad()
        layer(torch.randn(8, 3)).square().mean().backward()
        moving.take(wanted=True)
        still.take()
    assert len(moving.groups) == len(still.groups) == 5
    for one, other in zip(moving.groups, still.groups, strict=True):
        assert (one.count, one.batch) == (other.count, other.batch)
        assert one.signal == pytest.approx(other.signal, rel=1e-5)
        assert one.variance == pytest.approx(other.variance, rel=1e-5)


def test_a_step_of_another_size_is_in_no_pair() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    moving = MovingCollector(lambda: [parameter], 8, is_spread=False)
    moving.begin()
    for value, wanted in ((1.0, True), (2.0, False), (3.0, True), (5.0, True)):
        parameter.grad = torch.tensor([value])
        moving.take(wanted=wanted)
    (group,) = moving.groups
    assert group.mean_squared_norm == pytest.approx((9 + 25) / 2)
    assert group.squared_norm_of_mean == pytest.approx(16)


# What each process would have alone, beside what the hook saw: 0.5 |g|^2 of both, and |mean|^2.
HOOKED = """
import json, os, sys, types, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from probes.counting import StepCount
from probes.noise_on_the_way import MovingCollector

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(3, 2))
parameters = list(model.parameters())
place = types.SimpleNamespace(world_size=2)
instrument = types.SimpleNamespace(is_sharded=False, place=place, parallel=model, parameters=lambda: parameters)
moving = MovingCollector.of(instrument, StepCount(8, 1))
moving.begin()
torch.manual_seed(rank)
data = torch.randn(8, 3)
with model.no_sync():
    model(data).square().mean().backward()
own = torch.stack([p.grad.double().square().sum() for p in parameters]).sum()
total = [p.grad.double().clone() for p in parameters]
dist.all_reduce(own)
for tensor in total:
    dist.all_reduce(tensor)
model.zero_grad()
model(data).square().mean().backward()
moving.take(wanted=True)
(group,) = moving.groups
if rank == 0:
    mean = float(sum((tensor / 2).square().sum() for tensor in total))
    print(json.dumps([group.count, group.mean_squared_norm, float(own) / 2, group.squared_norm_of_mean, mean]))
os._exit(0) if not sys.stdout.flush() else None
"""


@pytest.mark.slow
def test_the_hook_of_two_processes_sees_each_gradient_and_their_mean(tmp_path: Path) -> None:
    (tmp_path / "hooked.py").write_text(HOOKED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "hooked.py"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    count, own, own_by_hand, mean, mean_by_hand = json.loads(done.stdout.splitlines()[-1])
    assert count == 2
    assert own == pytest.approx(own_by_hand, rel=1e-5)
    assert mean == pytest.approx(mean_by_hand, rel=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with a target so far away that the search is not over before it has begun, and quick steps."""
    job = tmp_path / "job"
    shutil.copytree(EXAMPLE, job, ignore=shutil.ignore_patterns("scav-online", "measurements.jsonl", "__pycache__"))
    text = (job / "scav.yaml").read_text()
    far = (("2760", "276000"), ("1990", "199000"), ("7640", "764000"))
    for few, many in (*far, ("16..128", "16..32")):
        assert text.count(few) == 1
        text = text.replace(few, many)
    (job / "scav.yaml").write_text(text)
    return job


def start(folder: Path, *script: str, workers: str = "1") -> subprocess.Popen[str]:
    command = [*SCAV, "tune", str(folder), "--online", "--workers", workers, "--", *script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def journal(folder: Path) -> list[Stretch]:
    file = folder / "scav-online" / "stretches.jsonl"
    return parse_stretches(file.read_text(), file=str(file)) if file.exists() else []


def wait_for_the_second(process: subprocess.Popen[str], folder: Path) -> None:
    """Until it has made steps."""
    progress = folder / "scav-online" / "progress.json"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if journal(folder) and progress.exists() and json.loads(progress.read_text()).get("steps"):
            return
        time.sleep(0.1)
    pytest.fail("there was no second stretch")


@pytest.mark.slow
def test_it_measures_while_it_trains_survives_a_kill_and_ends_where_the_script_does(folder: Path) -> None:
    """Two workers: each one's gradient and their mean at the same parameters always say how much noise there is. Of one
    worker gradients of two steps may point against each other while steps are large, as they do here at first."""
    script = ("train.py", "--steps", "260")
    first = start(folder, *script, workers="2")
    wait_for_the_second(first, folder)
    first.send_signal(signal.SIGKILL)
    first.communicate()  # closes its pipes
    before = journal(folder)
    assert before
    assert all(stretch.to_state and stretch.step_seconds for stretch in before)
    rows = (folder / "measurements.jsonl").read_text().splitlines()

    out, err = start(folder, *script, workers="2").communicate(timeout=PATIENCE_SECONDS)
    assert "Trained " in out, err
    assert "never tuning" in out
    whole = journal(folder)
    killed, last = whole[len(before)], whole[-1]
    assert whole[: len(before)] == before
    assert killed.to_state is None
    assert killed.steps > 0
    assert killed.seconds > 0
    assert last.ended
    assert fault_of_last(whole) is None
    kept = [stretch for stretch in whole if stretch is not killed]
    assert kept[len(before)].from_state == before[-1].to_state
    assert trained_samples(whole) == sum(stretch.samples for stretch in kept)
    assert sum(stretch.steps for stretch in kept) == 260  # the script's own count went on
    measured = (folder / "measurements.jsonl").read_text().splitlines()
    assert measured[: len(rows)] == rows
    assert json.loads(measured[0])["noise"]["scale"] > 0

    again, _ = start(folder, *script, workers="2").communicate(timeout=PATIENCE_SECONDS)
    assert "Trained " in again
    assert journal(folder) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("        checkpoints.after_step(", "does not save and leave on SIGTERM"),
        ("if state := checkpoints.load():", "began anew"),
    ],
)
def test_a_script_that_cannot_go_on_is_told_so(folder: Path, left_out: str, said: str) -> None:
    """Without a handler of SIGTERM, or without loading what it saved."""
    text = (folder / "train.py").read_text()
    if "after_step" in left_out:
        text = text.replace("    checkpoints = Checkpoints()\n", "").replace(
            "if state := checkpoints.load():", "if False:"
        )
        text = text[: text.index(left_out)] + text[text.index('    if place.rank == 0:\n        print(f"finished') :]
    else:
        text = text.replace(left_out, "if state := {}:")
    (folder / "train.py").write_text(text)
    process = start(folder, "train.py", "--steps", "1000", workers="1")
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert said in err.splitlines()[-1]


def test_of_other_places_and_programs_it_is_refused(folder: Path) -> None:
    for options, said in (
        (["--on", "aws"], "--online: has no meaning with --on aws, only with --on local"),
        (["--writes-steps"], "--writes-steps: has no meaning with --online, which trains a PyTorch script"),
    ):
        done = subprocess.run(
            [*SCAV, "tune", str(folder), "--online", *options, "--", "train.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == f"Error: {said}\n"


def test_a_dry_run_says_where_it_would_begin(folder: Path) -> None:
    done = subprocess.run(
        [*SCAV, "tune", str(folder), "--online", "--dry-run"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("2 workers, local batch 16")
    assert not (folder / "scav-online").exists()
